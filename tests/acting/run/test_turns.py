"""Others have their turn while a run of many calls ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from acting import Executor
from spar import Action, Call, tool
from spar.bus.bus import Events
from spar.data.json_safe.slices import SLICE as SLICE_OF_A_RESULT
from spar.data.json_safe.slices import weigh
from spar.events import CallCompleted, CallSkipped
from spar.protocols import Context, RunContext
from spar.threads import SLICE

COUNT = 1000


@tool(effect="once", approval="ask")
async def risky() -> int:
    return 1


@tool(effect="read")
async def use(n: int) -> int:
    return n


@tool(effect="read")
async def rows(n: int) -> dict[str, list[str]]:
    return {"rows": ["x" * 100] * (n // 100)}


@tool(effect="once")
async def filled() -> list[dict[str, int]]:
    return [{"a": row, "b": row} for row in range(20_000)]


class Turns:
    """Count of the turns that others have had."""

    def __init__(self) -> None:
        self.count = 0

    async def watch(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@pytest.mark.parametrize("calls", [1, 4])
async def test_others_have_their_turn_after_each_slice_of_a_large_result(calls: int) -> None:
    turns = Turns()
    async with Executor([filled]) as executor:
        watcher = asyncio.create_task(turns.watch())
        result = await executor.run([Call("filled") for _ in range(calls)])
        watcher.cancel()

    expected = await filled()
    assert [each.output == expected for each in result.results] == [True] * calls
    assert turns.count >= calls * weigh(expected, 1 << 20) // SLICE_OF_A_RESULT  # copies do not share a turn


@tool(effect="read")
async def count(rows: list[Any], more: Any = None) -> int:
    rows.append(None)  # its own
    return len(rows) + len(more or ())


READERS = [Call("count", {"rows": "†state.rows"}), Call("count", {"rows": [1], "more": ["†state.rows"]})]


@pytest.mark.parametrize("is_earlier", [False, True], ids=["same batch", "earlier cycle"])
async def test_others_have_their_turn_after_each_slice_of_a_large_value_that_is_read(is_earlier: bool) -> None:
    turns, events = Turns(), Events("test")
    ended: list[int] = []  # the turns so far, at the end of each call
    expected, messages = await filled(), ()
    first = Call("filled", output_path="†state.rows")
    async with Executor([filled, count], events=events) as executor:
        events.subscribe(CallCompleted, lambda event: ended.append(turns.count))
        if is_earlier:
            messages = (await executor.act(Action(calls=[first]))).messages
            ended.clear()
        watcher = asyncio.create_task(turns.watch())
        context = Context("test", "c1", run=RunContext("r1", "count", messages=messages))
        begun = turns.count
        result = await executor.act(Action(calls=READERS if is_earlier else [first, *READERS]), context)
        watcher.cancel()

    assert [each.output for each in result.results[-2:]] == [len(expected) + 1, 3]
    assert result.state == {"rows": expected}
    slices = weigh(expected, 1 << 20) // SLICE_OF_A_RESULT
    begun = begun if is_earlier else ended.pop(0)
    assert min(ended) - begun >= slices * (2 if is_earlier else 1)  # of the message, then of the value that it reads
    assert max(ended) - begun >= slices * (3 if is_earlier else 2)  # copies do not share a turn


@pytest.mark.parametrize("ends", ["steered", "cancelled"])
async def test_a_call_whose_large_value_is_being_copied_can_be_kept_from_starting(ends: str) -> None:
    turns, events = Turns(), Events("test")
    first, reader = Call("filled", output_path="†state.rows"), Call("count", {"rows": "†state.rows"})
    async with Executor([filled, count], events=events) as executor:
        is_read = asyncio.Event()
        events.subscribe(CallCompleted, lambda event: is_read.set())
        run = Context("test", "c1", run=RunContext("r1", "count"))
        running = asyncio.create_task(executor.act(Action(id="a1", calls=[first, reader]), run))
        await is_read.wait()
        watcher = asyncio.create_task(turns.watch())
        while turns.count < 8:
            await asyncio.sleep(0)
        if ends == "steered":
            executor.steer("r1")
            result = await running
        else:
            running.cancel()
            await asyncio.wait([running])
            found = executor.interrupted("a1")
            assert found is not None
            result = found
        watcher.cancel()

    assert [each.status for each in result.results] == ["ok", "skipped" if ends == "steered" else "cancelled"]
    assert result.results[1].call.params == {"rows": "†state.rows"}


async def test_a_large_result_of_a_call_that_has_ended_is_kept_whole_when_the_run_is_cancelled() -> None:
    turns = Turns()
    ended: list[CallCompleted] = []
    events = Events("test")
    events.subscribe(CallCompleted, ended.append)
    async with Executor([filled], events=events) as executor:
        running = asyncio.create_task(executor.run([Call("filled")]))
        watcher = asyncio.create_task(turns.watch())
        while turns.count < 8:
            await asyncio.sleep(0)
        assert not ended
        running.cancel()
        await asyncio.wait([running])
        watcher.cancel()

    assert [(event.result.status, event.result.output) for event in ended] == [("ok", await filled())]


async def test_a_large_result_that_exceeds_the_limit_fails_as_a_small_one_does() -> None:
    async with Executor([filled], settings={"largest_result": 100_000}) as executor:
        result = await executor.run([Call("filled")])

    assert result.errors[0]["error"]["kind"] == "too_large"


async def test_others_have_their_turn_while_calls_that_cannot_start_are_given_up() -> None:
    events = Events("test")
    executor = Executor([risky, use], events=events, settings={"approval": {"hold": 0.0}})
    calls = [Call("risky", output_path="†state.a")]
    calls += [Call("use", {"n": "†state.a"}, output_path=f"†state.b{n}") for n in range(COUNT)]
    given_up, most, before = 0, 0, 0

    async def watch() -> None:
        nonlocal most, before
        while True:
            most, before = max(most, given_up - before), given_up
            await asyncio.sleep(0)

    def count(event: object) -> None:
        nonlocal given_up
        given_up += 1

    async with executor:
        events.subscribe(CallSkipped, count)
        watcher = asyncio.create_task(watch())
        result = await executor.run(calls)
        await asyncio.sleep(0)  # the watcher looks once more
        watcher.cancel()

    assert [each.status for each in result.results].count("skipped") >= COUNT
    assert 0 < most <= 100


READING = [Call("use", {"n": n}, output_path=f"†state.b{n}") for n in range(COUNT)]
WAITING = [Call("risky", output_path="†state.a")]
WAITING += [Call("use", {"n": "†state.a"}, output_path=f"†state.b{n}") for n in range(COUNT)]


@pytest.mark.parametrize(
    ("calls", "pieces"),
    [
        (READING, ("messages", "errors")),
        (WAITING, ("errors", "records of parked calls")),
    ],
    ids=["read", "parked"],
)
async def test_others_have_their_turn_while_the_results_of_many_calls_are_put_together(
    calls: list[Call], pieces: tuple[str, ...]
) -> None:
    events = Events("test")
    executor = Executor([risky, use], events=events, settings={"approval": {"hold": 0.0}})
    turns = turns_at_last_end = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def ended(event: object) -> None:
        nonlocal turns_at_last_end
        turns_at_last_end = turns

    async with executor:
        events.subscribe(CallCompleted, ended)
        events.subscribe(CallSkipped, ended)
        watcher = asyncio.create_task(watch())
        result = await executor.run(calls)
        watcher.cancel()

    assert len(result.results) == len(calls)
    assert turns - turns_at_last_end >= len(pieces) * (COUNT // SLICE)
    assert [message.get("kind") for message in result.messages].count("error") == len(result.errors)
    assert len(result.messages) == len({repr(message) for message in result.messages}) == len(calls)
