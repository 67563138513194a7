"""A run that does the same again and again is told so, and ended when it goes on like that."""

from __future__ import annotations

from typing import Any

from spar import Action, Agent, Call, Context, tool
from spar.events import RepetitionNoticed, RunEnded
from spar.testing import ScriptedPlanner, VirtualClock


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


async def test_an_answer_is_taken_even_if_it_comes_with_the_same_call_again(clock: VirtualClock) -> None:
    same = Call("look", {"at": "door"})
    planner = ScriptedPlanner([same, same, same, Action([same], output="still closed")])
    async with Agent(plan=planner, tools=[look_closed], clock=clock, loop_interval="off") as agent:
        status = await agent.wait((await agent.submit("is it open?")).run_id, 60)

    assert (status.status, status.output) == ("ok", "still closed")
