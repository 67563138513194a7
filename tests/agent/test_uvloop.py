"""Everything runs on uvloop as well: the loop, its deadlines, hand-overs, streams, threads."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import uvloop

from spar import Action, Agent, Call, Perception
from spar.events import HealthAlert


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
