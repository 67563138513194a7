"""No row of any table can be changed, added or taken away unseen; what honest work does is never told of."""

from __future__ import annotations

import asyncio
import random
import shutil
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.care.integrity import verify
from memory.sqlite import database, schema, seals
from spar import facts
from spar.records.audit import AuditDraft
from spar.records.journal import Closing, Doubt, Item, RowChange, Spend
from spar.records.session import SessionUse
from spar.records.transcript import Entry
from spar.types import Action, Call, CallResult, CycleRecord, Experience, Perception
from tests.effort import Effort
from tests.journal.left import accept, tell

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def fill(memory: Memory, number: int = 3) -> None:
    """Something in every table."""
    journal = memory.journal
    for n in range(number):
        await memory.store(Experience(f"disk full {n}", id=f"e{n}", at=NOW))
        await memory.store(Experience("alike", id=f"a{n}", at=NOW, key="alert.disk"))
        note = {"kind": "model.request", "text": f"{n} long " * 100}
        await memory.record(CycleRecord(f"t{n}", "main", "main", NOW, 0.1, "acted", notes=(note,)))
        await memory.keep("approval", f"r{n}", {"n": n})
        await memory.save(f"cursor {n}", n)
        item = Item(f"i{n}", Perception("hello"), session=f"s{n}", key=f"k{n}")
        await accept(journal, item, use=SessionUse(NOW))
        journal.append(facts.CycleOpened(session="main", cycle=f"c{n}"), "main")

        tell(journal, facts.Planned, cycle=f"c{n}", action=Action((Call("note", {"n": n}, id=f"call{n}"),)))
        tell(journal, facts.CallDoubted, doubt=Doubt(f"c{n}/call{n}", Call("pay"), f"c{n}", at=NOW))
        journal.append(facts.BudgetUsed(spends=(Spend(f"hour:2026-01-0{n % 9 + 1}T00", "calls", n + 1),)))
        journal.append(facts.RowsChanged(changes=(RowChange("ability:main", f"tool|{n}", {"n": n}),)))
        await memory.audit.write(AuditDraft("alice", "http", "agent.pause", "main"))
        await memory.transcripts.append("main", f"s{n}", f"run{n}", [Entry("user", {"text": "hello"})])
    await journal.safe()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a memory that has something in every table."""
    folder = tmp_path_factory.mktemp("filled")

    async def make() -> None:
        async with Memory.open(f"sqlite:///{folder / 'memory.db'}", ballast=0) as memory:
            await fill(memory)

    asyncio.run(make())
    return folder


@pytest.fixture
def path(filled: Path, tmp_path: Path) -> str:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return str(tmp_path / "memory.db")


@cache
def empty() -> Any:
    """Return a connection to a memory without rows."""
    connection = database.open_writer(database.IN_MEMORY, "off")
    schema.migrate(connection)
    return connection


def columns_of(table: str) -> list[str]:
    return [str(row[1]) for row in empty().execute(f"PRAGMA table_info({table})")]


def harm(path: str, *statements: str) -> None:
    connection = database.open_writer(path, "off")
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_every_table_is_sealed_but_the_chain_and_the_seals_themselves(path: str) -> None:
    connection = database.open_writer(path, "off")
    names = {str(n) for (n,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    connection.close()

    ours = {name for name in names if not name.startswith(("sqlite_", "experience_text", "experience_vector"))}
    assert ours == {*seals.TABLES, "fact", "seal"}
    assert verify(path).is_whole


@pytest.mark.parametrize("table", [*seals.TABLES, "fact"])
def test_a_change_of_any_column_of_any_table_is_told(filled: Path, tmp_path: Path, table: str) -> None:
    own = " WHERE key LIKE 'cursor%'" if table == "state" else ""
    names = ", ".join(seals.TABLES[table].key) if table in seals.TABLES else "seq"
    where = " AND ".join(f"{name} = ?" for name in names.split(", "))
    for column in columns_of(table):
        path = str(shutil.copy(filled / "memory.db", tmp_path))
        connection = database.open_writer(path, "off")
        connection.execute("DROP TRIGGER IF EXISTS transcript_stays")
        one = connection.execute(f"SELECT {names} FROM {table}{own} ORDER BY {names} LIMIT 1").fetchone()
        connection.execute(
            f"UPDATE {table} SET {column} = CASE typeof({column}) WHEN 'text' THEN {column} || 'x' "
            f"WHEN 'blob' THEN x'00' WHEN 'null' THEN 1 ELSE {column} + 1000 END WHERE {where}",
            one,
        )
        assert connection.changes() == 1, column
        connection.close()
        assert table in {finding.table for finding in verify(path).findings}, column


@pytest.mark.parametrize("table", [*seals.TABLES, "fact"])
def test_rows_that_are_missing_are_told(filled: Path, tmp_path: Path, table: str) -> None:
    names = ", ".join(seals.TABLES[table].key) if table in seals.TABLES else "seq"
    own = "WHERE key NOT IN ('epoch', 'seals', 'chain', 'flushed')" if table == "state" else ""
    for order, limit in (("ASC", "LIMIT 1"), ("DESC", "LIMIT 1"), ("", "")):  # the first, the last, all
        path = str(shutil.copy(filled / "memory.db", tmp_path))
        ordered = ", ".join(f"{name} {order}" for name in names.split(", "))
        some = f"SELECT {names} FROM {table} {own} ORDER BY {ordered} {limit}"
        harm(path, f"DELETE FROM {table} WHERE ({names}) IN ({some})")
        assert table in {finding.table for finding in verify(path).findings}, order


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO item SELECT 'new', agent, session, kind, NULL, at, attempts, state, body FROM item LIMIT 1",
        "INSERT INTO open_cycle SELECT 'new', agent, attempts, body FROM open_cycle LIMIT 1",
        "INSERT INTO doubt SELECT 'new', agent, at, answer, body FROM doubt LIMIT 1",
        "INSERT INTO record SELECT kind, 'new', version, value FROM record LIMIT 1",
        "INSERT INTO spent VALUES ('zzz', 'calls', 1)",
        "INSERT INTO state SELECT 'new', value FROM state WHERE key = 'cursor 1'",
        "INSERT INTO own_row SELECT owner, 'new', value FROM own_row LIMIT 1",
        "INSERT INTO session SELECT agent, 'new', ordinal, began_at, used_at, is_set, body FROM session LIMIT 1",
        "INSERT INTO writer (agent, session, run, at) VALUES ('main', 's0', 'new', 1.0)",
        "INSERT INTO transcript (agent, session, run, kind, at, bytes, body) "
        "SELECT agent, session, run, kind, at, bytes, body FROM transcript LIMIT 1",
        "INSERT INTO cycle (id, started_at, bytes, outcome, session, agent, duration, summary, body) "
        "SELECT 'new', started_at, bytes, outcome, session, agent, duration, summary, body FROM cycle LIMIT 1",
        "INSERT INTO experience (id, at, bytes, session, task, success, lesson, body) "
        "SELECT 'new', at, bytes, session, task, success, lesson, body FROM experience LIMIT 1",
    ],
    ids=lambda statement: statement.split()[2],
)
def test_a_row_that_was_put_in_is_told(path: str, statement: str) -> None:
    harm(path, statement)

    [finding] = verify(path).findings
    assert finding.table == statement.split()[2]
    assert finding.what == "it has no seal: it was put in by somebody else"


def test_whoever_takes_a_seal_away_with_its_row_is_told_of_by_their_number_if_that_is_known(path: str) -> None:
    harm(path, "DELETE FROM doubt WHERE id = 'c1/call1'", "DELETE FROM seal WHERE key = 'c1/call1'")
    assert [str(finding) for finding in verify(path).findings] == ["doubt: 2 rows are sealed, 3 were"]
    harm(path, "DELETE FROM state WHERE key = 'seals'")
    assert "nobody knows how many rows there were" in str(verify(path).findings[0])


async def test_whatever_honest_work_does_leaves_every_row_sealed(tmp_path: Path) -> None:
    path, rng = str(tmp_path / "m.db"), random.Random(1)
    for _ in range(3):
        memory = Memory.open(f"sqlite:///{path}", ballast=0, keep_cycles=5, keep_experiences=5, keep_facts=20)
        async with memory:
            await fill(memory, 8)
            journal = memory.journal
            await memory.forget(task="")
            await memory.drop("approval", "r1")
            journal.append(facts.RowsChanged(changes=(RowChange("ability:main", "tool|1", is_dropped=True),)))
            journal.append(facts.WorkChanged(session="main", item=Item("i1", Perception("again"), attempts=1)), "main")
            for n in range(8):
                if rng.random() < 0.5:
                    call = Call("note", id=f"call{n}")
                    journal.append(facts.CallEnded(session="main", cycle=f"c{n}", result=CallResult(call, "ok")))
                    tell(journal, facts.CycleWritten, cycle=f"c{n}", closing=Closing("acted", done=(f"i{n}",)))
            bad = memory._file.commit(lambda connection: connection.execute("INSERT INTO nowhere VALUES (1)").close())
            with pytest.raises(Exception, match="no such table"):
                await bad
            await journal.safe()

            def tend(connection: Any, memory: Memory = memory) -> None:
                while memory._tend(connection):
                    pass

            await memory._file.commit(tend)
            for name in ("", "-wal"):
                shutil.copy(f"{path}{name}", f"{path}.left{name}")
            assert verify(path).is_whole, "while it is written"
        assert verify(f"{path}.left").is_whole, "after a kill"
        assert verify(path).is_whole, "after a stop"


async def test_cycles_that_are_told_to_the_seals_are_sealed_also_when_they_are_recorded_again(tmp_path: Path) -> None:
    path = str(tmp_path / "m.db")

    def told(number: int, **changes: Any) -> None:
        record = CycleRecord(f"c{number}", "main", "main", NOW, 0.1, "acted", **changes)
        closing = Closing("acted", record)
        memory.journal.append(facts.CycleWritten(session="main", cycle=f"c{number}", closing=closing), "main")

    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        for numbers in ([0], range(40), [3, 41, 3], [41]):
            for number in numbers:
                told(number)
            await memory.journal.safe()
        for is_noted in (True, False):  # first by the hook, then told
            told(45, notes=({"kind": "long", "text": "x" * 5_000},) if is_noted else ())
            await memory.journal.safe()
            assert verify(path).is_whole
        bad = memory._file.commit(lambda connection: connection.execute("INSERT INTO nowhere VALUES (1)").close())
        told(50)
        with pytest.raises(Exception, match="no such table"):
            await bad
        await memory.journal.safe()
        assert verify(path).is_whole
    assert verify(path).is_whole
    harm(path, "UPDATE cycle SET outcome = 'idle' WHERE id IN ('c41', 'c50')")
    assert [(each.table, each.row) for each in verify(path).findings] == [("cycle", "c41"), ("cycle", "c50")]


async def test_the_work_of_sealing_and_of_looking_is_proportional(tmp_path: Path) -> None:
    def effort(number: int) -> tuple[int, int]:
        path = str(tmp_path / f"{number}.db")
        connection = database.prepare(path, "off").connection
        with Effort() as writing:
            sealing = seals.Seals(connection)
            connection.execute("BEGIN")
            for n in range(number):
                connection.execute("INSERT INTO own_row VALUES ('o', ?, '1')", (f"{n:06}",))
            sealing.write()
            connection.execute("COMMIT")
        with Effort() as looking:
            assert list(seals.check(connection)) == []
        connection.close()
        return writing.steps, looking.steps

    few, many = effort(2_000), effort(4_000)

    assert many[0] <= 2.2 * few[0]
    assert many[1] <= 2.2 * few[1]


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
async def test_a_file_of_each_older_format_is_sealed_when_it_is_migrated(tmp_path: Path, version: int) -> None:
    path = str(tmp_path / "m.db")
    connection = database.open_writer(path, "off")
    connection.execute((Path(__file__).parent / f"format_{version}.sql").read_text("utf-8"))
    connection.close()
    assert verify(path).is_whole, "in its own format"

    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        await fill(memory, 2)

    assert verify(path).is_whole
    harm(path, "UPDATE cycle SET outcome = 'other'")
    assert {finding.what for finding in verify(path).findings} == {"it was altered: its seal does not fit"}
