"""A process that is killed at any point, and a COMMIT without an answer: what was acknowledged is there, once."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memory.postgres.connection import PostgresConnection, PostgresRows
from memory.postgres.store import PostgresMemory
from spar import facts
from spar.records.journal import Spend
from tests.memory.postgres.test_loss import accepted, whole
from tests.process.template import ROOT, Forked, clean_environ

pytestmark = pytest.mark.process

#: A life: accepts work, carries a cycle with a call out, learns, keeps rows and entries. Each line that it prints says
#: what was acknowledged. A life begins with what the one before has left.
LIFE = """
import asyncio, os, sys
from datetime import UTC, datetime
from memory.postgres.store import PostgresMemory
from spar import facts
from spar.records.journal import Closing, Item, RowChange, Spend
from spar.records.transcript import Entry
from spar.types import Action, ActionResult, Call, CallResult, CycleRecord, Experience, Perception

AT = datetime(2026, 6, 1, tzinfo=UTC)

def say(text):
    os.write(1, f"{text}\\n".encode())

async def main(url, life):
    async with PostgresMemory(url) as memory:
        journal = memory.journal
        for number in range(3):
            id = f"{life}-{number}"
            perception = Perception(id, id=id)
            await journal.commit(facts.WorkAccepted(session="main", item=Item(id, perception, key=id)), "main")
            say(f"item {id}")
            call = Call("pay", {"sum": 1}, id="1")
            action = Action(id=id, goal="pay", calls=(call,))
            journal.append(facts.CycleOpened(session="main", cycle=id, items=(id,)), "main")
            journal.append(facts.Planned(session="main", cycle=id, action=action, effect="once"), "main")
            journal.append(
                facts.AttemptStarted(session="main", cycle=id, call="1", attempt=1, effect="once"), "main")
            await journal.safe()
            say(f"started {id}")
            result = CallResult(call, "ok", output="paid")
            journal.append(facts.CallEnded(session="main", cycle=id, result=result), "main")
            record = CycleRecord(id, "main", "main", AT, 0.1, "acted", action=action,
                                 result=ActionResult(action, "ok", (result,)))
            closing = Closing(
                "acted", record, (Experience(f"bill {id}", id=id, at=AT),), done=(id,), run_id=id,
                entries=(Entry("user", {"text": id}, id, at=AT),), changes=(RowChange("rule:x", id, life),))
            journal.append(facts.BudgetUsed(spends=(Spend("day:1", "calls", 1),)), "main")
            journal.append(facts.CycleWritten(session="main", cycle=id, closing=closing), "main")
            await journal.safe()
            say(f"closed {id}")
            await memory.keep("approval", id, {"by": life}, expect=0)
            say(f"kept {id}")

