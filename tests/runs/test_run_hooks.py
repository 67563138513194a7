"""The hooks around a run: who may forbid it, who is told how it ended; and the points that are not asked yet."""

from __future__ import annotations

from typing import Any

from spar import Action, Agent, Decision, RunStatus
from spar.hooks import HookContext
from spar.testing import VirtualClock


async def answer(perceptions: Any) -> Action | None:
    return Action(output=f"heard {perceptions[0].text}") if perceptions else None


async def test_a_run_that_a_hook_forbids_ends_with_its_reason_and_is_never_planned(clock: VirtualClock) -> None:
    planned: list[str] = []

    async def plan(perceptions: Any) -> None:
        planned.extend(perception.text for perception in perceptions)

    agent = Agent(plan=plan, clock=clock)

    @agent.hook("before_run")
    async def not_today(ctx: HookContext) -> Decision | None:
        return Decision.deny("not today") if "secret" in ctx.value.text else None

    async with agent:
        refused = await agent.submit("the secret one")
        allowed = await agent.submit("the other one")
        first, second = await agent.wait(refused.run_id), await agent.wait(allowed.run_id)

    assert (first.status, first.error) == ("error", "not today")
    assert second.status == "ok"
    assert planned == ["the other one"]


async def test_a_hook_is_told_once_how_each_run_ended(clock: VirtualClock) -> None:
    told: list[tuple[str | None, RunStatus]] = []
    agent = Agent(plan=answer, clock=clock)

    @agent.hook("after_run")
    async def note(ctx: HookContext) -> None:
        told.append((ctx.run_id, ctx.value))

    async with agent:
        receipt = await agent.submit("hello")
        await agent.wait(receipt.run_id)
        await clock.sleep(5)

    assert [(run_id, status.status, status.output) for run_id, status in told] == [
        (receipt.run_id, "ok", "heard hello")
    ]


async def test_a_failing_run_hook_lets_the_run_go_on(clock: VirtualClock) -> None:
    agent = Agent(plan=answer, clock=clock)

    @agent.hook("before_run")
    async def broken(ctx: HookContext) -> None:
        raise OSError("no")

    async with agent:
        receipt = await agent.submit("hello")
        status = await agent.wait(receipt.run_id)

    assert (status.status, status.output) == ("ok", "heard hello")
