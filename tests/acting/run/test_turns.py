"""Others have their turn while a run of many calls ends."""

from __future__ import annotations

import asyncio

from acting import Executor
from spar import Call, tool
from spar.bus.bus import Events
from spar.events import CallSkipped

COUNT = 1000


@tool(effect="once", approval="ask")
async def risky() -> int:
    return 1


@tool(effect="read")
async def use(n: int) -> int:
    return n


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
