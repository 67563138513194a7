"""Runs under faults: whatever happens to one of them, its session is free again and nothing that was said is lost."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, Context, Perception, TransientError, tool
from spar.events import HealthAlert, RecoveryStep, RunEnded, RunStarted
from spar.testing import Hang, ScriptedPlanner, VirtualClock
from tests.doubles import heard

DONE = Action(output="done")


@tool(effect="read")
async def work(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "worked"


async def slow_plan(perceptions: list[Perception], context: Context) -> Action:
    """Thinks for a second, works for a second, thinks again, answers; what is urgent is answered at once."""
    if context.run.goal == "urgent":
        return Action(output="at once")
    await asyncio.sleep(1.0)
    return Action([Call("work", {"seconds": 1.0})]) if context.run.number == 1 else DONE


async def slow_reflect(result: Any) -> None:
    await asyncio.sleep(0.5)


def slow_agent(clock: VirtualClock, **more: Any) -> Agent:
    agent = Agent(plan=slow_plan, reflect=slow_reflect, tools=[work], clock=clock, loop_interval=0.1, **more)

    @agent.hook("before_call")
    async def look(ctx: Any) -> None:
        await asyncio.sleep(0.5)

    @agent.hook("before_run")
    async def greet(ctx: Any) -> None:
        await asyncio.sleep(0.25)

    @agent.hook("message_sending")
    async def read(ctx: Any) -> None:
        await asyncio.sleep(0.25)

    return agent


@pytest.mark.parametrize("is_kept", [False, True], ids=["", "with a journal"])
async def test_a_run_that_is_aborted_at_any_moment_leaves_its_session_free(
    clock: VirtualClock, tmp_path: Path, is_kept: bool
) -> None:
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}") if is_kept else None
    async with slow_agent(clock, memory=memory) as agent:
        for number in range(24):
            run = await agent.submit("go", session="chat")
            await clock.sleep(number * 0.25)
            began = clock.elapsed
            await agent.abort(run.run_id)
            assert clock.elapsed - began <= 2.0
            ended = await agent.wait(run.run_id, 0)
            assert (ended.status, ended.error or ended.output) in [("error", "aborted"), ("ok", "done")]
            urgent = await agent.submit("urgent", session="chat")
            assert (await agent.wait(urgent.run_id, 2.0)).output == "at once"
        assert ended.status == "ok"  # the last was late enough to end by itself


async def test_messages_that_waited_for_a_run_that_took_too_long_are_served_in_their_order(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([Hang(), DONE])
    agent = Agent(plan=planner, clock=clock, settings={"runs": {"timeout": 10.0}})
    starts = heard(agent, RunStarted)
    async with agent:
        runs = [await agent.submit(text) for text in ("one", "two", "three", "four")]
        answers = [await agent.wait(run.run_id, 60) for run in runs]

    assert [answer.status for answer in answers] == ["error", "ok", "ok", "ok"]
    assert answers[0].error == "took longer than 10 s"
    assert [start.run_id for start in starts] == [run.run_id for run in runs]


async def test_who_waits_hears_only_of_the_attempt_that_counts(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([TransientError("overloaded"), TransientError("overloaded"), DONE])
    async with Agent(plan=planner, clock=clock) as agent:
        ends = heard(agent, RunEnded)
        run = await agent.submit("go")
        answers = await asyncio.gather(*(agent.wait(run.run_id, 120) for _ in range(5)))

    assert {answer.status for answer in answers} == {"ok"}
    assert [end.status for end in ends] == ["ok"]


async def test_an_abort_is_acknowledged_when_all_that_the_run_started_has_settled(clock: VirtualClock) -> None:
    cleaned: list[str] = []

    @tool(effect="read")
    async def nested(name: str) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.2)  # cleaning up takes a moment
            cleaned.append(name)

    async def plan(perceptions: Any, context: Context) -> Action:
        return Action([Call("nested", {"name": name}) for name in "abc"])

    async with Agent(plan=plan, tools=[nested], clock=clock) as agent:
        run, queued = await agent.submit("go"), await agent.submit("later")
        await clock.sleep(1.0)
        await agent.abort(queued.run_id)
        await agent.abort(run.run_id)
        assert sorted(cleaned) == ["a", "b", "c"]
        assert (await agent.wait(queued.run_id, 0)).started_at is None
        assert agent.runs.open == 0


async def test_hundreds_of_short_runs_leave_no_lane_no_listener_and_no_task(clock: VirtualClock) -> None:
    async def plan(perceptions: Any) -> Action | None:
        return DONE if perceptions else None

    async with Agent(plan=plan, clock=clock, loop_interval="off") as agent:
        await agent.wait((await agent.submit("go")).run_id)
        subscriptions = len(agent.events.subscriptions)
        tasks = len(asyncio.all_tasks())
        for batch in range(5):
            runs = [await agent.submit("go", session=f"{batch}/{number}") for number in range(100)]
            for run in runs:
                assert (await agent.wait(run.run_id, 60)).status == "ok"
        await clock.sleep(1)
        gc.collect()
        assert set(agent.sessions.by_key) <= {"main"}
        assert len(agent.events.subscriptions) == subscriptions
        assert len(asyncio.all_tasks()) == tasks


async def test_a_loop_that_was_blocked_for_a_moment_recovers_nothing() -> None:
    import time

    async def plan(perceptions: Any) -> Action | None:
        if perceptions:
            time.sleep(1.0)  # noqa: ASYNC251 - it is the event loop that is blocked
        return DONE if perceptions else None

    agent = Agent(plan=plan, loop_interval=0.05, settings={"health": {"blocked_after": 5.0}})
    alerts: list[Any] = []
    agent.events.subscribe(HealthAlert, lambda event: alerts.append(event.kind))
    agent.events.subscribe(RecoveryStep, lambda event: alerts.append(event.step))
    async with agent:
        runs = [await agent.submit("go", session=name) for name in "ab"]
        assert [(await agent.wait(run.run_id, 30)).status for run in runs] == ["ok", "ok"]
        await asyncio.sleep(0.2)

    assert [alert for alert in alerts if alert in ("stuck", "cancel", "abandon", "restart")] == []
