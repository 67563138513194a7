"""Counts of an agent are those of all its cycles, however they are told, added up, kept and taken away."""

from __future__ import annotations

import contextlib
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from memory import Memory, counts
from memory.care.integrity import verify
from memory.sqlite import database
from spar import Action, Agent, Perception, facts
from spar.events import ErrorOccurred
from spar.records.journal import Closing, RowChange, merge_counts
from spar.types import CycleRecord
from tests.effort import Effort
from tests.journal.left import tell
from tests.waiting import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def close(memory: Memory, agent: str, id: str, *, besides: dict[str, Any] | None = None, notes: Any = ()) -> None:
    memory.journal.append(facts.CycleOpened(session="main", cycle=id), agent)

    record = CycleRecord(id, agent, "main", NOW, 0.5, "acted", phases={"plan": 0.25}, notes=notes)
    tell(memory.journal, facts.CycleWritten, agent=agent, cycle=id, closing=Closing("acted", record, besides=besides))


def tend(memory: Memory) -> Any:
    def work(connection: Any) -> None:
        while memory._tend(connection):
            pass

    return memory._file.commit(work)


@pytest.mark.parametrize("batch", [1, 4, 1_000])
async def test_they_are_the_same_before_and_after_facts_are_added_up_and_gone(tmp_path: Path, batch: int) -> None:
    path = f"{tmp_path}/m.db"
    expected: dict[str, dict[str, Any]] = {"a": {}, "b": {}}
    async with Memory.open(f"sqlite:///{path}", ballast=0, keep_facts=1, keep_cycles=2) as memory:
        for number in range(20):
            agent = "ab"[number % 2]
            besides = {"outcomes": {"idle": number}} if number % 3 == 0 else None
            notes = ({"kind": "note", "text": "so"},) if number % 5 == 0 else ()  # then a fact tells of its end
            close(memory, agent, f"c{number}", besides=besides, notes=notes)
            merge_counts(
                expected[agent], {"outcomes": {"acted": 1}, "durations": {"cycle": [1, 0.5], "plan": [1, 0.25]}}
            )
            merge_counts(expected[agent], besides or {})
            if number % batch == 0:
                await memory.journal.safe()
            if number == 9:
                memory.journal.append(facts.TotalsCounted(total=expected["a"]), "a")  # what is told is in it
            if number in (5, 12):
                await tend(memory)
            for name in "ab":
                assert plain(await memory.journal.views.counts(name)) == plain(expected[name])
        await tend(memory)
        for table, kept in (("fact", 1), ("cycle", 2)):
            assert await memory._file.read(lambda c, t=table: c.execute(f"SELECT count(*) FROM {t}").get) == kept
    assert verify(path).is_whole
    async with Memory.open(f"sqlite:///{path}") as memory:
        for name in "ab":
            assert plain(await memory.journal.views.counts(name)) == plain(expected[name])


def plain(counted: dict[str, Any]) -> dict[str, Any]:
    durations = {name: list(each) for name, each in counted.get("durations", {}).items()}
    return {"outcomes": counted.get("outcomes", {}), "durations": durations}


async def test_facts_of_an_earlier_release_are_not_looked_at(tmp_path: Path) -> None:
    path = f"{tmp_path}/m.db"
    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        for number in range(5):
            close(memory, "a", f"c{number}")
    async with Memory.open(f"sqlite:///{path}") as memory:  # its row says what all of them came to
        await memory._file.commit(lambda c: c.execute("DELETE FROM state WHERE key = 'counted'").close())
        memory.journal.append(facts.TotalsCounted(total={"outcomes": {"acted": 5}}), "a")
    async with Memory.open(f"sqlite:///{path}") as memory:
        await memory.journal.safe()
        assert (await memory._file.read(counts._counted)) == (0, 5)
        assert (await memory.journal.views.counts("a"))["outcomes"] == {"acted": 5}


async def test_adding_up_is_proportional_to_the_facts(tmp_path: Path) -> None:
    async def effort(number: int) -> int:
        path = f"{tmp_path}/{number}.db"
        async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
            for cycle in range(number):
                close(memory, f"agent {cycle % 10}", f"c{cycle}")
        connection = database.open_writer(path, "off")
        with Effort() as folding:
            counts.fold(connection, is_all=True)
        connection.close()
        return folding.steps

    assert await effort(2_000) <= 2.2 * await effort(1_000)


async def test_statistics_of_a_killed_process_are_exactly_those_of_its_cycles(tmp_path: Path) -> None:
    """Also of those that were idle, failed, or told nobody; but for what came after the last one that was written."""

    async def plan(perceptions: list[Perception]) -> Action | None:
        if not perceptions:
            return None
        if perceptions[0].text == "bad":
            raise ValueError("no plan")
        return Action(goal="go on")

    def agent(memory: Memory) -> Agent:
        return Agent(plan=plan, memory=memory, loop_interval="off")

    path = f"{tmp_path}/m.db"
    for round in range(3):
        async with Memory.open(f"sqlite:///{path}") as memory, agent(memory) as one:
            for text in ("a", "bad", "b", "bad", "c"):
                told = one.stats.total_cycles
                await one.accept(Perception(text))
                await until(lambda one=one, told=told: one.stats.total_cycles > told)
            await memory.journal.safe()
            left = f"{path}.{round}.{time.monotonic_ns()}"
            for name in ("", "-wal"):
                shutil.copy(f"{path}{name}", f"{left}{name}")
            before = one.stats
        path = left
        async with Memory.open(f"sqlite:///{path}") as memory, agent(memory) as one:
            after = one.stats
        assert after.outcomes == before.outcomes
        assert after.errors_by_phase == before.errors_by_phase
        assert after.phase_mean_seconds == pytest.approx(before.phase_mean_seconds, rel=1e-12)
        assert after.cycle_mean_seconds == pytest.approx(before.cycle_mean_seconds, rel=1e-12)


async def test_a_small_row_that_is_damaged_is_told_and_left_out_and_keeps_nobody_from_working(tmp_path: Path) -> None:
    path = f"{tmp_path}/m.db"
    ability = {"tool": "t", "task": "t", "estimate": 0.5, "uncertainty": 0.1, "trials": 3}
    async with Memory.open(f"sqlite:///{path}") as memory:
        for name in ("main", "other"):
            memory.journal.append(facts.TotalsCounted(total={"outcomes": {"acted": 7}}), name)
        await memory.change([RowChange("ability:main", key, ability) for key in ("t|t", "u|t")])
    with contextlib.closing(apsw.Connection(path)) as connection:
        for owner, key in (("stats:main", "account"), ("ability:main", "t|t")):
            connection.execute("UPDATE own_row SET value = '{}' || value WHERE owner = ? AND key = ?", (owner, key))

    told: list[ErrorOccurred] = []
    memory = Memory.open(f"sqlite:///{path}", keep_facts=1)
    agent = Agent(plan=lambda perceptions: Action(output="done"), memory=memory, loop_interval="off")
    agent.events.subscribe(ErrorOccurred, told.append)
    async with memory, agent:
        assert (await agent.wait((await agent.submit("hello")).run_id, 20)).status == "ok"
        assert (await memory.rows("ability:main")).keys() == {"u|t"}
        await tend(memory)
        assert (await memory.journal.views.counts("other"))["outcomes"] == {"acted": 7}
        assert memory.snapshot()["is_writable"]

    damaged = [
        error.error.message for error in told if error.error.kind == "damaged" and "own_row" in error.error.message
    ]
    assert [row in message for row, message in zip(("account", "t|t"), damaged, strict=True)] == [True, True]
