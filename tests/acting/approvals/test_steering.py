"""Somebody says something new while a run acts: what has begun finishes, nothing else begins, and nothing is hidden."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from spar.bus.bus import Events
from spar.events import ApprovalResolved, CallFailed, CallProposed, CallSkipped
from spar.hooks import Decision, HookContext, Hooks
from spar.ports.any_part import has
from spar.ports.phases import OptionalActor
from spar.protocols import Context, RunContext
from spar.protocols.tools import tool
from spar.records.approvals import DecidedError
from spar.testing import VirtualClock
from spar.types import Action, ActionResult, Call, Verdict
from tests.acting.approval_tools import World, answer, desk_of, executor, on_hand, pending, statuses
from tests.acting.run.test_journal import Told
from tests.waiting import until

SENTENCE = "not started because of a new message; it may be issued again"


class Bench:
    """Tools that wait until they are let, and what they have done."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.may_end = asyncio.Event()

    def tools(self) -> list[Any]:
        @tool(effect="read")
        async def work(what: Any = None) -> Any:
            self.begun.append(what)
            await self.may_end.wait()
            return what

        @tool(effect="read", concurrency=1)
        async def narrow(what: Any = None) -> Any:
            self.begun.append(what)
            await self.may_end.wait()
            return what

        @tool(approval="deny")
        async def never() -> None: ...

        return [work, narrow, never]


def context(run: str = "r1", cycle: str = "c1", **more: Any) -> Context:
    return Context("main", cycle, "s", run=RunContext(run, "goal"), **more)


async def begun(bench: Bench, count: int = 1) -> None:
    await until(lambda: len(bench.begun) >= count)


async def steered(made: Executor, bench: Bench, calls: Any, run: str = "r1") -> ActionResult:
    """The result of these calls, of whose run somebody said something new once the first had begun."""
    acting = asyncio.create_task(made.act(Action(calls), context()))
    await begun(bench)
    for _ in range(3):
        made.steer(run)
    bench.may_end.set()
    return await acting


async def test_of_three_calls_in_a_row_the_first_finishes_and_the_others_are_skipped() -> None:
    bench, events = Bench(), Events("main")
    told: list[Any] = []
    events.subscribe(CallProposed, told.append)
    events.subscribe(CallSkipped, told.append)
    made = Executor(bench.tools(), events=events)
    calls = [Call("work", {"what": 1}, id="a"), Call("work", {"what": 2}, id="b", after=("a",)),
             Call("work", {"what": 3}, id="c", after=("b",))]  # fmt: skip

    result = await steered(made, bench, calls)

    assert has(made, OptionalActor.steer)
    assert (statuses(result), bench.begun) == (["ok", "skipped steered", "skipped steered"], [1])
    assert [(each.fault.kind, each.fault.message) for each in result.results[1:] if each.fault] == [
        ("steered", SENTENCE)] * 2  # fmt: skip
    assert [(type(event).__name__, event.call.id, event.run_id) for event in told] == [
        ("CallProposed", "a", "r1"), ("CallProposed", "b", "r1"), ("CallProposed", "c", "r1"),
        ("CallSkipped", "b", "r1"), ("CallSkipped", "c", "r1"),
    ]  # fmt: skip
    assert result.status == "ok"  # neither good nor bad
    assert [error["error"]["message"] for error in result.errors] == [SENTENCE] * 2


async def test_calls_that_arrive_later_in_the_same_stream_are_skipped_likewise() -> None:
    bench = Bench()
    made = Executor(bench.tools())

    async def plan() -> AsyncIterator[Call]:
        yield Call("work", {"what": 1}, output_path="†state.one")
        await begun(bench)
        made.steer("r1")
        yield Call("work", {"what": 2}, output_path="†state.two")
        yield Call("work", {"what": "†state.two"})
        yield Call("gone")
        bench.may_end.set()

    result = await made.act_stream(Action(), plan(), context())

    assert (statuses(result), bench.begun) == (["ok", "skipped steered", "skipped steered", "failed"], [1])


async def test_it_counts_for_the_next_tick_of_the_run_if_none_is_in_hand_and_for_that_one_only() -> None:
    bench = Bench()
    bench.may_end.set()
    made = Executor(bench.tools())
    made.steer("r1")

    async def act(run: str) -> list[str]:
        return statuses(await made.act(Action((Call("work"), Call("work"))), context(run)))

    assert await act("r2") == ["ok", "ok"]
    assert await act("r1") == ["skipped steered"] * 2
    assert await act("r1") == ["ok", "ok"]


