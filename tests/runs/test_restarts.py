"""Runs over a stop and a start of the same agent: they go on, and nothing of them is done twice."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, ActionResult, Agent, Call, CallResult, Context, Decision, Fault, Perception, tool
from spar.data.reply import End
from spar.errors import LifecycleError, TransientError
from spar.events import Event, RunEnded, RunStarted
from spar.records.journal import Item
from spar.testing import ScriptedPlanner, VirtualClock
from tests.doubles import heard

DONE = Action(output="done")


def memory_at(folder: Path) -> Memory:
    return Memory(f"sqlite:///{folder / 'memory.db'}")


@pytest.mark.parametrize(("turns", "deadline"), [(turns, (0.0, 0.5, None)[turns % 3]) for turns in range(12)])
async def test_a_run_that_is_stopped_as_it_begins_goes_on_once_when_the_same_agent_is_started(
    clock: VirtualClock, tmp_path: Path, turns: int, deadline: Any
) -> None:
    planned: list[str] = []

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        await asyncio.sleep(1.5)
        planned.extend(each.text for each in perceptions)
        return DONE if context.run else None

    agent = Agent(plan=plan, memory=memory_at(tmp_path), clock=clock, loop_interval=0.1)
    told = heard(agent, Event)
    async with agent:
        run = await agent.submit("go", session="bob")
        for _ in range(turns):
            await asyncio.sleep(0)
        await agent.stop(deadline)
        await agent.start()
        assert (await agent.wait(run.run_id, 60)).status == "ok"
        await clock.sleep(60)
        assert set(agent.sessions.by_key) == {"main"}
        assert agent.runs.open == 0

    told = [type(event) for event in told if isinstance(event, (RunStarted, RunEnded))]
    assert told.count(RunEnded) == 1
    assert told[-1] is RunEnded
    assert planned == ["go"]


async def test_messages_that_were_collected_are_told_once_though_the_run_was_put_off_before_a_restart(
    clock: VirtualClock, tmp_path: Path
) -> None:
    heard: list[list[str]] = []

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run is None:
            return None
        await asyncio.sleep(1.0)
        heard.append([part.text for each in perceptions for part in each.evidence or (each,)])
        return Action(deferred="the provider is down", next_look=30.0) if len(heard) == 2 else DONE

    def agent_at() -> Agent:
        return Agent(plan=plan, memory=memory_at(tmp_path), clock=clock, loop_interval=0.1,
                     settings={"runs": {"queue_mode": "collect", "quiet": 0.0}})  # fmt: skip

    async with agent_at() as agent:
        runs = [await agent.submit(text) for text in ("one", "two", "three")]
        await clock.sleep(10)
    async with agent_at() as agent:
        answers = [await agent.wait(run.run_id, 60) for run in runs]
        entries = await agent.conversations.transcripts.read("main")

    assert heard == [["one"], ["two", "three"], ["two", "three"]]
    assert [each.outcome for each in answers] == ["started", "started", "collected"]
    assert sum("three" in each.body.get("text", "") for each in entries) == 1


@pytest.mark.parametrize("turns", range(1, 30, 6))
async def test_an_agent_whose_start_was_called_off_can_be_started_at_once(
    clock: VirtualClock, tmp_path: Path, turns: int
) -> None:
    agent = Agent(plan=ScriptedPlanner([DONE]), memory=memory_at(tmp_path), clock=clock)
    called_off = asyncio.ensure_future(agent.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    await agent.stop(0.0)
    await asyncio.wait([called_off])
    async with agent:
        assert (await agent.wait((await agent.submit("go")).run_id, 60)).status == "ok"
    if called_off.exception() is not None:
        assert isinstance(called_off.exception(), LifecycleError)


async def test_work_that_is_tried_again_is_no_part_of_the_run_that_its_session_has_meanwhile(
    clock: VirtualClock, tmp_path: Path
) -> None:
    planned: list[tuple[list[str], int | None]] = []

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        texts, run = [each.text for each in perceptions], context.run
        planned.append((texts, run.number if run else None))
        if len(planned) == 1:
            raise TransientError("not now")
        if run is None:
            return None
        return DONE if run.number == 3 else Action((Call("work", {"seconds": 8.0}),))

    @tool(effect="read")
    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async with Agent(plan=plan, tools=[work], memory=memory_at(tmp_path), clock=clock, loop_interval="off") as agent:
        agent.push(Perception("noticed"))
        await clock.sleep(5)
        run = await agent.submit("go")
        assert (await agent.wait(run.run_id, 60)).status == "ok"

    assert planned[0] == (["noticed"], None)
    assert sorted(planned[1:], key=str) == [(["go"], 1), (["noticed"], None), ([], 2), ([], 3)]


async def test_what_was_said_in_a_run_stays_in_it_when_the_same_agent_is_stopped_and_started(
    clock: VirtualClock, tmp_path: Path
) -> None:
    heard: list[tuple[list[str], bool]] = []

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        await asyncio.sleep(1.0)
        heard.append(([each.text for each in perceptions], context.run is not None))
        if context.run is None:
            return None
        return DONE if context.run.said else Action((Call("work"),))

    @tool(effect="read")
    async def work() -> None:
        await asyncio.sleep(1.0)

    async with Agent(plan=plan, tools=[work], memory=memory_at(tmp_path), clock=clock, loop_interval=0.1) as agent:
        run = await agent.submit("one")
        await clock.sleep(1.5)
        steer = await agent.submit("two", mode="steer")
        await clock.sleep(1.0)
        await agent.stop(0.0)  # in the plan that is made for it
        await agent.start()
        answers = [await agent.wait(each.run_id, 60) for each in (run, steer)]
        await clock.sleep(10)

    assert [each for each in heard if each[0]] == [(["one"], True), (["two"], True)]
    assert [(each.status, each.outcome) for each in answers] == [("ok", "started"), ("ok", "steered")]


async def test_who_is_done_with_a_session_that_is_gone_does_not_forget_the_one_that_was_made_since(
    clock: VirtualClock,
) -> None:
    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        await asyncio.sleep(1.0)
        return DONE if context.run else None

    async with Agent(plan=plan, clock=clock, loop_interval=0.1) as agent:
        told = heard(agent, Event)
        gone = agent.sessions.of("bob")  # as an abort still holds it that waited for its run
        agent.sessions.retire(gone)
        first = await agent.submit("one", session="bob")
        await clock.sleep(0.5)
        agent.sessions.retire(gone)
        second = await agent.submit("two", session="bob")
        for run in (first, second):
            assert (await agent.wait(run.run_id, 60)).status == "ok"

    order = [(type(event), event.run_id) for event in told if isinstance(event, (RunStarted, RunEnded))]
    assert order == [(kind, run.run_id) for run in (first, second) for kind in (RunStarted, RunEnded)]


def test_a_run_that_another_process_began_has_the_failed_calls_of_its_last_cycle_with_calls() -> None:
    call = Call("look")
    calls, errors = (CallResult(call, "failed", fault=Fault("error", "gone")),), ({"error": {"kind": "error"}},)
    failed = ActionResult(Action((call,)), "failed", calls, errors=errors)
    agent = Agent(plan=lambda perceptions: None)
    run = agent.runs.restore(Item("r", Perception("go"), "run"), [failed, ActionResult(Action(output="so far"))])

    assert run.errors == errors
    assert run.reply_to(End("ok")).text == "look did not work: gone"


@pytest.mark.parametrize("second", [None, Action(output="a better answer")])
async def test_an_answer_that_is_asked_for_once_more_outlives_the_process(
    clock: VirtualClock, tmp_path: Path, second: Action | None
) -> None:
    """It came together with a failed call; the process ends before the planner has said whether it stands."""
    lives = 0

    @tool(effect="read")
    async def broken() -> None:
        raise ValueError("no")

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run is None:
            return None
        if context.run.number == 1:
            return Action((Call("broken"),), output={"first": "answer"})
        if lives == 1:
            await asyncio.sleep(1000.0)
        return second

    def agent_at() -> Agent:
        return Agent(plan=plan, tools=[broken], memory=memory_at(tmp_path), clock=clock, loop_interval=0.1)

    lives = 1
    agent = agent_at()
    await agent.start()
    run = await agent.submit("go", session="ann")
    await clock.sleep(5.0)
    await agent.stop(0.0)
    lives = 2
    async with agent_at() as agent:
        status = await agent.wait(run.run_id, 60)

    assert (status.status, status.output) == ("ok", {"first": "answer"} if second is None else "a better answer")
    assert [each["call"]["_tool"] for each in status.errors] == ["broken"]


@pytest.mark.parametrize(
    ("point", "decision"),
    [
        ("before_run", Decision.deny("not now")),
        ("before_plan", Decision.deny("not now")),
        ("before_plan", Decision.stop_run("not now")),
        ("after_plan", Decision.deny("not now")),
        ("after_plan", Decision.stop_run("not now")),
        ("before_act", Decision.deny("not now")),
        ("before_plan", None),
    ],
)
async def test_the_end_of_a_run_is_on_disk_when_it_is_told(
    clock: VirtualClock, tmp_path: Path, point: str, decision: Decision | None
) -> None:
    """A process that dies once it has told how a run ended must not end it again, perhaps in another way."""
    killed = tmp_path / "killed"
    planner = ScriptedPlanner([DONE], then=None)
    agent = Agent(plan=planner, memory=memory_at(tmp_path), clock=clock, loop_interval=0.1)
    agent.hooks.add(point, lambda ctx: decision)
    async with agent:
        agent.events.connect(RunEnded, lambda event: copy_file(tmp_path, killed), only_keeps=True)
        run = await agent.submit("go", session="bob")
        told = await agent.wait(run.run_id, 60)

    again = Agent(plan=planner, memory=memory_at(killed), clock=clock, loop_interval=0.1)
    ends = heard(again, RunEnded)
    async with again:
        await clock.sleep(5.0)
        kept = await again.wait(run.run_id, 1)

    assert told.status == ("ok" if decision is None else "error")
    assert (kept.status, kept.error, ends) == (told.status, told.error, [])


@pytest.mark.parametrize("seconds", [0.0, 1.0])
async def test_a_run_that_was_called_off_is_not_begun_again_by_the_next_process(
    clock: VirtualClock, tmp_path: Path, seconds: float
) -> None:
    killed = tmp_path / "killed"

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run:
            await asyncio.sleep(1000.0)
        return None

    agent = Agent(plan=plan, memory=memory_at(tmp_path), clock=clock, loop_interval=0.1)
    async with agent:
        run = await agent.submit("go", session="bob")
        await clock.sleep(seconds)
        await agent.abort(run.run_id)
        copy_file(tmp_path, killed)

    async with Agent(plan=plan, memory=memory_at(killed), clock=clock, loop_interval=0.1) as again:
        kept = await again.wait(run.run_id, 5)

    assert (kept.status, kept.error) == ("error", "aborted")


def copy_file(folder: Path, target: Path) -> None:
    """Keep what the file is now, as a process that dies would leave it."""
    target.mkdir()
    for file in folder.glob("memory.db*"):
        if not file.name.endswith(".lock"):
            shutil.copy(file, target)


@pytest.mark.parametrize("steps", [["sense"], ["sense", "sense"], ["sense", "plan", "act", "reflect"]])
async def test_a_run_that_is_stepped_through_in_a_stopped_agent_is_done_once(
    clock: VirtualClock, tmp_path: Path, steps: Sequence[str]
) -> None:
    done: list[str] = []

    @tool(effect="once")
    async def pay() -> str:
        done.append("paid")
        return "paid"

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run is None:
            return None
        return Action((Call("pay"),), output="paid") if perceptions else None

    def agent_at() -> Agent:
        return Agent(plan=plan, tools=[pay], memory=memory_at(tmp_path), clock=clock, loop_interval=0.1)

    agent = agent_at()
    await agent.start()
    await agent.pause()
    run = await agent.submit("pay", session="main")
    await agent.stop()
    for step in steps:
        await getattr(agent, f"step_{step}")()
    await agent.stop()
    async with agent_at() as agent:
        status = await agent.wait(run.run_id, 60)
        await clock.sleep(60)

    assert (status.status, status.output, done) == ("ok", "paid", ["paid"])


async def test_patience_and_failed_plans_count_over_restarts(clock: VirtualClock, tmp_path: Path) -> None:
    async def deferred(perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.session == "fails":
            raise TransientError("down")
        return Action(deferred="busy", next_look=40.0) if context.run else None

    settings = {"runs": {"patience": 100.0}}
    runs: list[str] = []
    for _ in range(4):
        agent = Agent(plan=deferred, memory=memory_at(tmp_path), clock=clock, loop_interval="off", settings=settings)
        async with agent:
            if not runs:
                runs = [(await agent.submit("go", session=name)).run_id for name in ("waits", "fails")]
            await clock.sleep(0.2)
            ends = [await agent.wait(run, 0) for run in runs]
            if ends[0].status != "timeout":
                break

    assert [end.error for end in ends] == ["waited for 120 s (runs.patience): busy", "down"]
    assert ends[0].usage.waited == 120.0
