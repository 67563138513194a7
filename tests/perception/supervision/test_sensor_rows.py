"""The small durable rows of a sensor: written with what a cycle has taken, and found again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import Memory
from perception import Sense
from perception.supervision.unconfirmed import Ledger
from spar import Agent, Perception
from spar.clock import SystemClock
from spar.errors import TooLargeError
from spar.events import ErrorOccurred
from spar.protocols import SensorContext, SensorSpec
from spar.records.journal import RowChange


class Values:
    """A store that keeps values only."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def load(self, key: str) -> Any:
        return self.values.get(key)

    async def save(self, key: str, value: Any) -> None:
        self.values[key] = value


class Watcher:
    """A sensor that remembers what it has handed over, a row for each thing."""

    def __init__(self, things: list[str]) -> None:
        self.things, self.known = things, dict[str, Any]()

    async def open(self, ctx: SensorContext) -> None:
        self.known = dict(await ctx.rows.list())
        for thing in self.things:
            if thing not in self.known:
                ctx.push(Perception(thing))
                ctx.rows.keep(thing, {"seen": True})
        for gone in self.known.keys() - set(self.things):
            ctx.rows.drop(gone)


def held(store: Any = None) -> Ledger:
    return Ledger("sensor:main:eye", store, SystemClock(), 1.0, lambda error, policy: None)


@given(st.lists(st.tuples(st.sampled_from(["push", "keep", "take", "shed", "join", "poll", "polled"]),
                          st.integers(0, 3)), max_size=40))  # fmt: skip
async def test_joined_changes_are_written_when_each_by_itself_would_have_been(steps: list[tuple[str, int]]) -> None:
    joined, plain = held(Values()), held(Values())
    waiting, number = list[int](), 0
    for step, (what, place) in enumerate(steps):
        if what == "push":
            waiting.append(number)
            number += 1
        elif what in ("take", "shed") and waiting:
            waiting.pop(0 if what == "take" else place % len(waiting))
        for ledger in (joined, plain):
            ledger.next = number
            if what == "keep":
                ledger.keep(f"row {place}", step)
            elif what == "poll":
                ledger.begin_poll()
            elif what == "polled":
                ledger.end_poll()
            ledger.confirm(waiting[0] if waiting else number)
        if what == "join":
            joined.join(waiting)
            assert joined.steps <= len(waiting) + 1
        assert dict(await joined.list()) == dict(await plain.list())
        assert {change.key: change for change in joined.row_changes()} == {
            change.key: change for change in plain.row_changes()
        }


def test_a_row_that_is_too_large_is_refused_to_who_keeps_it() -> None:
    rows = held()
    with pytest.raises(TooLargeError, match=r"row 'big' of 'sensor:main:eye' is larger than 65536 bytes"):
        rows.keep("big", "x" * 70_000)
    with pytest.raises(TypeError):
        rows.keep("odd", object())

    assert not rows.has_any


async def test_without_a_store_rows_are_known_while_the_process_lives() -> None:
    rows = held()
    rows.keep("a", 1)
    rows.confirm(0)
    await rows.save()
    assert not rows.has_any

    assert await rows.list() == {"a": 1}


async def lived(path: Path, things: list[str], *, kill: bool = False) -> tuple[list[str], Mapping[str, Any]]:
    """What an agent with the sensor planned on, and the rows that are in the file afterwards."""
    seen: list[str] = []

    async def plan(perceptions: list[Perception]) -> None:
        seen.extend(perception.text for perception in perceptions)

    memory = Memory.open(f"sqlite:///{path}")
    sense = Sense([SensorSpec("eye", Watcher(things))], pipeline={"dedup": {"enabled": False}})
    async with memory:
        async with Agent(sense=sense, plan=plan, memory=memory, loop_interval=0.01):
            for _ in range(500):
                if len(await memory.rows("sensor:main:eye")) == len(things):
                    break
                await asyncio.sleep(0.01)
        return seen, await memory.rows("sensor:main:eye")


async def test_what_a_sensor_remembers_in_rows_is_found_by_the_next_process_whatever_its_size(tmp_path: Path) -> None:
    things = [f"{number} {'x' * 2_500}" for number in range(600)]  # 1.5 MB: no single value takes it

    first, rows = await lived(tmp_path / "m.db", things)
    second, _ = await lived(tmp_path / "m.db", things[1:])
    _, left = await lived(tmp_path / "m.db", things[1:])

    assert len(first) == len(rows) == 600
    assert second == []
    assert len(left) == 599


async def test_the_store_changes_all_rows_or_none_and_refuses_what_is_too_large(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        await memory.change([RowChange("o", "a", 1), RowChange("o", "b", 2), RowChange("o", "a", is_dropped=True)])
        with pytest.raises(TooLargeError, match=r"row 'big' of 'o' is too large"):
            await memory.change([RowChange("o", "c", 3), RowChange("o", "big", "x" * (2 << 20))])

        assert await memory.rows("o") == {"b": 2}
        assert await memory.rows("other") == {}


async def test_a_cursor_that_is_too_large_is_told_and_stays_what_it_was_never_cut(tmp_path: Path) -> None:
    class Greedy:
        async def open(self, ctx: SensorContext) -> None:
            ctx.push(Perception("one"))
            ctx.checkpoint({"files": ["x" * 100] * 20_000})

    async def plan(perceptions: list[Perception]) -> None:
        return None

    told: list[ErrorOccurred] = []
    memory = Memory.open(f"sqlite:///{tmp_path}/m.db")
    async with memory:
        await memory.save("cursor:main:eye", "former")
        agent = Agent(sense=Sense([SensorSpec("eye", Greedy())]), plan=plan, memory=memory, loop_interval=0.01)
        agent.events.subscribe(ErrorOccurred, told.append)
        async with agent:
            for _ in range(500):
                if told:
                    break
                await asyncio.sleep(0.01)
        found = await memory.load("cursor:main:eye")

    assert found == "former"
    assert (told[0].error.kind, told[0].error.retryable) == ("too_large", False)
    assert "state 'cursor:main:eye' is too large" in told[0].error.message
