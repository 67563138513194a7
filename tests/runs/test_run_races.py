"""What is asked of a run in the very moment in which something else becomes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, Context, Decision, Perception, tool
from spar.data.json_safe import size_of
from spar.data.learning.abilities import MOST_ABILITIES
from spar.errors import NotReadyError
from spar.events import MessageSent, RunEnded, RunStarted
from spar.hooks import POINTS as KNOWN
from spar.loop.cycle import Cycle
from spar.records.runs import Receipt
from spar.records.transcript import Entry
from spar.testing import VirtualClock
from spar.types import Ability, Reflection
from tests.doubles import heard


@tool(effect="read")
async def work(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def answering(perceptions: list[Perception], context: Context) -> Action | None:
    """Works for a second on what begins with "work", then answers with what it was told."""
    if (run := context.run) is None:
        return None
    if run.goal.startswith("work") and run.number == 1:
        return Action([Call("work", {"seconds": 1.0})])
    return Action(output=[run.goal, *(each.text for each in run.said)])


def agent_of(clock: VirtualClock, memory: Any = None, **settings: Any) -> Agent:
    return Agent(plan=answering, tools=[work], clock=clock, loop_interval=0.1, memory=memory, settings=settings)


def kept(path: Path) -> Memory:
    return Memory(f"sqlite:///{path / 'memory.db'}")


# -- while people are being told


def asking(agent: Agent, seconds: float = 10.0) -> None:
    """People are told an answer only after a hook has looked at it for so long."""

    @agent.hook("message_sending")
    async def look(ctx: Any) -> Decision:
        await asyncio.sleep(seconds)
        return Decision.rewrite(f"{ctx.value}!")


@pytest.mark.parametrize("is_journalled", [False, True])
async def test_a_run_whose_answer_is_being_told_is_over_and_an_abort_waits_for_it(
    clock: VirtualClock, tmp_path: Path, is_journalled: bool
) -> None:
    agent = agent_of(clock, kept(tmp_path) if is_journalled else None)
    asking(agent)
    ends, told = heard(agent, RunEnded), heard(agent, MessageSent)
    async with agent:
        run = await agent.submit("hello", session="s")
        await clock.sleep(5.0)
        await agent.abort(run.run_id)
        status = await agent.wait(run.run_id, 0)

    assert (status.status, status.error) == ("ok", "")
    assert [each.status for each in ends] == ["ok"]
    assert [each.text for each in told] == [status.reply]
    if is_journalled:
        async with agent_of(clock, kept(tmp_path)) as later:
            assert (await later.wait(run.run_id)).reply == status.reply


async def test_a_hook_may_abort_the_run_whose_answer_it_looks_at_without_waiting_for_itself(
    clock: VirtualClock,
) -> None:
    agent = agent_of(clock)

    @agent.hook("message_sending")
    async def look(ctx: Any) -> None:
        await agent.abort(ctx.run_id)

    async with agent:
        run = await agent.submit("hello", session="s")
        assert (await agent.wait(run.run_id, 5.0)).status == "ok"


async def test_a_run_is_not_late_because_people_take_long_to_look_at_its_answer(clock: VirtualClock) -> None:
    agent = agent_of(clock, runs={"timeout": 5.0})
    asking(agent)
    async with agent:
        run = await agent.submit("hello", session="s")
        assert (await agent.wait(run.run_id)).status == "ok"


async def test_a_stop_that_cuts_the_telling_of_an_answer_leaves_nobody_waiting(clock: VirtualClock) -> None:
    agent = agent_of(clock)
    asking(agent)
    told = heard(agent, MessageSent)
    await agent.start()
    run = await agent.submit("hello", session="s")
    await clock.sleep(5.0)
    await agent.stop(deadline=1.0)

    status = await agent.wait(run.run_id, None)
    assert (status.status, status.output, agent.runs.open) == ("ok", ["hello"], 0)
    assert told == []


async def test_a_session_whose_answer_is_being_told_takes_messages_and_serves_them_after_it(
    clock: VirtualClock,
) -> None:
    agent = agent_of(clock)
    asking(agent)
    async with agent:
        first = await agent.submit("one", session="s")
        await clock.sleep(1.0)
        others = [await agent.submit(mode, session="s", mode=mode) for mode in ("steer", "interrupt", "followup")]
        ends = [await agent.wait(each.run_id, 60.0) for each in (first, *others)]

    assert [each.reply for each in ends] == ['["one"]!', '["steer"]!', '["interrupt"]!', '["followup"]!']


# -- what was said in a run that is gone


async def test_what_is_said_while_a_hook_refuses_a_run_is_served(clock: VirtualClock) -> None:
    agent = agent_of(clock)

    @agent.hook("before_run")
    async def refuse(ctx: Any) -> Decision | None:
        await asyncio.sleep(2.0)
        return Decision.deny("no") if ctx.value.text == "one" else None

    async with agent:
        first = await agent.submit("one", session="s")
        await clock.sleep(1.0)
        second = await agent.submit("two", session="s", mode="steer")
        assert (await agent.wait(first.run_id)).error == "no"
        assert (await agent.wait(second.run_id, 30.0)).output == ["two"]


async def test_what_is_said_in_a_run_that_a_hook_stops_is_served(clock: VirtualClock) -> None:
    agent = agent_of(clock)

    @agent.hook("before_reflect")
    async def stop(ctx: Any) -> Decision | None:
        if ctx.run_id == first[0].run_id:
            second.append(await agent.submit("two", session="s", mode="steer"))
            return Decision.stop_run("enough")
        return None

    first: list[Receipt] = []
    second: list[Receipt] = []
    async with agent:
        first.append(await agent.submit("work", session="s"))
        assert (await agent.wait(first[0].run_id)).error == "enough"
        assert (await agent.wait(second[0].run_id, 30.0)).output == ["two"]


async def test_what_a_run_has_heard_ends_with_it_when_it_is_interrupted_and_the_rest_is_served(
    clock: VirtualClock,
) -> None:
    agent = agent_of(clock)
    async with agent:
        first = await agent.submit("work", session="s")
        await clock.sleep(0.5)
        steered = await agent.submit("heard too late", session="s", mode="steer")
        newest = await agent.submit("rather this", session="s", mode="interrupt")
        ends = [await agent.wait(each.run_id, 30.0) for each in (first, steered, newest)]

    assert [each.status for each in ends] == ["error", "ok", "ok"]
    assert ends[0].error == "interrupted by a newer message"
    assert ends[2].output == ["rather this"]


POINTS = ("before_run", "before_sense", "before_plan", "after_plan", "before_act", "before_call",
          "after_call", "before_reflect", "after_reflect")  # fmt: skip


@pytest.mark.parametrize("is_journalled", [False, True])
@pytest.mark.parametrize("point", [point for point in POINTS if point in KNOWN])
async def test_a_run_that_is_called_off_while_a_hook_hangs_frees_its_session_at_once(
    clock: VirtualClock, tmp_path: Path, point: str, is_journalled: bool
) -> None:
    agent = agent_of(clock, kept(tmp_path) if is_journalled else None)
    hung: list[str] = []

    @agent.hook(point, timeout=60.0)
    async def hang(ctx: Any) -> None:
        if not hung and ctx.session == "s":
            hung.append(ctx.point)
            await asyncio.sleep(50.0)

    async with agent:
        first = await agent.submit("work", session="s")
        await clock.sleep(2.0)
        steered = await agent.submit("and this", session="s", mode="steer")
        await agent.abort(first.run_id)
        assert clock.elapsed < 5.0
        ends = [await agent.wait(each.run_id, 10.0) for each in (first, steered)]

    assert hung == [point]
    assert [(each.status, each.error) for each in ends] == [("error", "aborted"), ("ok", "")]
    assert agent.runs.open == 0


# -- while it stops, and after


async def test_a_run_of_a_stopped_agent_that_keeps_a_journal_is_not_called_off_and_goes_on_at_the_next_start(
    clock: VirtualClock, tmp_path: Path
) -> None:
    agent = agent_of(clock, kept(tmp_path))
    async with agent:
        await agent.pause()
        run = await agent.submit("hello", session="s")
        other = await agent.submit("hello too", session="s")
    with pytest.raises(NotReadyError, match="cannot abort a run now: the journal of agent 'main' is not open"):
        await agent.abort(run.run_id)
    starts = heard(agent, RunStarted)
    async with agent:
        assert (await agent.wait(other.run_id)).status == "ok"
        assert (await agent.wait(run.run_id)).status == "ok"

    assert [each.run_id for each in starts] == [run.run_id, other.run_id]
    async with agent_of(clock, kept(tmp_path)) as later:
        assert (await later.wait(run.run_id)).status == "ok"


async def test_a_run_ends_also_when_whoever_calls_it_off_stops_waiting(clock: VirtualClock, tmp_path: Path) -> None:
    for turns in range(12):
        agent = agent_of(clock, kept(tmp_path / str(turns)))
        async with agent:
            await agent.pause()
            run = await agent.submit("hello", session="s")
            aborting = asyncio.create_task(agent.abort(run.run_id))
            for _ in range(turns + 1):  # it is begun at least
                await asyncio.sleep(0)
            aborting.cancel()
            assert (await agent.wait(run.run_id, 5.0)).error == "aborted", f"cancelled after {turns} turns"
            assert agent.runs.open == 0


async def test_a_run_of_a_stopped_agent_without_a_journal_is_called_off(clock: VirtualClock) -> None:
    agent = agent_of(clock, None)
    async with agent:
        await agent.pause()
        run = await agent.submit("hello", session="s")
        other = await agent.submit("hello too", session="s")
    await agent.abort(run.run_id)
    starts = heard(agent, RunStarted)
    async with agent:
        assert (await agent.wait(other.run_id)).status == "ok"
        assert (await agent.wait(run.run_id)).error == "aborted"

    assert [each.run_id for each in starts] == [other.run_id]


async def test_what_is_submitted_from_inside_a_cycle_or_a_hook_is_served_after_it(clock: VirtualClock) -> None:
    receipts: list[Receipt] = []

    async def plan(perceptions: list[Perception], context: Context) -> Action:
        if context.run.goal == "one":
            receipts.append(await agent.submit("two", session="s"))
        return Action(output=context.run.goal)

    agent = Agent(plan=plan, clock=clock, loop_interval=0.1)

    @agent.hook("message_received")
    async def more(ctx: Any) -> None:
        if ctx.value.text == "two":
            receipts.append(await agent.submit("three", session="s"))

    async with agent:
        receipts.append(await agent.submit("one", session="s"))
        await clock.sleep(5.0)
        ends = [await agent.wait(each.run_id, 30.0) for each in receipts]

    assert sorted(each.output for each in ends) == ["one", "three", "two"]


# -- what is made a run of in a phase that is cut


@pytest.mark.parametrize("at", range(6))
async def test_what_is_pursued_in_a_plan_that_is_cut_becomes_one_run(
    clock: VirtualClock, tmp_path: Path, at: int
) -> None:
    served: list[str] = []

    async def plan(perceptions: list[Perception], context: Context) -> Action | None:
        if context.run is not None:
            served.append(context.run.goal)
            return Action(output="done")
        for perception in perceptions:
            task = asyncio.ensure_future(agent.conversations.submission.pursue(perception))
            if len(cuts) < 1:
                cuts.append(at)
                for _ in range(at):
                    await asyncio.sleep(0)
                task.cancel()
            await task
        return None

    cuts: list[int] = []
    agent = Agent(plan=plan, clock=clock, loop_interval=0.1, memory=kept(tmp_path),
                  settings={"agent": {"errors": {"plan": "retry"}, "phases": {"plan": {"retries": 2}}}})  # fmt: skip
    async with agent:
        await agent.accept(Perception("fire", session="s"))
        await clock.sleep(200.0)

    assert served == ["fire"]


# -- what is remembered


async def test_what_a_run_says_after_its_end_is_not_remembered_for_ever(clock: VirtualClock) -> None:
    agent = agent_of(clock)
    async with agent:
        for number in range(20):
            run = await agent.submit("hello", session="s")
            await agent.wait(run.run_id)
            assert await agent.conversations.outbox.tell(run.run_id, "s", "s", f"and another thing, the {number}th")

    assert not any(run.sent for run in agent.runs._runs.values())


async def test_what_was_said_is_kept_without_a_memory_as_far_as_there_is_room(clock: VirtualClock) -> None:
    transcripts = agent_of(clock).conversations.transcripts
    large = Entry("turn", {"output": {str(number): "x" * 10_000 for number in range(15)}}, "r")
    for number in range(750):
        transcripts.keep(f"s{number % 300}", [large])
    for _ in range(600):
        transcripts.keep("busy", [large])

    kept = [await transcripts.read(session) for session in ("busy", *(f"s{number}" for number in range(300)))]
    assert len(kept[0]) == 500
    assert sum(map(bool, kept)) > 100  # who was quiet for longest is forgotten, and nobody else
    assert sum(size_of(entry.body) for each in kept for entry in each) <= 64 << 20
    assert all(len(str(entry.body)) < 70_000 for each in kept for entry in each)


async def test_summaries_of_sessions_count_towards_what_is_kept(clock: VirtualClock) -> None:
    transcripts = agent_of(clock).conversations.transcripts
    summary = Entry("compaction", {"summary": "x" * 60_000, "first_kept": 0}, "r")
    for number in range(900):
        await transcripts.compact(f"s{number}", "r", summary)
        await transcripts.compact(f"s{number}", "r", summary)  # which takes the place of the one before it
        transcripts.keep(f"s{number}", [Entry("user", {"text": "x" * 30_000}, "r")])

    kept = [await transcripts.read(f"s{number}") for number in range(900)]
    assert 600 < sum(map(bool, kept)) < 900
    assert {len(each) for each in kept} == {0, 2}
    assert sum(size_of(entry.body) for each in kept for entry in each) <= 64 << 20


async def test_abilities_at_endless_kinds_of_tasks_are_not_kept_for_ever(clock: VirtualClock) -> None:
    agent = agent_of(clock)

    def learnt(task: int) -> Cycle:
        cycle = Cycle("s", None, clock)
        cycle.reflection = Reflection(abilities=(Ability("work", str(task), 0.5, 0.1, 1),))
        return cycle

    for task in range(MOST_ABILITIES + 10):
        agent.agent_state.learn(learnt(task))
        agent.agent_state.learn(learnt(0))

    assert len(agent.abilities) == MOST_ABILITIES
    assert {"work|0", f"work|{MOST_ABILITIES + 9}"} <= agent.abilities.keys()
    assert "work|1" not in agent.abilities
