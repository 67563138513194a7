"""A tool's first step is made in place; what it does there is as if it had a task of its own."""

from __future__ import annotations

import asyncio
import contextvars

import anyio
import anyio.lowlevel
import pytest

from acting import Executor
from spar import Call, CallResult, tool

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
QUICK = {"grace": 0.05}


async def ran(*tools: object, calls: list[Call] | None = None) -> dict[str, CallResult]:
    """The results by tool of one call of each, beside one that must not be touched by what the others do."""

    async def bystander() -> str:
        await asyncio.sleep(0)
        return COLOUR.get()

    made = calls or [Call(getattr(each, "__name__", "")) for each in tools]
    result = await Executor([*tools, bystander], settings=QUICK).run([Call("bystander"), *made, Call("bystander")])
    first, *rest, last = result.results
    assert (first.status, first.output, last.status, last.output) == ("ok", "none", "ok", "none")
    return {each.call.tool: each for each in rest}


async def test_what_it_starts_sees_its_context() -> None:
    async def starts() -> list[str]:
        COLOUR.set("red")

        async def look() -> str:
            return COLOUR.get()

        task = asyncio.create_task(look())
        COLOUR.set("blue")
        return [await task, COLOUR.get()]

    assert (await ran(starts))["starts"].output == ["red", "blue"]


async def test_what_it_sets_stays_its_own_over_its_waits() -> None:
    async def sets(name: str) -> str:
        token = COLOUR.set(name)
        await asyncio.sleep(0)
        found = COLOUR.get()
        COLOUR.reset(token)
        return found

    calls = [Call("sets", {"name": name}) for name in ("red", "blue", "green")]
    result = await Executor([sets]).run(calls)
    assert [each.output for each in result.results] == ["red", "blue", "green"]
    assert COLOUR.get() == "none"


async def test_scopes_groups_and_timeouts_entered_in_its_first_step_hold_what_is_in_them() -> None:
    async def scoped() -> str:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep(60)
        await anyio.lowlevel.checkpoint()
        return "out"

    async def timed() -> str:
        with anyio.move_on_after(0.001):
            await anyio.sleep(60)
        await anyio.lowlevel.checkpoint()
        return "out"

    async def left_open() -> str:
        scope = anyio.CancelScope().__enter__()
        await anyio.lowlevel.checkpoint()
        scope.__exit__(None, None, None)
        return "out"

    async def grouped() -> list[int]:
        found: list[int] = []

        async def one(number: int) -> None:
            await anyio.lowlevel.checkpoint()
            found.append(number)

        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(one, number)
        return found

    async def slow() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        except TimeoutError:
            await asyncio.sleep(0)
            return "late"
        return "never"

    found = await ran(scoped, timed, left_open, grouped, slow)
    outputs = {name: each.output for name, each in found.items()}
    assert outputs == {"scoped": "out", "timed": "out", "left_open": "out", "grouped": [0, 1, 2], "slow": "late"}


async def test_two_tools_that_wait_do_not_share_a_task() -> None:
    async def who() -> bool:
        first = asyncio.current_task()
        await asyncio.sleep(0)
        return first is asyncio.current_task()

    barrier, tasks = asyncio.Barrier(5), set()

    async def meets(number: int) -> None:
        await barrier.wait()
        tasks.add(asyncio.current_task())

    assert (await ran(who))["who"].output is True
    await Executor([meets]).run([Call("meets", {"number": number}) for number in range(5)])
    assert len(tasks) == 5


async def test_the_run_is_cancelled_from_inside_a_first_step() -> None:
    running: list[asyncio.Task[object]] = []

    @tool(effect="read")
    async def ends_all() -> str:
        running[0].cancel()
        return "done"

    executor = Executor([ends_all], settings=QUICK)
    running.append(asyncio.create_task(executor.run([Call("ends_all")])))
    with pytest.raises(asyncio.CancelledError):
        await running[0]
    assert not executor.snapshot()["running"]
