"""Calls that wait for a person longer than a cycle may: later cycles go on with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from memory import Memory
from spar import Action, Agent, Call, Context, ErrorOccurred, Perception
from spar.protocols.tools import tool
from spar.records.approvals import Approval, Approver
from spar.testing import VirtualClock
from spar.types import ActionResult, Reflection


class Done:
    """A tool that asks, what it did, and what reflection saw."""

    def __init__(self) -> None:
        self.did: list[Any] = []
        self.results: list[ActionResult] = []

    def executor(self, **approval: Any) -> Executor:
        @tool(approval="ask")
        async def act(what: Any = None) -> Any:
            self.did.append(what)
            return what

        @tool(safe_with_untrusted=True)
        async def note(what: Any = None) -> Any:
            self.did.append(what)
            return what

        return Executor([act, note], settings={"approval": {"hold": 1.0, **approval}})

    async def reflect(self, result: ActionResult) -> Reflection:
        self.results.append(result)
        return Reflection()

    def statuses(self) -> list[list[str]]:
        return [[f"{each.status} {each.reason}".strip() for each in result.results] for result in self.results]


def approver(agent: Agent) -> Approver:
    found: Approver = agent.setup.modules["act"].part.approvals
    return found


async def asked(agent: Agent, count: int = 1) -> list[Approval]:
    for _ in range(2000):
        if len(found := await approver(agent).list()) >= count:
            return list(found)[::-1]
        await asyncio.sleep(0.01)
    raise AssertionError("nobody was asked")


async def approve(agent: Agent, row: Approval) -> None:
    await approver(agent).decide(row.id, row.digest, "approve", by="alice")


async def plan_once(perceptions: list[Perception], context: Context) -> Action | None:
    """A call for each perception; a run ends with its first request."""
    if context.run is not None and context.run.number > 1:
        return None
    return Action(tuple(Call("act", {"what": each.text}, id="x") for each in perceptions[:1]))


def agent_of(done: Done, clock: VirtualClock, plan: Any = plan_once, **more: Any) -> Agent:
    act = more.pop("act", None) or done.executor()
    return Agent(plan=plan, act=act, reflect=done.reflect, clock=clock, loop_interval="off", **more)


async def test_a_parked_call_runs_in_the_cycle_after_the_answer_without_the_planner(clock: VirtualClock) -> None:
    done, planned = Done(), list[list[str]]()

    async def plan(perceptions: list[Perception], context: Context) -> Action | None:
        planned.append([each.text for each in perceptions])
        return await plan_once(perceptions, context)

    async with agent_of(done, clock, plan) as agent:
        agent.push(Perception("do it", trust="trusted"))
        (row,) = await asked(agent)
        await asyncio.sleep(5.0)
        assert done.statuses() == [["skipped parked"]]
        cycles = agent.stats.total_cycles
        await asyncio.sleep(60.0)
        assert agent.stats.total_cycles == cycles
        await approve(agent, row)
        await asyncio.sleep(1.0)

    assert done.did == ["do it"]
    assert done.statuses() == [["skipped parked"], ["ok"]]
    assert planned == [["do it"]]
    assert done.results[1].action is not None
    assert [each.kind for each in done.results[1].action.perceptions] == ["approval.approved"]


async def test_it_goes_on_together_with_what_is_planned_in_that_cycle(clock: VirtualClock) -> None:
    done = Done()

    async def plan(perceptions: list[Perception]) -> Action:
        assert all(each.source != "approval" for each in perceptions)
        text = perceptions[0].text
        return Action((Call("act" if text == "first" else "note", {"what": text}, id="x"),))

    async with agent_of(done, clock, plan) as agent:
        agent.push(Perception("first", trust="trusted"))
        (row,) = await asked(agent)
        await asyncio.sleep(5.0)
        await approve(agent, row)
        agent.push(Perception("second"))
        await asyncio.sleep(1.0)

    assert done.statuses() == [["skipped parked"], ["ok", "ok"]]
    assert [each.call.params["what"] for each in done.results[1].results] == ["first", "second"]
    assert sorted(done.did) == ["first", "second"]


async def test_it_goes_on_before_a_streamed_plan_and_when_the_planner_fails(clock: VirtualClock) -> None:
    done, errors = Done(), list[ErrorOccurred]()

    async def plan(perceptions: list[Perception]) -> AsyncIterator[Call]:
        text = perceptions[0].text
        if text == "fail":
            raise ValueError("no idea")
        yield Call("note" if text == "note" else "act", {"what": text}, id="x")

    async with agent_of(done, clock, plan) as agent:
        agent.events.subscribe(ErrorOccurred, errors.append)
        for text, then in (("one", "note"), ("two", "fail")):
            agent.push(Perception(text, trust="trusted"))
            (row,) = await asked(agent)
            await asyncio.sleep(5.0)
            await approve(agent, row)
            agent.push(Perception(then, trust="trusted"))
            await asyncio.sleep(1.0)

    assert sorted(done.did[:2]) == ["note", "one"]
    assert done.did[2:] == ["two"]
    assert [event.error.message for event in errors] == ["no idea"]


async def test_a_sessions_call_goes_on_in_its_session_though_its_lane_was_gone(clock: VirtualClock) -> None:
    done = Done()
    async with agent_of(done, clock) as agent:
        receipt = await agent.submit("do it", session="guest")
        (row,) = await asked(agent)
        status = await agent.wait(receipt.run_id)
        await asyncio.sleep(5.0)
        assert set(agent.sessions.by_key) == {"main"}
        await approve(agent, row)
        assert set(agent.sessions.by_key) == {"main", "guest"}
        await asyncio.sleep(1.0)
        assert set(agent.sessions.by_key) == {"main"}

    # The run has said all it had to say, and that something of it still waits.
    assert (row.session, row.run_id) == ("guest", receipt.run_id)
    assert status.status == "ok"
    assert [each["error"]["kind"] for each in status.errors] == ["parked"]
    assert row.id in status.errors[0]["error"]["message"]
    assert done.did == ["do it"]


async def test_an_aborted_runs_call_goes_on_no_more(clock: VirtualClock) -> None:
    done = Done()

    async def plan(perceptions: list[Perception], context: Context) -> Action | None:
        assert context.run is not None
        if context.run.number == 1:
            return Action((Call("act", {"what": 1}),))
        await asyncio.sleep(100.0)
        return None

    async with agent_of(done, clock, plan) as agent:
        receipt = await agent.submit("do it")
        (row,) = await asked(agent)
        await asyncio.sleep(5.0)
        await agent.abort(receipt.run_id)
        assert (await approver(agent).get(row.id)).status == "void"
        await asyncio.sleep(5.0)

    assert done.did == []


async def test_steps_show_what_goes_on_before_it_is_done(clock: VirtualClock) -> None:
    done = Done()
    agent = agent_of(done, clock)
    result = await agent.step_act(await agent.step_plan(Perception("do it", trust="trusted")))
    assert result.status == "partial"
    await approve(agent, (await asked(agent))[0])
    perceptions = await agent.step_sense()
    assert [each.kind for each in perceptions] == ["approval.approved"]
    action = await agent.step_plan()
    assert action is not None
    assert (action.goal, [call.tool for call in action.calls], done.did) == ("go on with act", ["act"], [])
    assert (await agent.step_act(action)).status == "ok"
    assert done.did == ["do it"]
    await agent.stop()


async def test_a_cycle_in_which_nobody_answered_costs_an_idle_agent_nothing(clock: VirtualClock) -> None:
    done = Done()
    act = done.executor()
    asked_for: list[str] = []
    real = act.resumable
    act.resumable = lambda session: asked_for.append(session) or real(session)  # type: ignore[method-assign,func-returns-value]
    async with Agent(plan=plan_once, act=act, clock=clock, loop_interval=1.0) as agent:
        await asyncio.sleep(100.0)
        assert agent.stats.total_cycles >= 99
    assert asked_for == []


async def test_an_agent_without_approval_settings_asks_nobody_and_does_not_look_at_trust(clock: VirtualClock) -> None:
    did: list[str] = []

    async def plain(text: str) -> None:
        did.append(text)

    async def plan(perceptions: list[Perception]) -> Action:
        return Action((Call("plain", {"text": perceptions[0].text}),), trust="untrusted")

    async with Agent(plan=plan, tools=[plain], clock=clock, loop_interval="off") as agent:
        agent.push(Perception("from outside"))
        await asyncio.sleep(1.0)
        assert agent.approvals.list(None) == []
    assert did == ["from outside"]


@pytest.mark.parametrize("how", ["asked for", "idle", "forgotten"])
async def test_a_call_that_waits_is_void_once_its_conversation_is_over(
    how: str, clock: VirtualClock, tmp_path: Path
) -> None:
    """It was planned from what was said before, and would run in a conversation that knows nothing of it."""
    done, memory = Done(), Memory(f"sqlite:///{tmp_path / 'm.db'}", ballast=0)
    settings = {"sessions": {"idle": 60.0}} if how == "idle" else None
    async with agent_of(done, clock, memory=memory, settings=settings) as agent:
        ended = [await agent.submit("transfer", session="alice"), await agent.submit("other", session="bob")]
        for receipt in ended:
            assert (await agent.wait(receipt.run_id, 600)).status != "timeout"
        rows = {each.session: each for each in await asked(agent, 2)}
        assert all(row.is_parked for row in rows.values())
        if how == "idle":
            await clock.sleep(120)
            await agent.submit("hello", session="alice")
        elif how == "forgotten":
            await agent.conversations.resets.forget("alice")
        else:
            await agent.reset("alice")
        (left,) = [each for each in await approver(agent).list() if each.id in {row.id for row in rows.values()}]
        assert left.session == "bob"
        await approve(agent, left)
        await clock.sleep(30)

    assert done.did == ["other"]


@pytest.mark.parametrize("is_asked_before", [True, False])
async def test_a_pause_waits_for_no_person(clock: VirtualClock, is_asked_before: bool) -> None:
    done, began, may_end = Done(), asyncio.Event(), asyncio.Event()

    async def plan(perceptions: list[Perception], context: Context) -> Action | None:
        calls = () if is_asked_before else (Call("work", id="w"),)
        return Action((*calls, Call("act", {"what": 1}, id="x", after=tuple(call.id for call in calls))))

    @tool(effect="read")
    async def work() -> None:
        began.set()
        await may_end.wait()

    act = Executor([*(entry.target for entry in done.executor().tools.values()), work],
                   settings={"approval": {"hold": 100.0}})  # fmt: skip
    async with agent_of(done, clock, plan, act=act) as agent:
        agent.push(Perception("do it", trust="trusted"))
        await (asked(agent) if is_asked_before else began.wait())
        before = clock.monotonic()
        pausing = asyncio.create_task(agent.pause())
        await asyncio.sleep(0)
        may_end.set()
        await pausing
        assert clock.monotonic() - before < 1.0
        assert (agent.state, done.statuses()[0][-1], done.did) == ("paused", "skipped parked", [])

        await agent.resume()
        (row,) = await asked(agent)
        await approve(agent, row)
        await asyncio.sleep(5.0)
        assert done.did == [1]
        await agent.pause()
        agent.push(Perception("again", trust="trusted"))
        await agent.resume()
        await asked(agent)
        await asyncio.sleep(5.0)
        assert len(done.statuses()) == 2  # the cycle waits again