async def test_another_run_and_calls_of_none_go_on() -> None:
    bench = Bench()
    made = Executor(bench.tools())
    calls = [Call("work", {"what": 1}, id="a"), Call("work", {"what": 2}, after=("a",))]
    free = asyncio.create_task(made.run(calls))

    assert statuses(await steered(made, bench, calls, run="r2")) == ["ok", "ok"]
    assert statuses(await free) == ["ok", "ok"]


async def test_a_run_that_was_ended_is_not_steered_any_more_and_what_is_remembered_is_bounded() -> None:
    bench = Bench()
    bench.may_end.set()
    made = Executor(bench.tools())
    made.steer("r1")
    await made.abandon("r1")

    assert statuses(await made.act(Action((Call("work"),)), context())) == ["ok"]
    for number in range(5_000):
        made.steer(f"run {number}")
    assert len(made._steered) <= 1_000


# -- hooks and people


@pytest.mark.parametrize(
    ("decision", "found"), [(None, "skipped steered"), (Decision.deny("no"), "denied denied")], ids=["lets", "denies"]
)
async def test_a_hook_that_looks_at_a_call_is_heard_out(decision: Any, found: str) -> None:
    bench, hooks, asked, may_go = Bench(), Hooks(), asyncio.Event(), asyncio.Event()

    async def hook(ctx: HookContext) -> Any:
        asked.set()
        await may_go.wait()
        return decision

    hooks.add("before_call", hook)
    made = Executor(bench.tools(), hooks=hooks)
    acting = asyncio.create_task(made.act(Action((Call("work"),)), context()))
    await asked.wait()
    made.steer("r1")
    may_go.set()

    assert (statuses(await acting), bench.begun) == ([found], [])


async def test_nobody_is_asked_about_a_call_once_there_is_a_new_message(clock: VirtualClock) -> None:
    hooks, asked, may_go = Hooks(), asyncio.Event(), asyncio.Event()

    async def hook(ctx: HookContext) -> Any:
        asked.set()
        await may_go.wait()

    hooks.add("before_call", hook)
    made = executor(World(), clock)
    made._runtime.hooks = hooks
    acting = asyncio.create_task(made.act(Action((Call("act"),)), context()))
    await asked.wait()
    made.steer("r1")
    may_go.set()

    assert statuses(await acting) == ["skipped steered"]
    assert list(await desk_of(made).list(None)) == []


async def test_a_question_that_nobody_has_answered_is_taken_back_and_everybody_is_told(clock: VirtualClock) -> None:
    world, events = World(), Events("main", clock=clock)
    told: list[ApprovalResolved] = []
    events.subscribe(ApprovalResolved, told.append)
    made = executor(world, clock, events=events)
    acting = asyncio.create_task(made.act(Action((Call("act", {"what": 1}),)), context()))
    (asked,) = await pending(made)
    made.steer("r1")

    assert statuses(await acting) == ["skipped steered"]
    row = await desk_of(made).get(asked.id)
    assert (row.status, row.reason) == ("void", SENTENCE)
    assert [(event.decision, event.reason, event.run_id) for event in told] == [("void", SENTENCE, "r1")]
    with pytest.raises(DecidedError):
        await answer(made, asked)
    assert world.done == []


async def test_an_approval_that_was_given_is_void_if_its_call_has_not_started(clock: VirtualClock) -> None:
    bench, world = Bench(), World()
    made = executor(world, clock, tools=[*bench.tools(), *world.tools()])
    made._runtime.limits = type(made._runtime.limits)(max_parallel=1)
    acting = asyncio.create_task(made.act(Action((Call("work"), Call("act"))), context()))
    await begun(bench)
    (asked,) = await pending(made)
    await answer(made, asked)
    await until(lambda: not any(step.asking for tick in made._batches for step in tick.steps))
    made.steer("r1")
    bench.may_end.set()

    assert statuses(await acting) == ["ok", "skipped steered"]
    assert (await desk_of(made).get(asked.id)).status == "void"
    assert world.done == []


async def test_the_programs_own_approver_is_not_waited_for(clock: VirtualClock) -> None:
    events, world, asked = Events("main", clock=clock), World(), asyncio.Event()
    told: list[ApprovalResolved] = []
    events.subscribe(ApprovalResolved, told.append)

    async def confirm(call: Call) -> Verdict:
        asked.set()
        await asyncio.Event().wait()
        return Verdict.approve()

    made = Executor(world.tools(), events=events, clock=clock)
    made.confirm = confirm
    acting = asyncio.create_task(made.act(Action((Call("act"),)), context()))
    await asked.wait()
    made.steer("r1")

    assert statuses(await acting) == ["skipped steered"]
    assert [(event.decision, event.run_id) for event in told] == [("void", "r1")]


