"""A model writes two calls at 50 tokens a second: the time from the last byte of the first to the start of its tool.

The last byte is when the server, another process, has handed it to its socket. What starts the tool is a whole agent:
its planner reads the stream, its executor validates the call, tells its events and runs it.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from benchmarks.harness import Effort
from benchmarks.model_run import AT_ONCE
from benchmarks.model_server import asked_of, serving
from benchmarks.model_shapes import FIRST, FOUND, last_step
from benchmarks.table import Line, amount, number
from planning.llm.planner import ModelPlanner
from planning.llm.provider import ProviderModel
from spar import Agent, tool

OWED = 5.0  # milliseconds
RUNS, QUICK_RUNS = 40, 2


async def measure(effort: Effort) -> list[Line]:
    runs = QUICK_RUNS if effort.is_quick else RUNS
    lines = []
    with serving() as url:
        for mode in FIRST:
            waits = sorted(await waits_of(url, mode, runs))
            p95 = waits[min(int(len(waits) * 0.95), len(waits) - 1)]
            title = f"first call of a streamed plan, {mode}"
            rest = f"{number(1e3 * rest_of(mode))} ms"
            against = "the rest of the plan, which others wait for"
            lines += [
                amount(None, f"{title}, p50", statistics.median(waits), "ms", first=OWED, against=against, other=rest),
                amount(None, f"{title}, p95", p95, "ms", first=OWED, against=against, other=rest),
            ]
    return lines


async def waits_of(url: str, mode: str, runs: int) -> list[float]:
    """Milliseconds, of one run after another."""
    started: list[float] = []

    @tool
    async def look(at: str) -> str:
        started.append(time.perf_counter())
        return f"{FOUND} nothing"

    name = f"first/{mode}"
    model = ProviderModel(name, base_url=url, mode="native" if mode == "native" else "structured")
    try:
        async with Agent(plan=ModelPlanner(model), tools=[look], loop_interval="off", settings=AT_ONCE) as agent:
            for _ in range(runs + 1):
                status = await agent.wait((await agent.submit("look around")).run_id)
                if status.status != "ok":
                    raise RuntimeError(f"a run came back {status.status}: {status.error}")
    finally:
        await model.aclose()
    plans = [each for each in await asyncio.to_thread(asked_of, url) if each["body"]["model"] == name][::2]
    written = [each["times"][last_step(FIRST[mode], 0)] for each in plans]
    waits = [1e3 * (began - end) for began, end in zip(started[::2], written, strict=True)]
    return waits[1:]  # the first makes the connection, too


def rest_of(mode: str) -> float:
    """Seconds from the last byte of the first call to that of the answer."""
    reply = FIRST[mode]
    after = list(reply.steps)[last_step(reply, 0) + 1 :]  # type: ignore[arg-type]
    return sum(not isinstance(step, bytes) for step in after[:-1]) / (reply.rate or 1.0)
