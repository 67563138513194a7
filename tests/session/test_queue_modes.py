"""A message that comes while its session has a run: queued, steered into it, collected, in its place; and the cap."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, Context, Perception, tool
from spar.decisions.place import PLACES
from spar.events import MessageOutcome, RunEnded, RunStarted
from spar.records.runs import Receipt
from spar.testing import Hang, VirtualClock
from spar.types import QUEUE_MODES
from tests.doubles import heard

DONE = Action(output="done")


class Planner:
    """Works on each run for `turns` cycles of one second, then answers with what it was told of it."""

    def __init__(self, turns: int = 3) -> None:
        self.turns = turns
        self.heard: list[list[str]] = []
        self.contexts: list[Context] = []

    async def plan(self, perceptions: list[Perception], context: Context) -> Action | None:
        self.heard.append([perception.text for perception in perceptions])
        self.contexts.append(context)
        if context.run is None:
            return None
        if context.run.number < self.turns:
            return Action([Call("work", {"seconds": 1.0})])
        return Action(output=[context.run.goal, *(each.text for each in context.run.said)])


@tool(effect="read")
async def work(seconds: float) -> None:
    await asyncio.sleep(seconds)


def agent_of(clock: VirtualClock, plan: Any = None, **runs: Any) -> Agent:
    return Agent(plan=plan or Planner(), tools=[work], clock=clock, loop_interval=0.1, settings={"runs": runs})


async def all_of(agent: Agent, *texts: str, mode: str | None = None) -> list[Receipt]:
    return [await agent.submit(text, mode=mode) for text in texts]


def test_every_mode_has_a_place_for_a_busy_and_for_an_idle_session() -> None:
    assert set(PLACES) == {(mode, is_busy) for mode in QUEUE_MODES for is_busy in (False, True)}


# -- steer


async def test_a_steered_message_is_seen_by_the_next_request_of_the_run_and_ends_with_it(clock: VirtualClock) -> None:
    planner = Planner()
    agent = agent_of(clock, planner, queue_mode="steer")
    outcomes, starts, ends = heard(agent, MessageOutcome), heard(agent, RunStarted), heard(agent, RunEnded)
    async with agent:
        first = await agent.submit("build it")
        await clock.sleep(0.5)
        second = await agent.submit("in blue")
        status = await agent.wait(first.run_id)
        also = await agent.wait(second.run_id)

    assert status.output == also.output == ["build it", "in blue"]
    assert (status.outcome, also.outcome, also.status) == ("started", "steered", "ok")
    assert planner.heard[:2] == [["build it"], ["in blue"]]
    assert [each.run_id for each in starts] == [first.run_id]
    assert [each.run_id for each in ends] == [first.run_id, second.run_id]
    assert [(each.run_id == second.run_id, each.outcome) for each in outcomes] == [
        (False, "started"), (True, "queued"), (True, "steered"),
    ]  # fmt: skip


async def test_calls_that_have_not_started_are_skipped_and_what_runs_finishes(clock: VirtualClock) -> None:
    done: list[str] = []

    @tool(effect="read")
    async def step(name: str) -> str:
        await asyncio.sleep(1.0)
        done.append(name)
        return name

    async def plan(perceptions: list[Perception], context: Context) -> Action:
        if context.run.number == 1:
            names = ("a", "b", "c")
            return Action([Call("step", {"name": name}, id=name, after=names[at - 1 : at] if at else ())
                           for at, name in enumerate(names)])  # fmt: skip
        results = [(each.call.id, each.status, each.reason) for each in context.run.results[-1].results]
        return Action(output=[results, [perception.text for perception in perceptions]])

    agent = Agent(plan=plan, tools=[step], clock=clock, loop_interval=0.1, settings={"runs": {"queue_mode": "steer"}})
    async with agent:
        first = await agent.submit("go")
        await clock.sleep(0.5)
        await agent.submit("stop after this one")
        status = await agent.wait(first.run_id)

    assert done == ["a"]
    assert status.output == [
        [("a", "ok", ""), ("b", "skipped", "steered"), ("c", "skipped", "steered")],
        ["stop after this one"],
    ]


async def test_a_message_that_comes_while_the_plan_is_made_keeps_its_calls_from_starting(clock: VirtualClock) -> None:
    done: list[str] = []

    @tool(effect="once")
    async def pay() -> None:
        done.append("paid")

    async def plan(perceptions: list[Perception], context: Context) -> Action:
        await asyncio.sleep(1.0)
        return Action([Call("pay")]) if context.run.number == 1 else DONE

    agent = Agent(plan=plan, tools=[pay], clock=clock, loop_interval=0.1)
    async with agent:
        first = await agent.submit("pay")
        await clock.sleep(0.5)
        second = await agent.submit("no, do not", mode="steer")
        assert (await agent.wait(first.run_id)).output == "done"
        assert (await agent.wait(second.run_id)).outcome == "steered"

    assert done == []


async def test_a_steer_that_comes_too_late_is_a_run_of_its_own(clock: VirtualClock) -> None:
    planner = Planner(turns=1)
    agent = agent_of(clock, planner, queue_mode="steer")
    hang = Hang()

    @agent.hook("after_plan")
    async def late(ctx: Any) -> None:
        if not second:
            second.append(await agent.submit("and this"))
            hang.release()

    second: list[Receipt] = []
    async with agent:
        first = await agent.submit("only this")
        status = await agent.wait(first.run_id)
        later = await agent.wait(second[0].run_id)

    assert status.output == ["only this"]
    assert (later.output, later.outcome) == (["and this"], "started")


async def test_aborting_a_steered_message_leaves_the_run_that_heard_it_alone(clock: VirtualClock) -> None:
    agent = agent_of(clock, queue_mode="steer")
    async with agent:
        first = await agent.submit("build it")
        await clock.sleep(0.5)
        second = await agent.submit("in blue")
        await clock.sleep(1.0)
        await agent.abort(second.run_id)
        assert (await agent.wait(second.run_id, 0)).error == "aborted"
        assert (await agent.wait(first.run_id)).status == "ok"


# -- collect


async def test_collected_messages_become_one_run_once_nobody_says_more(clock: VirtualClock) -> None:
    planner = Planner(turns=2)
    agent = agent_of(clock, planner, queue_mode="collect", quiet=2.0)
    starts = heard(agent, RunStarted)
    async with agent:
        first = await agent.submit("one")
        await clock.sleep(0.1)
        others = []
        for text in ("two", "three", "four"):
            others.append(await agent.submit(text))
            await clock.sleep(1.0)
        answers = [await agent.wait(each.run_id) for each in (first, *others)]
        began = answers[1].started_at

    assert [answer.outcome for answer in answers] == ["started", "started", "collected", "collected"]
    assert answers[1].output == answers[2].output == answers[3].output
    assert [each.run_id for each in starts] == [first.run_id, others[0].run_id]
    assert began is not None
    resolution = timedelta(microseconds=1)  # of the times that are compared
    assert began - others[-1].accepted_at >= timedelta(seconds=2.0) - resolution
    text = next(texts[0] for texts in planner.heard if texts and "Queued" in texts[0])
    assert text == ("[Queued messages while agent was busy]\n---\nQueued #1\ntwo\n---\nQueued #2\nthree\n---\n"
                    "Queued #3\nfour")  # fmt: skip


async def test_who_has_other_rights_is_not_collected_with_the_rest(clock: VirtualClock) -> None:
    planner = Planner(turns=2)
    async with agent_of(clock, planner, queue_mode="collect") as agent:
        await agent.submit("one")
        await clock.sleep(0.1)
        trusted = await agent.submit("two")
        stranger = await agent.submit(Perception("three", kind="message", trust="untrusted"))
        answers = [await agent.wait(each.run_id) for each in (trusted, stranger)]

    assert [answer.output for answer in answers] == [["two"], ["three"]]
    assert [answer.outcome for answer in answers] == ["started", "started"]


@pytest.mark.parametrize("interval", [0, "off", 1.0])
async def test_a_session_that_collects_rests_until_it_is_quiet(clock: VirtualClock, interval: Any) -> None:
    planner = Planner(turns=1)
    agent = Agent(plan=planner, tools=[work], clock=clock, loop_interval=interval,
                  settings={"runs": {"queue_mode": "collect", "quiet": 2.0}})  # fmt: skip
    async with agent:
        _, second = [await agent.submit(text, session="chat") for text in ("one", "two")]
        answer = await agent.wait(second.run_id)

    assert answer.status == "ok"
    assert 2.0 <= clock.elapsed <= 4.0
    assert len(planner.heard) == 2


# -- interrupt


@pytest.mark.parametrize("session", ["main", "guest"])
async def test_of_a_burst_of_interrupting_messages_the_newest_counts_and_followups_keep_their_order_behind_it(
    session: str, clock: VirtualClock
) -> None:
    planner = Planner(turns=2)
    agent = agent_of(clock, planner)
    async with agent:
        told = []
        for text, mode in (("m1", "interrupt"), ("f1", "followup"), ("f2", "followup"), ("m2", "interrupt"),
                           ("m3", "interrupt"), ("m4", "interrupt"), ("f3", "followup")):  # fmt: skip
            told.append(await agent.submit(text, session=session, mode=mode))
            if text == "m1":
                await clock.sleep(0.5)
        ends = [await agent.wait(each.run_id, 60) for each in told]

    assert [each.status for each in ends] == ["error", "ok", "ok", "error", "error", "ok", "ok"]
    assert [each.error for each in ends[3:5]] == ["superseded", "superseded"]
    assert [each.started_at for each in ends[3:5]] == [None, None]
    goals = [context.run.goal for context in planner.contexts if context.run is not None]
    assert list(dict.fromkeys(goals)) == ["m1", "m4", "f1", "f2", "f3"]


async def test_an_interrupting_message_ends_the_run_in_hand_and_is_served_next(clock: VirtualClock) -> None:
    planner = Planner(turns=50)
    agent = agent_of(clock, planner)
    async with agent:
        first = await agent.submit("one")
        await clock.sleep(0.5)
        waiting = await agent.submit("two")
        planner.turns = 1
        urgent = await agent.submit("now", mode="interrupt")
        answers = [await agent.wait(each.run_id) for each in (first, waiting, urgent)]

    assert [(each.status, each.outcome) for each in answers] == [
        ("error", "started"), ("ok", "started"), ("ok", "started"),
    ]  # fmt: skip
    assert answers[0].error == "interrupted by a newer message"
    assert [texts for texts in planner.heard if texts] == [["one"], ["now"], ["two"]]


# -- too many


@pytest.mark.parametrize("mode", ["followup", "collect", "steer"])
async def test_of_too_many_the_oldest_are_summed_up_and_each_sender_is_told(clock: VirtualClock, mode: str) -> None:
    planner = Planner(turns=2)
    agent = agent_of(clock, planner, cap=20, queue_mode=mode)
    outcomes = heard(agent, MessageOutcome)
    async with agent:
        running = await agent.submit("first")
        await clock.sleep(0.1)
        receipts = await all_of(agent, *(f"message {number}" for number in range(25)))
        answers = [await agent.wait(receipt.run_id, 300) for receipt in receipts]
        assert (await agent.wait(running.run_id)).status == "ok"

    dropped = [answer for answer in answers if answer.outcome == "dropped"]
    assert answers[:5] == dropped
    assert {answer.status for answer in dropped} == {"error"}
    assert all("20 messages of its session waited (runs.cap)" in answer.error for answer in dropped)
    assert {answer.status for answer in answers[5:]} == {"ok"}
    assert sum(event.outcome == "dropped" for event in outcomes) == 5
    [summary] = [text for texts in planner.heard for text in texts if text.startswith("[Queue overflow]")]
    assert summary.splitlines() == ["[Queue overflow] Dropped 5 messages due to cap.",
                                    *(f"- message {number}" for number in range(5))]  # fmt: skip


# -- what the next process knows


@pytest.mark.parametrize("mode", ["steer", "collect"])
async def test_a_message_that_was_heard_in_a_run_is_not_served_again_by_the_next_process(
    tmp_path: Path, clock: VirtualClock, mode: str
) -> None:
    def agent_at(planner: Planner) -> Agent:
        memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
        return Agent(plan=planner, tools=[work], clock=clock, loop_interval=0.1, memory=memory,
                     settings={"runs": {"queue_mode": mode, "quiet": 0.1}})  # fmt: skip

    planner = Planner(turns=4)
    agent = agent_at(planner)
    await agent.start()
    receipts = [await agent.submit("zero")]
    await clock.sleep(0.1)
    receipts += await all_of(agent, "one", "two")
    while not any("two" in text for texts in planner.heard for text in texts):
        await clock.sleep(0.5)
    await agent.stop(deadline=0)

    second = Planner(turns=4)
    async with agent_at(second) as agent:
        answers = [await agent.wait(receipt.run_id, 60) for receipt in receipts]

    assert [answer.status for answer in answers] == ["ok", "ok", "ok"]
    assert answers[1].output == answers[2].output
    said = [text for texts in second.heard for text in texts]
    assert not any("two" in text for text in said)
