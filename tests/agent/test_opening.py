"""A part is opened and closed by one task, whoever asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvloop

from memory import Memory
from spar import Action, Agent, Call, ConfigError, Perception
from spar.agent.lifespan import Opening
from spar.events import HealthAlert
from spar.observe import logs
from spar.testing import Hang, VirtualClock


class Part:
    def __init__(
        self, opening: Callable[[], Awaitable[Any]] | None = None, closing: Callable[[], Awaitable[Any]] | None = None
    ) -> None:
        self.opening, self.closing = opening, closing
        self.log: list[str] = []
        self.tasks: list[Any] = []

    async def __aenter__(self) -> Part:
        self.tasks.append(asyncio.current_task())
        self.log.append("opening")
        if self.opening is not None:
            await self.opening()
        self.log.append("open")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.tasks.append(asyncio.current_task())
        self.log.append("closing")
        if self.closing is not None:
            await self.closing()
        self.log.append("closed")


async def test_a_memory_that_cannot_be_opened_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told: list[Any] = []
    logs.direct(lambda level, name, message, fields, error: told.append((level, message)))
    try:
        with pytest.raises(ConfigError, match="cannot be opened"):
            await Agent(plan=lambda perceptions: None, memory=Memory(f"sqlite:///{tmp_path}/file/memory.db")).start()
    finally:
        logs.direct(None)
    assert told == []


async def test_a_part_that_ignores_that_its_opening_was_called_off_is_left(clock: VirtualClock) -> None:
    with Hang(ignore_cancel=True) as hang:
        opening = Opening(Part(opening=hang.wait), "part")

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(opening.open(), 3.0)

        assert clock.elapsed < 6.0


@pytest.mark.parametrize("ignores", [False, True])
async def test_a_part_that_hangs_in_closing_is_cancelled_and_given_up(ignores: bool, clock: VirtualClock) -> None:
    with Hang(ignore_cancel=ignores) as hang:
        opening = Opening(Part(closing=hang.wait), "part")
        await opening.open()

        error = await opening.close(4.0)

        assert str(error) == "part did not close within 4 s"
        assert hang.cancelled >= 1
        assert clock.elapsed == pytest.approx(4.0, abs=1.0)


class Group:
    """Holds a task group open, whose child fails after a while."""

    def __init__(self, *, swallows: bool = False) -> None:
        self.swallows = swallows

    async def __aenter__(self) -> Group:
        self.group = anyio.create_task_group()
        await self.group.__aenter__()
        self.group.start_soon(self.child)
        return self

    async def child(self) -> None:
        await anyio.sleep(1.0)
        raise ValueError("child broke")

    async def __aexit__(self, *exc: Any) -> bool | None:
        try:
            return await self.group.__aexit__(*exc)
        except ExceptionGroup:
            if self.swallows:
                return True
            raise


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_part_that_ends_by_itself_is_told_once_and_can_be_opened_again(
    swallows: bool, clock: VirtualClock
) -> None:
    lost: list[BaseException] = []
    opening = Opening(Group(swallows=swallows), "group", lambda _, error: lost.append(error))
    await opening.open()

    await asyncio.sleep(2.0)

    assert len(lost) == 1
    assert isinstance(lost[0], RuntimeError if swallows else ExceptionGroup)
    assert not opening.is_open
    await opening.open()
    assert opening.is_open
    await asyncio.sleep(2.0)
    assert await opening.close() is None
    assert len(lost) == 2


def test_it_is_not_open_any_more_when_its_event_loop_is_gone() -> None:
    part = Part()
    opening = Opening(part, "part")

    asyncio.run(opening.open())

    assert not opening.is_open
    assert part.log == ["opening", "open", "closing", "closed"]

    async def again() -> None:
        await opening.open()
        assert opening.is_open
        assert await opening.close() is None

    asyncio.run(again())
    assert part.log == ["opening", "open", "closing", "closed"] * 2


# -- everything runs on uvloop as well: the loop, its deadlines, hand-overs, streams, threads


def on_uvloop(work: Any) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def test_an_agent_cycles_calls_tools_and_stops_on_uvloop() -> None:
    def double(n: int) -> int:
        return 2 * n

    async def sense() -> list[Perception]:
        return [Perception("x")]

    async def plan(perceptions: Any) -> Any:
        yield Call("double", {"n": 21}, output_path="†state.answer")

    async def main() -> Any:
        async with Agent(sense=sense, plan=plan, tools=[double], loop_interval=0.01) as agent:
            while agent.stats.outcomes["acted"] < 3:
                await asyncio.sleep(0.01)
        result = await agent.step_act(Action(calls=[Call("double", {"n": 4})]))
        await agent.stop()
        return result.results[0].output

    assert on_uvloop(main()) == 8


def test_a_phase_that_ignores_its_cancellation_is_left_behind_on_uvloop() -> None:
    released = False

    async def sense() -> None:
        while not released:
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                pass

    async def main() -> list[str]:
        nonlocal released
        limits = {"agent": {"phases": {"sense": {"timeout": 0.05, "grace": 0.05}}}}
        agent = Agent(sense=sense, loop_interval=0.01, settings=limits)
        alerts: list[str] = []
        agent.events.subscribe(HealthAlert, lambda event: alerts.append(event.kind))
        async with agent:
            until = time.monotonic() + 30
            while agent.stats.failed_cycles < 2 and time.monotonic() < until:
                await asyncio.sleep(0.01)
            released = True
        return alerts

    assert "stuck" in on_uvloop(main())
