import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from acting import Executor
from spar.ports.any_part import has
from spar.ports.phases import OptionalActor
from spar.protocols.tools import tool
from spar.types import Action, ActionResult, Call
from tests.waiting import cancelled, until

log: list[str] = []


@tool(effect="read")
async def note(text: Any, seconds: float = 0) -> Any:
    log.append(f"+{text}")
    await asyncio.sleep(seconds)
    log.append(f"-{text}")
    return text


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    log.clear()


def statuses(result: ActionResult) -> list[str]:
    return [f"{each.status} {each.reason}".strip() for each in result.results]


async def test_a_call_that_is_freed_starts_while_the_stream_is_silent() -> None:
    async def plan() -> AsyncIterator[Any]:
        yield {"_tool": "note", "text": "†state.x"}
        yield {"_tool": "note", "text": "made", "_outputPath": "†state.x"}
        await until(lambda: log.count("-made") == 2)

    result = await asyncio.wait_for(Executor([note]).run(plan()), 30)

    assert [each.output for each in result.results] == ["made", "made"]


async def test_an_action_is_filled_with_the_calls_as_they_came() -> None:
    async def plan() -> AsyncIterator[Call]:
        for at in range(3):
            yield Call("note", {"text": at}, id=str(at))

    executor = Executor([note])
    action = Action(goal="g")
    result = await executor.act_stream(action, plan())

    assert has(executor, OptionalActor.act_stream)
    assert (result.action.id, result.action.goal, [call.id for call in result.action.calls]) == (
        action.id,
        "g",
        ["0", "1", "2"],
    )


async def test_streamed_and_whole_plans_come_to_the_same() -> None:
    calls = [
        Call("note", {"text": "†state.b"}, id="1", output_path="†state.c"),
        Call("note", {"text": "x"}, id="2", output_path="†state.a"),
        Call("note", {"text": "†state.a"}, id="3", output_path="†state.b"),
        Call("nope", id="4"),
        Call("note", {"text": 1}, id="5", after=("4",)),
    ]

    async def plan() -> AsyncIterator[Call]:
        for call in calls:
            await asyncio.sleep(0)
            yield call

    executor = Executor([note])
    whole, streamed = await executor.run(calls), await executor.run(plan())

    assert statuses(whole) == statuses(streamed) == ["ok", "ok", "ok", "failed", "skipped dep_failed"]
    assert whole.state == streamed.state == {"a": "x", "b": "x", "c": "x"}


async def test_when_the_stream_breaks_what_had_started_ends_and_nothing_further_starts() -> None:
    async def plan() -> AsyncIterator[Call]:
        yield Call("note", {"text": "started", "seconds": 0.01}, id="s")
        yield Call("note", {"text": "later"}, after=("s",))
        await asyncio.sleep(0)
        raise ConnectionError("the model is gone")

    result = await Executor([note]).run(plan())

    assert log == ["+started", "-started"]
    assert statuses(result) == ["ok", "skipped dep_failed"]
    assert (result.fault.kind, result.fault.message, result.status) == ("transient", "the model is gone", "partial")


async def test_a_list_that_breaks_off_is_a_fault_as_well() -> None:
    def plan() -> Any:
        yield Call("note", {"text": 1})
        raise RuntimeError("no more")

    result = await Executor([note]).run(plan())

    assert result.fault.message == "no more"
    assert len(result.results) == 1


async def test_what_waits_for_a_slot_when_the_stream_breaks_is_skipped() -> None:
    async def plan() -> AsyncIterator[Call]:
        for at in range(3):
            yield Call("note", {"text": at, "seconds": 0.01})
        await asyncio.sleep(0)
        raise ConnectionError

    executor = Executor([note], settings={"max_parallel": 1})
    result = await asyncio.wait_for(executor.run(plan()), 30)

    assert statuses(result) == ["ok", "skipped dep_failed", "skipped dep_failed"]
    assert statuses(await asyncio.wait_for(executor.run([Call("note", {"text": 1})]), 30)) == ["ok"]


async def test_cancelling_while_the_stream_is_open_cancels_everything() -> None:
    closed = False

    async def plan() -> AsyncIterator[Call]:
        nonlocal closed
        try:
            yield Call("note", {"text": 1, "seconds": 5})
            await asyncio.Event().wait()
        finally:
            closed = True

    run = asyncio.create_task(Executor([note]).run(plan()))
    await until(lambda: bool(log))
    await cancelled(run)
    assert closed
    assert log == ["+1"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@tool(effect="read", on_error="branch")
async def fail() -> None:
    raise RuntimeError("no")


async def test_a_join_waits_for_the_end_of_the_stream_since_a_later_call_may_still_write_the_other_branch() -> None:
    async def plan() -> AsyncIterator[Call]:
        yield Call("fail", output_path="†state.a")
        yield Call("note", {"text": "†state.a || †state.b"}, id="join")
        yield Call("note", {"text": "go on"}, id="free")
        await until(lambda: "-go on" in log)
        yield Call("note", {"text": "late"}, output_path="†state.b")

    result = await asyncio.wait_for(Executor([note, fail]).run(plan()), 30)

    assert result.result("join").output == "late"
