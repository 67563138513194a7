"""Whoever follows one run finds its calls by its id, in every event that they have."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from acting import Executor, ToolContext
from spar.bus.bus import Events
from spar.errors import TransientError
from spar.events import CallEvent
from spar.protocols import Context, RunContext
from spar.protocols.tools import tool
from spar.testing import VirtualClock
from spar.types import Action, Call, replace
from tests.acting.approval_tools import World, answer, executor, on_hand, pending
from tests.waiting import until


def heard(events: Events) -> list[CallEvent]:
    told: list[CallEvent] = []
    events.subscribe(CallEvent, told.append)
    return told


def names(told: list[CallEvent]) -> list[str]:
    return [type(event).__name__.removeprefix("Call") for event in told]


@pytest.mark.parametrize("run_id", ["r1", None])
async def test_every_event_of_a_call_names_its_run_also_of_one_that_nobody_waits_for(run_id: str | None) -> None:
    events = Events("main")
    told = heard(events)

    @tool(approval="ask")
    async def work(context: ToolContext) -> None:
        context.progress(1)

    @tool(detach=True)
    async def later() -> None: ...

    made = Executor([work, later], events=events)
    made.confirm = lambda call: True
    calls = (Call("work"), Call("gone"), Call("late", after=("x",)), Call("later"))
    run = RunContext(run_id, "goal") if run_id else None
    await made.act(Action(calls), Context("main", "c1", "s", run=run))
    await made.aclose()

    assert {"Proposed", "Started", "Progressed", "Completed", "Failed", "ApprovalRequested",
            "ApprovalResolved"} <= set(names(told))  # fmt: skip
    assert names([event for event in told if event.call.tool == "later"]) == ["Proposed", "Started", "Completed"]
    assert {event.run_id for event in told} == {run_id}


async def test_what_people_are_asked_and_what_goes_on_after_it_belong_to_the_run_that_planned_it(
    clock: VirtualClock,
) -> None:
    events = Events("main", clock=clock)
    told = heard(events)
    made = executor(World(), clock, hold=0.0, expires=60.0, events=events)

    async def act(action: Action, run: str | None, cycle: str) -> Any:
        context = RunContext(run, "goal") if run else None
        return await made.act(action, Context("main", cycle, "s", run=context))

    await act(Action((Call("act", {"what": 1}), Call("act", {"what": 2}))), "r1", "c1")
    first, _ = await pending(made, 2)
    await answer(made, first)
    await act(on_hand(made, "s"), None, "c2")
    await clock.advance(120.0)
    await until(lambda: "ApprovalExpired" in names(told))

    assert {"Proposed", "Started", "Completed", "Skipped", "ApprovalRequested", "ApprovalResolved"} <= set(names(told))
    assert {event.run_id for event in told} == {"r1"}


# -- what a run of calls leaves in memory


def independent(count: int) -> list[Call]:
    return [Call("work", {"number": at}, output_path=f"†state.a.v{at}") for at in range(count)]


def one_after_another(count: int) -> list[Call]:
    return [Call("work", {"number": at}, id=f"c{at}", after=(f"c{at - 1}",) if at else ()) for at in range(count)]


def by_reference(count: int) -> list[Call]:
    first = Call("work", {"number": 0}, output_path="†state.v0")
    return [
        first,
        *[Call("work", {"number": f"†state.v{at - 1}"}, output_path=f"†state.v{at}") for at in range(1, count)],
    ]


def backwards(count: int) -> list[Call]:
    return by_reference(count)[::-1]


def with_alternatives(count: int) -> list[Call]:
    reads = [Call("work", {"number": "†state.v1 || †state.none || †state.v0"}) for _ in range(count)]
    return [*by_reference(2), *reads]


@pytest.mark.parametrize("calls", [independent, one_after_another, by_reference, backwards, with_alternatives])
async def test_a_run_that_has_ended_leaves_nothing_to_the_garbage_collector(calls: Callable[[int], list[Call]]) -> None:
    async def work(number: int) -> int:
        return number

    async def left_by(count: int) -> int:
        gc.collect()
        gc.disable()
        try:
            assert (await executor.run(calls(count))).status == "ok"
            return gc.collect()
        finally:
            gc.enable()

    gc.collect()
    gc.freeze()  # what other tests hold is not looked through each time
    executor = Executor([work])
    await left_by(10)
    assert await left_by(200) <= await left_by(10) + 10


HOWEVER = {
    "a cycle": [Call("work", id="a", after=("b",)), Call("work", id="b", after=("a",))],
    "values that never come": [Call("work", {"number": "†state.a"}, output_path="†state.b"),
                               Call("work", {"number": "†state.b"}, output_path="†state.a")],
    "a failure": [Call("fail", id="a", output_path="†state.a || †state.error"), Call("work", {"number": "†state.a"})],
    "late": [Call("deaf"), Call("wait", {"seconds": 100})],
    "cut off": [Call("hang", id="a"), Call("work", after=("a",)), Call("large"), Call("ask")],
    "detached": [Call("soon"), Call("work")],
}  # fmt: skip


@pytest.mark.parametrize("calls", HOWEVER.values(), ids=HOWEVER.keys())
async def test_no_call_stays_in_memory_however_it_ends(calls: list[Call]) -> None:
    async def work(number: int = 0) -> int:
        return number

    @tool(effect="read", retries=2)
    async def fail() -> None:
        raise TransientError("not now", retry_after=0.001)

    @tool(timeout=0.01)
    async def deaf() -> None:
        for _ in range(3):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.03)

    @tool(effect="read", timeout=0.01, retries=1)
    async def wait(seconds: float, context: ToolContext) -> None:
        await asyncio.sleep(seconds)

    async def hang(context: ToolContext) -> None:
        await asyncio.sleep(100)

    async def large() -> list[int]:
        return list(range(1_000_000))

    @tool(approval="ask")
    async def ask() -> None: ...

    @tool(detach=True)
    async def soon() -> None:
        await asyncio.sleep(100)

    async def live() -> None:
        executor = Executor([work, fail, deaf, wait, hang, large, ask, soon], settings={"grace": 0.01, "drain": 0.01})
        executor.confirm = lambda call: asyncio.sleep(100)
        running = asyncio.ensure_future(executor.run([replace(call) for call in calls]))
        await asyncio.wait([running], timeout=0.05)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await executor.aclose()

    def count() -> int:
        gc.collect()
        return sum(type(item) is Call for item in gc.get_objects())

    before = count()
    for _ in range(5):
        await live()
    await until(lambda: count() <= before)  # once those that were left behind have ended
