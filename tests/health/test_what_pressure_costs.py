"""What an agent that is not well does with what it is given, and what can be read of it."""

from __future__ import annotations

from typing import Any

import pytest

from spar import Agent
from spar.errors import NoRoomError
from spar.health.resources import Pressure, ResourceBounds
from spar.hooks import FAILURES_UNTIL_OFF, HookContext, Hooks
from spar.runs.runs import KEPT
from spar.service.app import describe
from spar.testing import ScriptedSense, VirtualClock
from spar.types import Perception


def full(agent: Agent, free: int) -> None:
    pressure = agent.health.pressure = Pressure(ResourceBounds(min_free_disk=1000))
    pressure.take_disk(free, 10_000)


async def test_while_the_disk_is_full_nothing_new_is_accepted_and_everybody_is_told(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)
    async with agent:
        full(agent, 10)
        with pytest.raises(NoRoomError, match="nothing new is accepted until there is room"):
            await agent.submit("hello")
        assert not agent.push(Perception("x"))
        assert agent.refused == 1
        full(agent, 5000)
        assert (await agent.submit("hello")).run_id
        assert agent.push(Perception("x"))


async def test_a_phase_that_was_cancelled_is_a_step_that_can_be_read(clock: VirtualClock) -> None:
    async def plan(perceptions: Any) -> None:
        await clock.sleep(1000)

    settings = {"agent": {"phases": {"plan": {"timeout": 5.0}}}}
    agent = Agent(sense=ScriptedSense(["x"], then=None), plan=plan, settings=settings, clock=clock)
    async with agent:
        await clock.sleep(10)
        assert [step.step for step in describe(agent)["health"]["steps"]] == ["cancel"]


async def test_a_handler_that_is_turned_off_is_a_step_too(clock: VirtualClock) -> None:
    from spar.events import Event

    agent = Agent(loop_interval=1.0, clock=clock)

    def broken(event: Event) -> None:
        raise RuntimeError("no")

    agent.events.subscribe(Event, broken)
    async with agent:
        await clock.sleep(30)
        assert [step.step for step in agent.health.snapshot()["steps"]] == ["quarantine"]


async def test_a_hook_that_keeps_failing_is_asked_no_more_unless_it_guards() -> None:
    hooks, asked = Hooks(), []

    def broken(ctx: HookContext) -> None:
        asked.append(ctx.point)
        raise RuntimeError("no")

    for point in ("before_cycle", "before_call"):
        hooks.add(point, broken)
    for _ in range(2 * FAILURES_UNTIL_OFF):
        assert not (await hooks.run(HookContext("before_cycle", "main"))).denied
        assert (await hooks.run(HookContext("before_call", "main"))).denied
    assert asked.count("before_cycle") == FAILURES_UNTIL_OFF
    assert asked.count("before_call") == 2 * FAILURES_UNTIL_OFF
    assert len(hooks.off) == 1
    assert "before_cycle" not in hooks.used


async def test_for_want_of_memory_most_runs_that_ended_are_forgotten(clock: VirtualClock) -> None:
    agent = Agent(clock=clock, loop_interval=0)
    async with agent:
        ids = [(await agent.submit(f"message {number}", session=f"s{number % 8}")).run_id for number in range(1500)]
        for run_id in ids:
            await agent.wait(run_id, 60)
        assert agent.runs.shed() == 1500 - KEPT // 10
        assert (await agent.wait(ids[-1], 0)).status == "ok"
        with pytest.raises(LookupError):
            await agent.wait(ids[0], 0)
