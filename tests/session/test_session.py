"""Sessions: lanes of one agent, each with a loop of its own, that do not disturb one another."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from spar import Action, Agent, Context, Perception
from spar.agent.submission import SESSIONS_LIMIT
from spar.errors import InboxFullError
from spar.testing import Hang, ScriptedSense, VirtualClock


class Busy:
    """A planner that takes a while and notes who is planned for when; one request for each perception."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.running: defaultdict[str, int] = defaultdict(int)
        self.most_in_one = self.most_at_once = 0
        self.seen: defaultdict[str, list[str]] = defaultdict(list)

    async def plan(self, perceptions: list[Perception], context: Context) -> Action | None:
        session = context.session
        self.running[session] += 1
        self.most_in_one = max(self.most_in_one, self.running[session])
        self.most_at_once = max(self.most_at_once, sum(self.running.values()))
        self.seen[session].extend(perception.text for perception in perceptions)
        await asyncio.sleep(self.seconds)
        self.running[session] -= 1
        return Action(output=session) if context.run else None


async def test_sessions_turn_side_by_side_and_each_one_cycle_at_a_time(clock: VirtualClock) -> None:
    planner = Busy()
    async with Agent(plan=planner, clock=clock) as agent:
        receipts = [await agent.submit(f"{n}", session=name) for n in range(3) for name in ("a", "b", "main")]
        statuses = [await agent.wait(receipt.run_id) for receipt in receipts]

    assert {status.status for status in statuses} == {"ok"}
    assert [status.output for status in statuses[:3]] == ["a", "b", "main"]
    assert planner.most_in_one == 1
    assert planner.most_at_once == 3
    assert planner.seen == {"a": ["0", "1", "2"], "b": ["0", "1", "2"], "main": ["0", "1", "2"]}


async def test_what_is_pushed_goes_to_the_lane_of_its_session(clock: VirtualClock) -> None:
    planner = Busy()
    async with Agent(plan=planner, clock=clock, loop_interval="off") as agent:
        agent.push(Perception("for main"))
        agent.push(Perception("for a", session="a"))
        agent.push(Perception("for b", session="b"))
        await asyncio.sleep(5.0)

    assert planner.seen == {"main": ["for main"], "a": ["for a"], "b": ["for b"]}


async def test_what_is_pushed_again_while_it_waits_is_planned_once_and_afterwards_anew(clock: VirtualClock) -> None:
    planner, knock = Busy(), Perception("knock", session="a")
    async with Agent(plan=planner, clock=clock, loop_interval="off") as agent:
        assert (agent.push(knock), agent.push(knock)) == (True, True)
        assert agent.recovery.snapshot()["repeated"] == 1
        await asyncio.sleep(5.0)
        assert planner.seen == {"a": ["knock"]}
        agent.push(knock)
        await asyncio.sleep(5.0)

    assert planner.seen == {"a": ["knock", "knock"]}


async def test_only_the_standing_lane_polls(clock: VirtualClock) -> None:
    sense = ScriptedSense([["noticed"]])
    planner = Busy()
    async with Agent(sense=sense, plan=planner, clock=clock, loop_interval="off") as agent:
        agent.push(Perception("knock", session="a"))
        agent.wake()
        await asyncio.sleep(5.0)

    assert sense.calls == 1
    assert planner.seen == {"main": ["noticed"], "a": ["knock"]}


async def test_what_was_pushed_comes_by_priority(clock: VirtualClock) -> None:
    planner = Busy()
    async with Agent(plan=planner, clock=clock) as agent:
        for text, priority in (("low", 0.1), ("high", 0.9), ("middle", 0.5)):
            agent.push(Perception(text, session="a", priority=priority))
        await asyncio.sleep(2.0)

    assert planner.seen["a"] == ["high", "middle", "low"]


