"""An opening that fails or is called off, and an agent on uvloop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from memory import Memory
from spar import Action, Agent, Call, ConfigError, Perception
from spar.agent.lifespan import Opening
from spar.events import HealthAlert
from spar.observe import logs
from spar.testing import Hang, VirtualClock


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

        @asynccontextmanager
        async def part() -> AsyncIterator[None]:
            await hang.wait()
            yield

        opening = Opening(part(), "part")

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(opening.open(), 3.0)

        assert clock.elapsed < 6.0


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
