"""Products that cannot be stored: an error of the phase that returned them, and of no other session."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from memory import Memory
from perception import Sense
from spar import Action, Agent, Context, Perception
from spar.events import ErrorOccurred, MessageSent, RunEnded
from spar.protocols import SensorContext, SensorSpec
from spar.testing import VirtualClock
from spar.types import ActionResult, Experience, Reflection
from tests.doubles import heard

SESSIONS = [f"s{number}" for number in range(12)]
BAD = "s3"


class House:
    """An agent with a memory, whose twelve sessions end their cycles at the same time; and what it published."""

    def __init__(self, folder: Path, clock: VirtualClock, bad: dict[str, Any] | None = None) -> None:
        self.path, self.bad = folder / "memory.db", bad or {}
        self.agent = Agent(plan=self.plan, reflect=self.reflect, memory=Memory(f"sqlite:///{self.path}"), clock=clock)
        self.ended, self.sent = list[RunEnded](), list[MessageSent]()
        self.errors: list[ErrorOccurred] = []
        self.agent.events.subscribe(RunEnded, self.ended.append)
        self.agent.events.subscribe(MessageSent, self.sent.append)
        self.agent.events.subscribe(ErrorOccurred, self.errors.append)

    async def plan(self, perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run is None:
            return None
        await asyncio.sleep(1.0)  # virtual: all cycles end at once, and their rows are in one batch
        return Action(output=f"to {context.session}")

    async def reflect(self, result: ActionResult, context: Context) -> Reflection:
        fields = self.bad if context.session == BAD else {}
        experience = Experience("s", origin=context.cycle_id, session=context.session, key=context.session, **fields)
        return Reflection(result, experiences=(experience,))


async def served(house: House, clock: VirtualClock) -> list[str]:
    """Send a message to each session; return how the runs ended."""
    runs = [await house.agent.submit("go", session=session) for session in SESSIONS]
    await clock.sleep(30.0)
    return [(await house.agent.wait(run.run_id, 0)).status for run in runs]


async def kept(house: House) -> tuple[Counter[str], Counter[str]]:
    """Return the cycles and the experiences in the memory, by session."""
    memory = house.agent.memory
    cycles = await memory.cycles(limit=1_000)
    return Counter(each["session"] for each in cycles), Counter(each.session for each in await memory.recall("", 1_000))


async def nothing_is_repeated(house: House, clock: VirtualClock) -> None:
    """Start a new process on the memory: no run is answered or ended again."""
    cycles = (await kept(house))[0]
    await house.agent.stop()
    again = House(house.path.parent, clock)
    async with again.agent:
        await clock.sleep(60.0)
        assert (again.ended, again.sent, again.errors) == ([], [], [])
        assert (await kept(again))[0] == cycles


async def test_a_number_that_no_column_holds_ends_no_other_session(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(tmp_path, clock, {"score": 10**20})
    async with house.agent:
        assert await served(house, clock) == ["ok"] * 12
        assert house.agent.state == "running"
        assert Counter(event.run_id for event in house.ended).most_common(1)[0][1] == 1
        (error,) = house.errors
        assert (error.phase, error.session, error.policy) == ("reflect", BAD, "continue")
        assert "House.reflect must keep to the fields of Experience: score must be a finite number or None" in (
            error.error.message
        )
        assert "found int (100000000000000000000)" in error.error.message
        assert await kept(house) == (Counter(SESSIONS), Counter(SESSIONS))  # the failed one is recorded by its calls
        await nothing_is_repeated(house, clock)


async def test_a_row_that_the_database_refuses_is_an_error_of_its_own_cycle_alone(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = House(tmp_path, clock)
    async with house.agent:
        with apsw.Connection(str(house.path)) as other:
            other.execute(
                f"CREATE TRIGGER refuses BEFORE INSERT ON experience WHEN new.session = '{BAD}' "
                "BEGIN SELECT RAISE(ABORT, 'no such thing'); END"
            )
        other.close()
        assert await served(house, clock) == ["ok"] * 12
        assert house.agent.state == "running"
        assert (len(house.ended), len(house.sent)) == (12, 12)
        (error,) = house.errors
        assert (error.phase, error.session, error.error.retryable) == ("reflect", BAD, False)
        assert "House.reflect" in error.error.part
        assert "no such thing" in error.error.message
        assert house.agent.stats.errors_by_phase["reflect"] == 1
        record = await house.agent.memory.cycle(error.cycle_id)
        assert record.outcome == "failed"
        assert [fault.message for fault in record.faults] == [error.error.message]
        assert await kept(house) == (Counter(SESSIONS), Counter(SESSIONS) - Counter([BAD]))
        await nothing_is_repeated(house, clock)


class Careless:
    """A sensor whose cursor, and the keys of whose rows, cannot be stored."""

    async def open(self, ctx: SensorContext) -> None:
        ctx.push(Perception("seen"))
        ctx.checkpoint(object())
        ctx.rows.drop(5)  # type: ignore[arg-type]
        ctx.rows.keep("x" * 65_000, 1)
        ctx.rows.drop("x" * 200_000)
        ctx.rows.keep("good", 1)


async def test_what_a_sensor_cannot_keep_is_an_error_of_sense_that_names_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    planned: list[str] = []

    async def plan(perceptions: Sequence[Perception]) -> None:
        planned.extend(perception.text for perception in perceptions)

    memory = Memory(f"sqlite:///{tmp_path}/memory.db")
    agent = Agent(sense=Sense([SensorSpec("eye", Careless())]), plan=plan, memory=memory, clock=clock)
    errors = heard(agent, ErrorOccurred)
    async with agent:
        await clock.sleep(30.0)
        assert agent.state == "running"
        assert sorted(await memory.rows("sensor:main:eye")) == ["good", "x" * 65_000]

    assert planned == ["seen"]
    assert [(error.phase, error.error.part, error.policy) for error in errors] == [
        ("sense", "cursor:main:eye", "continue"),
        ("sense", "sensor:main:eye", "continue"),
        ("sense", "sensor:main:eye", "continue"),
    ]
    cursor, number, long = (error.error.message for error in errors)
    assert "state 'cursor:main:eye' cannot be kept: a object cannot be kept" in cursor
    assert "a key of 'sensor:main:eye' must be text, found 5" in number
    assert "a key of 'sensor:main:eye' is longer than 65536 characters" in long
