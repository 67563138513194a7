"""Calls that nobody answered in time: left behind whole, gone on with once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from acting.approvals.decisions import BoundCall
from spar.bus.bus import Events
from spar.events import ApprovalRequested, ApprovalResolved, CallEvent, CallSkipped
from spar.ports.any_part import has
from spar.ports.phases import OptionalActor
from spar.protocols import Context, Host, RunContext
from spar.protocols.tools import tool
from spar.records.approvals import Decision
from spar.testing import VirtualClock
from spar.types import Action, ActionResult, Call
from tests.acting.approval_tools import (
    World,
    answer,
    cycle,
    desk_of,
    executor,
    faults,
    on_hand,
    pending,
    remembering,
    statuses,
)
from tests.effort import growth
from tests.waiting import cancelled, until


async def go_on(made: Executor, clock: VirtualClock, *planned: Call, session: str = "main") -> ActionResult:
    """The next cycle of the session: what is to go on, then what is planned."""
    found = made.resumable(session)
    calls = (*(found.calls if found else ()), *planned)
    return await made.act(Action(calls), cycle(clock, session))


async def test_after_the_hold_the_call_is_parked_with_all_that_depends_on_it_and_the_others_go_on(
    clock: VirtualClock,
) -> None:
    world = World()
    made = executor(world, clock, hold=30.0)
    calls = [
        Call("act", {"what": "ask"}, id="a", output_path="†state.a"),
        Call("plain", {"what": "†state.a.did"}, id="b", output_path="†state.b"),
        Call("plain", {"what": "after"}, id="c", after=("a",)),
        Call("plain", {"what": ["†state.b", "†state.d"]}, id="d2"),
        Call("plain", {"what": "free"}, id="d", output_path="†state.d"),
    ]
    result = await made.act(Action(tuple(calls)), cycle(clock))

    assert statuses(result) == ["skipped parked"] * 4 + ["ok"]
    assert (world.done, result.status, clock.elapsed) == (["free"], "partial", pytest.approx(30.0, abs=0.1))
    assert faults(result) == ["parked"] * 4 + [""]
    (asked,) = await pending(made)
    assert asked.is_parked
    assert [(error["call"]["_id"], error["error"]["kind"]) for error in result.errors] == [
        (id, "parked") for id in ("a", "b", "c", "d2")
    ]
    assert result.errors[0]["error"]["message"] == f"it waits for approval {asked.id!r}"
    assert made.resumable("main") is None


async def test_an_answer_wakes_the_session_whose_next_cycle_goes_on_with_the_very_call(clock: VirtualClock) -> None:
    world, woken = World(), list[str]()
    made = executor(world, clock, hold=1.0, resumed=woken)
    calls = (
        Call("plain", {"what": "early"}, id="e", output_path="†state.e"),
        Call("act", {"what": "†state.e"}, id="a", output_path="†state.a"),
        Call("plain", {"what": ["†state.a.did", "†state.e"]}, id="b", after=("a", "e")),
    )
    await made.act(Action(calls), cycle(clock, "s"))
    assert has(made, OptionalActor.resumable)
    assert (woken, made.resumable("s"), made.resumable("main")) == ([], None, None)
    await answer(made, (await pending(made))[0])

    assert woken == ["s"]
    found = on_hand(made, "s")
    assert made.resumable("s") is found
    assert (found.perceptions[0].source, found.perceptions[0].session) == ("approval", "s")
    assert made.resumable("main") is None
    result = await go_on(made, clock, Call("plain", {"what": "new"}, id="b"), session="s")

    assert statuses(result) == ["ok", "ok", "ok"]
    assert [each.call.meta.get("_parked", {}).get("id") for each in result.results] == ["a", "b", None]
    assert sorted(world.done, key=str) == sorted(["early", "early", ["early", "early"], "new"], key=str)
    assert made.resumable("s") is None
    assert [each.status for each in await desk_of(made).list(None)] == ["used"]


async def test_a_denial_or_expiry_of_a_parked_call_is_its_result_and_its_dependents_are_skipped(
    clock: VirtualClock,
) -> None:
    world = World()
    made = executor(world, clock, hold=1.0, expires=60.0)
    calls = (Call("act", {"what": 1}, id="a"), Call("plain", {"what": 2}, id="b", after=("a",)))
    await made.act(Action(calls), cycle(clock))
    await answer(made, (await pending(made))[0], "deny", reason="no")
    assert statuses(await go_on(made, clock)) == ["denied denied", "skipped dep_failed"]

    await made.act(Action(calls), cycle(clock))
    await asyncio.sleep(70.0)
    assert statuses(await go_on(made, clock)) == ["denied expired", "skipped dep_failed"]
    assert (world.done, made.resumable("main")) == ([], None)


async def test_an_edited_parked_call_runs_as_edited_and_data_that_looks_like_a_reference_stays_data(
    clock: VirtualClock,
) -> None:
    world = World()
    made = executor(world, clock, hold=0.0)
    await made.act(Action((Call("act", {"what": "††state.x"}), Call("act", {"what": 1}))), cycle(clock))
    one, two = await pending(made, 2)
    await answer(made, one)
    await answer(made, two, "edit", params={"what": "†state.y"})
    assert statuses(await go_on(made, clock)) == ["ok", "ok"]
    assert sorted(world.done) == ["†state.x", "†state.y"]


async def test_of_two_parked_calls_the_unanswered_one_is_parked_again_without_waiting(clock: VirtualClock) -> None:
    world = World()
    made = executor(world, clock, hold=10.0)
    calls = (
        Call("act", {"what": 1}, id="a", output_path="†state.a"),
        Call("act", {"what": 2}, id="b", output_path="†state.b"),
        Call("plain", {"what": ["†state.a.did", "†state.b.did"]}, id="c"),
    )
    await made.act(Action(calls), cycle(clock))
    one, two = await pending(made, 2)
    await answer(made, one)
    began = clock.elapsed
    assert statuses(await go_on(made, clock)) == ["ok", "skipped parked", "skipped parked"]
    assert clock.elapsed == began
    assert made.resumable("main") is None
    await answer(made, two)
    result = await go_on(made, clock)

    # What the first cycle's answer brought is data of that cycle: a later one has it only within a run.
    assert statuses(result) == ["ok", "ok"]
    assert world.done == [1, 2, [1, 2]]


async def test_calls_of_two_plans_with_the_same_ids_that_wait_together_are_all_made(clock: VirtualClock) -> None:
    world = World()
    made = executor(world, clock, hold=0.0)
    plans = [
        (Call("act", {"what": f"{plan}a"}, id="a"), Call("act", {"what": f"{plan}b"}, id="b", after=("a",)))
        for plan in range(3)
    ]
    await made.act(Action(plans[0]), cycle(clock))
    for plan in (*plans[1:], (), (), ()):
        for asked in await desk_of(made).list():
            await answer(made, asked)
        await go_on(made, clock, *plan)

    assert sorted(world.done) == ["0a", "0b", "1a", "1b", "2a", "2b"]
    assert made.resumable("main") is None


async def test_nothing_that_was_executed_twice_runs_twice(clock: VirtualClock) -> None:
    world = World()
    made = executor(world, clock, hold=0.0)
    calls = (Call("act", {"what": 1}, id="a"), Call("plain", {"what": 2}, after=("a",)))
    await made.act(Action(calls), cycle(clock))
    await answer(made, (await pending(made))[0])
    found = on_hand(made)
    one, other = await asyncio.gather(made.act(found, cycle(clock)), made.act(found, cycle(clock)))

    assert world.done == [1, 2]
    assert sorted([*statuses(one), *statuses(other)])[-2:] == ["ok", "skipped dep_failed"] or "ok" in statuses(one)
    assert [*statuses(one), *statuses(other)].count("ok") == 2


async def test_calls_that_go_on_stay_known_when_somebody_else_enters_the_executor(clock: VirtualClock) -> None:
    may_end, has_begun = asyncio.Event(), asyncio.Event()

    @tool(approval="ask")
    async def act(what: int) -> int:
        has_begun.set()
        await may_end.wait()
        return what

    async with executor(World(), clock, tools=[act], hold=0.0) as made:
        await made.act(Action((Call("act", {"what": 1}, id="a"),)), cycle(clock))
        await answer(made, (await pending(made))[0])
        acting = asyncio.ensure_future(made.act(on_hand(made), cycle(clock)))
        await has_begun.wait()
        async with made:
            may_end.set()
            assert statuses(await acting) == ["ok"]
            assert made.resumable("main") is None


async def test_what_was_parked_goes_on_after_a_restart(clock: VirtualClock, tmp_path: Path) -> None:
    world, woken = World(), list[str]()
    async with remembering(tmp_path, clock) as memory, executor(world, clock, store=memory, hold=1.0) as made:
        calls = (Call("act", {"what": 1}, id="a", output_path="†state.a"), Call("plain", {"what": "†state.a.did"}))
        await made.act(Action(calls), cycle(clock, "s"))
        (asked,) = await pending(made)
    async with remembering(tmp_path, clock) as memory, executor(world, clock, store=memory, resumed=woken) as made:
        assert woken == []
        await answer(made, asked)
        assert woken == ["s"]
    async with remembering(tmp_path, clock) as memory, executor(world, clock, store=memory, resumed=woken) as made:
        assert woken == ["s", "s"]
        assert statuses(await go_on(made, clock, session="s")) == ["ok", "ok"]
    async with remembering(tmp_path, clock) as memory:
        async with executor(world, clock, store=memory, resumed=woken) as made:
            assert (made.resumable("s"), woken) == (None, ["s", "s"])
        assert await memory.records("parked") == []
    assert world.done == [1, 1]


async def test_a_use_that_was_cut_off_is_in_doubt_after_a_restart_and_not_repeated(
    clock: VirtualClock, tmp_path: Path
) -> None:
    world = World()
    async with remembering(tmp_path, clock) as memory, executor(world, clock, store=memory, hold=0.0) as made:
        await made.act(Action((Call("act", {"what": 1}),)), cycle(clock))
        (asked,) = await pending(made)
        await answer(made, asked)
        desk = desk_of(made)
        row = await desk.get(asked.id)
        binding = BoundCall(row.call, made.tools["act"], row.session)
        assert (await desk.use(asked.id, binding))[0] == ""  # and here the process dies
    async with remembering(tmp_path, clock) as memory, executor(world, clock, store=memory) as made:
        result = await go_on(made, clock)
        assert (statuses(result), faults(result)) == (["in_doubt"], ["in_doubt"])
        assert made.resumable("main") is None
    assert world.done == []


async def test_a_question_whose_cycle_broke_off_is_void_after_a_restart(clock: VirtualClock, tmp_path: Path) -> None:
    world = World()
    async with remembering(tmp_path, clock) as memory:
        made = executor(world, clock, store=memory, hold=100.0)
        running = asyncio.ensure_future(made.act(Action((Call("act", {"what": 1}),)), cycle(clock)))
        (asked,) = await pending(made)
        async with executor(world, clock, store=memory) as other:  # the process that comes after it
            row = await desk_of(other).get(asked.id)
            assert (row.status, row.reason) == ("void", "the cycle that asked broke off")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("decision", "more", "ended", "done"),
    [
        ("approve", {}, ["ok"], [1]),
        ("edit", {"params": {"what": 2}}, ["ok"], [2]),
        ("replace", {"call": {"_tool": "plain", "what": 3}}, ["ok"], [3]),
        ("deny", {"reason": "not today"}, ["denied denied"], []),
    ],
)
async def test_an_answer_that_comes_before_a_cut_off_cycle_goes_on_is_the_answer_to_its_call(
    clock: VirtualClock, tmp_path: Path, decision: Decision, more: Any, ended: list[str], done: list[Any]
) -> None:
    first, world, told, events = World(), World(), list[Any](), Events("main", clock=clock)
    events.subscribe(ApprovalRequested, told.append)
    action, context = Action((Call("act", {"what": 1}, id="a"),)), cycle(clock)
    async with remembering(tmp_path, clock) as memory:
        cut = executor(first, clock, store=memory, hold=100.0)
        running = asyncio.ensure_future(cut.act(action, context))
        (asked,) = await pending(cut)
        host = Host("main", clock, events, None, lambda: None, memory, is_in_hand=lambda cycle_id: True)
        heir = executor(world, clock, hold=100.0, events=events)
        heir.attach(host)
        async with heir:  # the process that comes after it
            await answer(heir, asked, decision, **more)
            result = await heir.act(action, context)
            assert [row.id for row in await desk_of(heir).list(None)] == [asked.id]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert (statuses(result), world.done, first.done, told) == (ended, done, [], [])
    if decision == "deny":
        assert result.results[0].fault.message == "not today"


async def test_a_cycle_that_is_cut_off_parks_what_waits_for_an_answer(clock: VirtualClock) -> None:
    world = World()
    made = executor(world, clock, hold=100.0)
    calls = (Call("act", {"what": 1}, id="a", output_path="†state.a"), Call("plain", {"what": "†state.a.did"}, id="b"),
             Call("plain", {"what": 0}, id="c"))  # fmt: skip
    action = Action(calls)
    running = asyncio.ensure_future(made.act(action, cycle(clock)))
    (asked,) = await pending(made)
    await cancelled(running)
    cut = made.interrupted(action.id)
    assert (cut.status, statuses(cut)) == ("interrupted", ["skipped parked", "skipped parked", "ok"])
    await answer(made, asked)
    assert statuses(await go_on(made, clock)) == ["ok", "ok"]
    assert world.done == [0, 1, 1]


async def test_nothing_of_an_abandoned_run_goes_on(clock: VirtualClock) -> None:
    world, told, events = World(), list[Any](), Events("main", clock=clock)
    events.subscribe(ApprovalResolved, told.append)
    made = executor(world, clock, events=events, hold=0.0)
    context = Context("main", "c1", "s", run=RunContext("r1", "goal"))
    await made.act(Action((Call("act", {"what": 1}),)), context)
    await made.act(Action((Call("act", {"what": 2}),)), cycle(clock, "s"))
    mine, other = await pending(made, 2)
    for _ in range(2):
        await made.abandon("r1")
    await asyncio.sleep(0)

    assert (await desk_of(made).get(mine.id)).status == "void"
    assert [(each.decision, each.reason, each.cycle_id) for each in told] == [("void", "its run was ended", "c1")]
    await answer(made, other)
    assert statuses(await go_on(made, clock, session="s")) == ["ok"]
    assert world.done == [2]


async def test_a_call_that_waits_already_is_not_parked_a_second_time(clock: VirtualClock) -> None:
    world, told, events = World(), list[Any](), Events("main", clock=clock)
    events.subscribe(CallEvent, told.append)
    made = executor(world, clock, hold=5.0, events=events)
    for _ in range(10):
        result = await made.act(Action((Call("act", {"what": 1}),)), cycle(clock))
        assert statuses(result) == ["skipped parked"]
    assert clock.elapsed == pytest.approx(5.0, abs=0.1)
    assert sum(isinstance(event, ApprovalRequested) for event in told) == 1
    assert sum(isinstance(event, CallSkipped) for event in told) == 10
    await answer(made, (await pending(made))[0])
    assert statuses(await go_on(made, clock)) == ["ok"]
    assert (world.done, made.resumable("main")) == ([1], None)


async def test_what_depends_on_a_call_that_waits_already_goes_on_nowhere_else(clock: VirtualClock) -> None:
    world = World()
    made = executor(world, clock, hold=0.0)
    await made.act(Action((Call("act", {"what": 1}, id="a"),)), cycle(clock))
    plan = (
        Call("act", {"what": 1}, id="a", output_path="†state.a"),
        Call("act", {"what": 2}, id="b", output_path="†state.b"),
        Call("plain", {"what": "†state.a"}, id="c", output_path="†state.c"),
        Call("plain", {"what": ["†state.b.did", "†state.c"]}, id="d"),
        Call("plain", {"what": ["after", "†state.b.did"]}, id="e"),
    )
    assert statuses(await made.act(Action(plan), cycle(clock))) == ["skipped parked"] * 5
    for row in await pending(made, 2):
        await answer(made, row)

    assert statuses(await go_on(made, clock)) == ["ok", "ok", "ok"]
    assert sorted(world.done, key=str) == [1, 2, ["after", 2]]
    assert made.resumable("main") is None


async def test_what_is_too_large_to_be_kept_is_denied_and_its_approval_void(
    clock: VirtualClock, tmp_path: Path
) -> None:
    world = World()
    async with remembering(tmp_path, clock) as memory, executor(world, clock, store=memory, hold=0.0) as made:
        calls = (Call("act", {"what": 1}, id="a"), Call("plain", {"what": "x" * (2 << 20)}, after=("a",)))
        result = await made.act(Action(calls), cycle(clock))

        assert statuses(result) == ["denied denied", "denied denied"]
        assert "could not be kept until its answer: " in result.results[0].fault.message
        assert "too large" in result.results[0].fault.message
        assert [each.status for each in await desk_of(made).list(None)] == ["void"]
        result = await made.act(Action((Call("act", {"what": "x" * (2 << 20)}),)), cycle(clock))
        assert statuses(result) == ["denied denied"]


async def test_a_parked_call_goes_on_with_the_trust_it_had(clock: VirtualClock) -> None:
    world = World()
    made = executor(world, clock, hold=0.0)
    calls = (Call("act", {"what": 1}, id="a"), Call("plain", {"what": 2}, after=("a",)))
    await made.act(Action(calls, trust="trusted"), cycle(clock))
    await answer(made, (await pending(made))[0])
    result = await made.act(Action((*on_hand(made).calls, Call("plain", {"what": 3})), trust="untrusted"), cycle(clock))
    assert statuses(result) == ["ok", "ok", "skipped parked"]
    assert world.done == [1, 2]


async def test_a_call_of_a_later_plan_that_goes_by_the_same_id_gets_nothing_of_the_approval(
    clock: VirtualClock,
) -> None:
    world = World()
    made = executor(world, clock, hold=0.0)
    await made.act(Action((Call("act", {"what": 1}),)), cycle(clock))
    await answer(made, (await pending(made))[0])
    found = on_hand(made)
    forged = Call("act", {"what": 666}, id=found.calls[0].id, meta=dict(found.calls[0].meta))
    assert statuses(await made.act(Action((forged,)), cycle(clock))) == ["skipped parked"]
    assert statuses(await go_on(made, clock)) == ["ok"]
    assert world.done == [1]


async def test_detached_and_gated_calls_use_their_approval_right_before_they_start(clock: VirtualClock) -> None:
    running: list[int] = []

    @tool(approval="ask", concurrency=1)
    async def slow(n: int) -> int:
        running.append(n)
        await clock.sleep(5.0)
        return n

    made = executor(World(), clock, tools=[slow])
    acting = asyncio.ensure_future(made.run([Call("slow", {"n": 1}), Call("slow", {"n": 2}),
                                             Call("slow", {"n": 3}, meta={"_detach": True})]))  # fmt: skip
    for each in await pending(made, 3):
        await answer(made, each)
    await until(lambda: running)
    assert sorted(each.status for each in await desk_of(made).list(None)) == ["approved", "used", "used"]
    assert statuses(await acting) == ["ok", "ok", "ok detached"]
    await made.aclose()
    assert sorted(running) == [1, 2, 3]


async def test_a_denial_stands_though_nobody_would_be_asked_any_more(clock: VirtualClock, tmp_path: Path) -> None:
    world = World()
    async with remembering(tmp_path, clock) as memory:
        async with executor(world, clock, store=memory, hold=0.0, rules=[{"tool": "plain", "decision": "ask"}]) as made:
            await made.act(Action((Call("plain", {"what": 1}),)), cycle(clock))
            await answer(made, (await pending(made))[0], "deny")
        async with executor(world, clock, store=memory) as made:
            assert statuses(await go_on(made, clock)) == ["denied denied"]
    assert world.done == []


def test_the_work_for_those_that_wait_for_a_parked_call_is_proportional_to_their_number() -> None:
    @tool(effect="once", approval="ask")
    async def risky() -> int:
        return 1

    @tool(effect="read")
    async def use(n: Any) -> Any:
        return n

    def run(size: int) -> None:
        dependants = [Call("use", {"n": "†state.a"}, output_path=f"†state.b{number}") for number in range(size)]
        calls = [Call("risky", output_path="†state.a"), *dependants]
        made = Executor([risky, use], settings={"approval": {"hold": 0.0}})
        result = asyncio.run(made.run(calls))
        assert {each.reason for each in result.results} == {"parked"}

    assert growth(run, 60) <= 2.2
