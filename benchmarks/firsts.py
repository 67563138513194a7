"""What is paid once: a tool made from a function, the first call of `http`, the first turn of a model after the start.

A tool is made, and called once, because what checks its parameters may be made as late as that. The first call and the
first turn each have a process of their own, which has just started its executor or its agent; a call of a tool made
by hand, or the same bytes read by hand, is the least.

    python -m benchmarks.firsts http|turn|hand URL
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import FunctionType
from typing import Any
from urllib.parse import urlsplit

from benchmarks.footprint import run
from benchmarks.harness import Batch, Effort, Measured, compare
from benchmarks.model_run import AT_ONCE
from benchmarks.model_server import serving
from benchmarks.model_shapes import FOUND
from benchmarks.table import Goals, Line, compared, number
from spar import Agent, Call, tool
from spar.service.garbage import Collections, work_of

#: Seconds: what is owed, and the moonshot.
FIRSTS: dict[str, tuple[str, Goals]] = {
    "http": ("first call of http", (0.1, None)),
    "turn": ("first turn of a model after the start", (0.6, None)),
}
TOOL: Goals = (600, 300)  # microseconds
PYDANTIC_AI = "pydantic-ai Tool"
BY_HAND = "the same bytes read by hand"


async def measure(effort: Effort) -> list[Line]:
    return await made(effort) + await asyncio.to_thread(begun, 1 if effort.is_quick else 5)


# -- a tool


async def look(at: str, limit: int = 10, deep: bool = False) -> str:
    """Look for something.

    Args:
        at: where to look
        limit: how many to return
        deep: whether to look below
    """
    return at


def copies(count: int) -> list[Any]:
    """Return so many functions that nobody has seen before, alike but for their names."""
    made = []
    for place in range(count):
        copy = FunctionType(look.__code__, look.__globals__, f"look_{place}", look.__defaults__)
        copy.__doc__, copy.__annotations__ = look.__doc__, dict(look.__annotations__)
        made.append(copy)
    return made


async def made(effort: Effort) -> list[Line]:
    from acting import Executor

    async def spar(count: int) -> None:
        functions = copies(count)
        async with Executor([tool(effect="read")(function) for function in functions]) as executor:
            result = await executor.run([Call(function.__name__, {"at": "x"}) for function in functions])
        assert result.status == "ok", result.errors[:1]

    contenders: dict[str, Batch] = {"spar": spar}
    missing = ""
    try:
        from pydantic_ai import Tool
    except ImportError as error:
        missing = f"not installed ({error.name})"
    else:

        async def pydantic_ai(count: int) -> None:
            for function in copies(count):
                Tool(function)

        contenders[PYDANTIC_AI] = pydantic_ai

    async def called(count: int) -> None:
        for function in copies(count):
            await function("x")

    measured, limit = await compare(contenders, called, effort)
    title, micros = "tool made from a function, and its first call", measured["spar"].cpu * 1e6
    owed, moonshot = TOOL
    line = compared(None, title, measured["spar"], "the function made and called", limit, is_limit=True)
    peer = measured.get(PYDANTIC_AI, Measured(error=missing))
    return [
        line,
        Line(None, title, f"{number(micros)} µs", "", value=micros, unit="µs", owed=owed, moonshot=moonshot, by="cpu"),
        compared(None, title, measured["spar"], PYDANTIC_AI, peer),
    ]


# -- what a process does for the first time


def begun(times: int) -> list[Line]:
    lines = []
    with serving() as url:
        least = first_of("hand", url, times)
        for kind, (title, (owed, moonshot)) in FIRSTS.items():
            wall, cpu = first_of(kind, url, times)
            own, other = (f"{number(1e3 * pair[0])} ({number(1e3 * pair[1])}) ms" for pair in ((wall, cpu), least))
            line = Line(None, title, own, BY_HAND, other, wall, "s", cpu=cpu, is_limit=True, by="cpu")
            lines.append(replace(line, owed=owed, moonshot=moonshot))
    return lines


def first_of(kind: str, url: str, times: int) -> tuple[float, float]:
    """Return the usual seconds on the wall and of the processor."""
    costs = [run("-m", "benchmarks.firsts", kind, url) for _ in range(times)]
    return statistics.median(cost[0] for cost in costs), statistics.median(cost[1] for cost in costs)


async def timed(work: Callable[[], Awaitable[object]]) -> None:
    """Print what it takes, on the wall and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)


async def http(url: str) -> None:
    from acting import Executor
    from acting.tools.http import HttpTool

    async def call() -> None:
        result = await executor.run([Call("http", {"url": f"{url}/asked"})])
        assert result.status == "ok", result.errors

    place = urlsplit(url).netloc
    async with Executor([HttpTool(allow=[place])]) as executor:
        await timed(call)


async def turn(url: str) -> None:
    from planning.llm.planner import ModelPlanner
    from planning.llm.provider import ProviderModel

    async def ask() -> None:
        status = await agent.wait((await agent.submit(f"{FOUND} nothing")).run_id)
        assert status.status == "ok", status

    model = ProviderModel("first/native", base_url=url)
    async with Agent(plan=ModelPlanner(model), loop_interval="off", settings=AT_ONCE) as agent:
        Collections(lambda: work_of(agent)).begin()  # as in the service
        await timed(ask)
    await model.aclose()


async def hand(url: str) -> None:
    place = urlsplit(url)

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(f"GET {place.path}/asked HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()

    await timed(ask)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run({"http": http, "turn": turn, "hand": hand}[sys.argv[1]](sys.argv[2]))