async def test_what_an_earlier_cycle_left_behind_until_its_answer_is_not_touched(clock: VirtualClock) -> None:
    world = World()
    made = executor(world, clock, hold=0.0)
    first = await made.act(Action((Call("act", {"what": 1}),)), context())
    assert statuses(first) == ["skipped parked"]
    made.steer("r1")
    await made.act(Action((Call("plain"),)), context(cycle="c2"))
    (asked,) = await pending(made)
    await answer(made, asked)
    found = on_hand(made, "s")

    assert statuses(await made.act(found, context(cycle="c3"))) == ["ok"]
    assert world.done == [1]


async def test_calls_that_were_to_go_on_are_skipped_for_good_and_their_approval_is_void(clock: VirtualClock) -> None:
    world = World()
    made = executor(world, clock, hold=0.0)
    await made.act(Action((Call("act", {"what": 1}),)), context())
    (asked,) = await pending(made)
    await answer(made, asked)
    found = on_hand(made, "s")
    made.steer("r1")

    assert statuses(await made.act(found, context(cycle="c2"))) == ["skipped steered"]
    assert (await desk_of(made).get(asked.id)).status == "void"
    assert made.resumable("s") is None
    assert world.done == []


# -- the last moment, and odd ones


async def test_a_call_of_which_it_is_just_written_down_that_it_starts_does_not() -> None:
    journal, done = Told(), []

    @tool(effect="once")
    async def pay(amount: int) -> None:
        done.append(amount)

    journal.is_let.clear()
    made = Executor([pay], journal=journal)
    acting = asyncio.create_task(made.act(Action((Call("pay", {"amount": 1}, id="p"),)), context()))
    await until(lambda: journal.waits)
    made.steer("r1")
    journal.is_let.set()

    assert (statuses(await acting), done) == (["skipped steered"], [])
    assert journal.facts[-1] == ("ended", "p", "skipped")


async def test_what_was_skipped_is_written_down_also_of_calls_that_nobody_had_begun() -> None:
    journal, bench = Told(), Bench()
    made = Executor(bench.tools(), journal=journal)
    made.steer("r1")

    await made.act(Action((Call("work", id="w"),)), context())

    assert journal.facts == [("acting", "c1", ["w"]), ("ended", "w", "skipped")]


async def test_of_a_cycle_that_was_cut_off_what_had_ended_stays_and_the_rest_is_skipped() -> None:
    bench = Bench()
    bench.may_end.set()
    made = Executor(bench.tools())
    calls = (Call("work", {"what": 1}, id="a", output_path="†state.one"), Call("work", {"what": "†state.one"}, id="b"))
    before = await made.act(Action(calls[:1]), context("other"))
    made.steer("r1")

    result = await made.act(Action(calls), context(known=before.results))

    assert (statuses(result), result.state) == (["ok", "skipped steered"], {"one": 1})


@pytest.mark.parametrize("when", [CallProposed, CallSkipped], ids=["as it arrives", "as one is skipped"])
async def test_a_listener_may_steer(when: Any) -> None:
    events, bench = Events("main"), Bench()
    bench.may_end.set()
    made = Executor(bench.tools(), events=events)
    over: list[str] = []
    events.subscribe(CallSkipped, lambda event: over.append(event.call.id))
    events.subscribe(CallFailed, lambda event: over.append(event.call.id))
    events.subscribe(when, lambda event: made.steer("r1"))
    calls = (Call("gone", id="g"), Call("never", id="n"), Call("work", id="a"), Call("work", id="b", after=("a",)))

    result = await made.act(Action(calls), context())

    assert statuses(result)[::2] == ["failed", "skipped steered"]
    assert sorted(over) == ["a", "b", "g", "n"]  # each is told once


async def test_a_run_that_is_cut_while_its_questions_are_taken_back_leaves_nothing_behind(
    clock: VirtualClock, tmp_path: Path
) -> None:
    made = executor(World(), clock)
    acting = asyncio.create_task(made.act(Action((Call("act"),), id="x"), context()))
    await pending(made)
    made.steer("r1")
    acting.cancel()
    await asyncio.wait([acting])

    result = made.interrupted("x")
    assert len(result.results) == 1
    assert result.results[0].status in ("skipped", "cancelled")
    assert made.resumable("s") is None