async def test_a_lane_with_nothing_left_to_do_is_gone_and_comes_back_when_needed(clock: VirtualClock) -> None:
    async with Agent(plan=Busy(), clock=clock) as agent:
        await asyncio.sleep(0.5)
        before = asyncio.all_tasks()
        for _ in range(2):
            receipt = await agent.submit("hello", session="guest")
            assert "guest" in agent.sessions.by_key
            assert (await agent.wait(receipt.run_id)).status == "ok"
            await asyncio.sleep(1.0)
            assert set(agent.sessions.by_key) == {"main"}
            assert asyncio.all_tasks() == before


@pytest.mark.parametrize("learning", ["on", "observe", "off"])
async def test_modules_are_told_whether_decisions_go_by_what_was_learnt(clock: VirtualClock, learning: str) -> None:
    told = []

    async def plan(perceptions: list[Perception], context: Context) -> Action | None:
        told.append(context.learning)
        return Action(output="done")

    async with Agent(plan=plan, clock=clock, settings={"memory": {"learning": learning}}) as agent:
        receipt = await agent.submit("hello")
        await agent.wait(receipt.run_id, timeout=5.0)

    assert set(told) == {learning}


async def test_a_hung_session_does_not_stop_the_others(clock: VirtualClock) -> None:
    hang = Hang()

    async def plan(perceptions: list[Perception], context: Context) -> Action | None:
        if context.session == "hung":
            await hang.wait()
        return Action(output="done")

    agent = Agent(plan=plan, clock=clock, settings={"agent": {"phases": {"plan": {"timeout": 0}}}})
    with hang:
        async with agent:
            await agent.submit("hello", session="hung")
            receipt = await agent.submit("hello", session="well")

            assert (await agent.wait(receipt.run_id, timeout=5.0)).status == "ok"
            assert hang.waiting == 1
            before = agent.stats.total_cycles
            await asyncio.sleep(10.0)
            assert agent.stats.total_cycles > before + 5
            await agent.stop(deadline=0.0)


async def test_pause_and_stop_govern_all_lanes(clock: VirtualClock) -> None:
    planner = Busy(5.0)
    agent = Agent(plan=planner, clock=clock)
    await agent.start()
    for name in ("a", "b"):
        await agent.submit("one", session=name)
        await agent.submit("two", session=name)
    await asyncio.sleep(1.0)

    await agent.pause()

    assert clock.elapsed == pytest.approx(5.0, abs=0.1)
    assert planner.seen == {"a": ["one"], "b": ["one"]}
    await asyncio.sleep(100.0)
    assert planner.seen == {"a": ["one"], "b": ["one"]}
    await agent.resume()
    await asyncio.sleep(6.0)
    assert planner.seen == {"a": ["one", "two"], "b": ["one", "two"]}
    await agent.stop()


async def test_a_full_session_refuses_and_the_others_do_not(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)
    for number in range(1000):
        agent.push(Perception(str(number), session="full"))

    with pytest.raises(InboxFullError, match="session 'full' already has 1000 messages waiting"):
        await agent.submit("one more", session="full")
    await agent.submit("welcome", session="other")


async def test_there_is_an_end_to_how_many_sessions_may_wait(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)
    for number in range(SESSIONS_LIMIT):
        assert agent.push(Perception("hello", session=f"guest {number}"))

    with pytest.raises(InboxFullError, match="sessions already wait"):
        await agent.submit("hello", session="one too many")
    assert agent.push(Perception("x", session="another")) is False
    await agent.submit("hello", session="guest 0")


async def test_a_refused_message_makes_no_lane(clock: VirtualClock) -> None:
    from spar import Decision

    agent = Agent(clock=clock)

    @agent.hook("message_received")
    async def refuse(ctx: Any) -> Decision:
        return Decision.deny("no strangers")

    with pytest.raises(PermissionError, match="no strangers"):
        await agent.submit("hello", session="stranger")

    assert "stranger" not in agent.sessions.by_key
    assert agent.runs.open == 0
