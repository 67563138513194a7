"""A run that does the same again and again is told so, and ended when it goes on like that."""

from __future__ import annotations

import itertools
from typing import Any

from spar import Action, Agent, Call, Context, tool
from spar.events import RepetitionNoticed, RunEnded
from spar.hooks import Decision
from spar.testing import ScriptedPlanner, VirtualClock

PLAN_ALWAYS = {"agent": {"plan_when_idle": True}}


@tool(name="look")
def look_closed(at: str) -> str:
    """Look at something."""
    return f"the {at} is closed"


def guard_messages(context: Context | None) -> list[dict[str, Any]]:
    assert context is not None
    assert context.run is not None
    return [message["data"] for message in context.run.messages if message.get("kind") == "guard"]


async def test_a_run_that_keeps_asking_the_same_is_told_and_then_ended(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([Call("look", {"at": "door"})])
    agent = Agent(plan=planner, tools=[look_closed], clock=clock, loop_interval="off")
    noticed: list[RepetitionNoticed] = []
    ended: list[RunEnded] = []
    agent.events.subscribe(RepetitionNoticed, noticed.append)
    agent.events.subscribe(RunEnded, ended.append)

    async with agent:
        receipt = await agent.submit("is it open?")
        status = await agent.wait(receipt.run_id, 60)

    assert status.status == "error"
    assert status.error.startswith("no_progress: look gave the same for the same parameters 4 times")
    assert len(planner.seen) == 4
    assert [len(guard_messages(context)) for context in planner.contexts] == [0, 0, 0, 1]
    assert "do something else" in guard_messages(planner.contexts[3])[0]["message"]
    assert [(event.run_id, event.times) for event in noticed] == [(receipt.run_id, 3), (receipt.run_id, 4)]
    assert [event.run_id for event in ended] == [receipt.run_id]


async def test_a_planner_that_listens_to_the_notice_comes_to_its_end(clock: VirtualClock) -> None:
    async def plan(perceptions: Any, context: Context) -> Action:
        return Action(output="still closed") if guard_messages(context) else Action([Call("look", {"at": "door"})])

    async with Agent(plan=plan, tools=[look_closed], clock=clock, loop_interval="off") as agent:
        status = await agent.wait((await agent.submit("is it open?")).run_id, 60)

    assert (status.status, status.output) == ("ok", "still closed")


async def test_asking_until_the_answer_is_another_one_goes_on(clock: VirtualClock) -> None:
    progress = itertools.count()

    def look(at: str) -> str:
        return f"{next(progress)} % done"

    planner = ScriptedPlanner([*[Call("look", {"at": "job"})] * 20, Action(output="done")])
    async with Agent(plan=planner, tools=[look], clock=clock, loop_interval="off") as agent:
        status = await agent.wait((await agent.submit("wait for it")).run_id, 60)

    assert (status.status, status.output, len(planner.seen)) == ("ok", "done", 21)


async def test_the_same_call_with_other_work_in_between_goes_on(clock: VirtualClock) -> None:
    def work(step: int) -> int:
        return step

    steps = [[Call("look", {"at": "door"})] if n % 2 else [Call("work", {"step": n})] for n in range(20)]
    planner = ScriptedPlanner([*steps, Action(output="done")])
    async with Agent(plan=planner, tools=[look_closed, work], clock=clock, loop_interval="off") as agent:
        status = await agent.wait((await agent.submit("build it")).run_id, 60)

    assert (status.status, status.output) == ("ok", "done")


async def test_many_equal_calls_in_one_plan_and_equal_plans_of_many_runs_are_fine(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([[Call("look", {"at": "door"}) for _ in range(50)], Action(output="done")] * 6)
    async with Agent(plan=planner, tools=[look_closed], clock=clock, loop_interval="off") as agent:
        statuses = [await agent.wait((await agent.submit(f"again {n}")).run_id, 60) for n in range(6)]

    assert {status.status for status in statuses} == {"ok"}


async def test_an_answer_is_taken_even_if_it_comes_with_the_same_call_again(clock: VirtualClock) -> None:
    same = Call("look", {"at": "door"})
    planner = ScriptedPlanner([same, same, same, Action([same], output="still closed")])
    async with Agent(plan=planner, tools=[look_closed], clock=clock, loop_interval="off") as agent:
        status = await agent.wait((await agent.submit("is it open?")).run_id, 60)

    assert (status.status, status.output) == ("ok", "still closed")


async def test_what_belongs_to_no_run_may_be_the_same_for_ever(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([Call("look", {"at": "door"})])
    agent = Agent(plan=planner, tools=[look_closed], clock=clock, loop_interval=1.0, settings=PLAN_ALWAYS)
    async with agent:
        await clock.sleep(20)

        assert agent.stats.failed_cycles == 0
        assert len(planner.seen) >= 15


async def test_a_hook_before_a_call_ends_the_run_in_the_same_way(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([Call("look", {"at": "door"})])
    agent = Agent(plan=planner, tools=[look_closed], clock=clock, loop_interval="off")
    agent.hooks.add("before_call", lambda ctx: Decision.stop_run("out of bounds"))
    async with agent:
        status = await agent.wait((await agent.submit("is it open?")).run_id, 60)

    assert (status.status, status.error, len(planner.seen)) == ("error", "out of bounds", 1)