asyncio.run(main(*sys.argv[1:]))
"""


def live(url: str, life: str, **crash: str) -> tuple[int, set[str]]:
    """Let a process live. Return its exit code and what it has acknowledged."""
    command, env = [sys.executable, "-c", LIFE, url, life], {**clean_environ(), "PYTHONPATH": str(ROOT), **crash}
    with Forked(command, env=env, stdout=subprocess.PIPE) as process:
        try:
            said, _ = process.communicate(timeout=120)
        except BaseException:
            process.kill()
            raise
    return process.returncode, set(said.decode().splitlines())


def stored(url: str) -> dict[str, list[str]]:
    """Return the ids of what is stored, by kind."""
    queries = {
        "item": "SELECT id FROM item", "closed": "SELECT work FROM fact WHERE kind = 'closed'",
        "started": "SELECT work FROM fact WHERE kind = 'started'", "kept": "SELECT id FROM record",
        "cycle": "SELECT id FROM cycle", "experience": "SELECT id FROM experience",
        "entry": "SELECT run FROM transcript", "row": "SELECT key FROM own_row WHERE owner = 'rule:x'",
        "open": "SELECT id FROM open_cycle", "waiting": "SELECT id FROM item WHERE state = 'waiting'",
    }  # fmt: skip
    with psycopg.connect(url) as connection:
        return {kind: [str(id) for (id,) in connection.execute(sql.encode())] for kind, sql in queries.items()}


def check(url: str, acknowledged: set[str]) -> None:
    """Check that all that was acknowledged is stored once, and that the end of each cycle is whole or missing."""
    _, _, used = whole(url)
    rows = stored(url)
    for line in acknowledged:
        kind, id = line.split()
        assert rows[kind].count(id) == 1, line
    for kind, ids in rows.items():
        assert len(ids) == len(set(ids)), kind
    closed = set(rows["closed"])
    for kind in ("cycle", "experience", "entry", "row"):
        assert set(rows[kind]) == closed, kind
    assert used == len(closed)
    assert set(rows["open"]) == set(rows["started"]) - closed
    assert not closed & set(rows["waiting"])


async def test_what_was_acknowledged_before_a_kill_at_any_point_is_there_once(url: str, tmp_path: Path) -> None:
    log = tmp_path / "labels"
    code, acknowledged = live(url, "whole", SPAR_CRASH_LOG=str(log))
    assert code == 0
    assert len(acknowledged) == 12
    labels = log.read_text().split()
    reached = {label: labels.count(label) for label in dict.fromkeys(labels)}
    assert {"postgres.before_commit", "postgres.committed", "journal.txn_open", "sense.before_commit"} <= set(reached)
    points = [f"{label}:{number}" for label, times in reached.items() for number in {1, (times + 1) // 2, times}]
    chosen = random.Random(11).sample(points, min(24, len(points)))
    kills = 0
    for place, point in enumerate(chosen):
        code, lines = live(url, f"life{place}", SPAR_CRASH=point)
        kills += code == 137
        acknowledged |= lines
        check(url, acknowledged)
    assert kills >= min(20, len(chosen))


@pytest.mark.parametrize("seed", range(3))
async def test_a_commit_without_an_answer_is_done_once(url: str, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance, lost = random.Random(seed), [0, 0]
    execute = PostgresConnection.execute

    def lossy(self: PostgresConnection, sql: str, bindings: Any = (), /) -> PostgresRows:
        if sql != "COMMIT" or not hasattr(self, "is_lossy") or chance.random() < 0.5:
            return execute(self, sql, bindings)
        is_done = chance.random() < 0.5
        lost[is_done] += 1
        if is_done:
            execute(self, sql, bindings)
        self.raw.pgconn.finish()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    async with PostgresMemory(url) as memory:
        transactions = memory._file.writer._transactions
        monkeypatch.setattr(PostgresConnection, "execute", lossy)
        reopen = transactions._reopen

        def reopened(backend: int) -> PostgresConnection:
            connection = reopen(backend)
            connection.is_lossy = True
            return connection

        monkeypatch.setattr(transactions, "_reopen", reopened)
        transactions.connection.is_lossy = True
        for number in range(50):
            memory.journal.append(facts.BudgetUsed(spends=(Spend("day:1", "calls", 1),)), "main")
            await asyncio.wait_for(memory.journal.commit(accepted(f"{number}"), "main"), 60)
        monkeypatch.undo()
    number, ids, used = whole(url)

    assert min(lost) >= 5
    assert number == used == len(ids) == 50


@pytest.mark.parametrize("number", ["not given yet", "given to another"])
async def test_a_transaction_whose_number_a_crashed_server_never_wrote_is_done_again(
    url: str, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    execute, lost = PostgresConnection.execute, list[str]()
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
        assert row is not None
    other = str(int(row[0]) + (1 << 31)) if number == "not given yet" else row[0]

    def forgetful(self: PostgresConnection, sql: str, bindings: Any = (), /) -> PostgresRows:
        if sql == "COMMIT" and not lost:
            lost.append(sql)
            self.raw.pgconn.finish()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return execute(self, sql, (other,) if "pg_xact_status" in sql else bindings)

    async with PostgresMemory(url) as memory:
        monkeypatch.setattr(PostgresConnection, "execute", forgetful)
        await asyncio.wait_for(memory.journal.commit(accepted("1"), "main"), 60)
        monkeypatch.undo()

    assert lost == ["COMMIT"]
    assert whole(url)[:2] == (1, {"1"})
