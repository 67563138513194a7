"""A model writes two calls at 50 tokens a second: the time from the last byte of the first to the start of its tool.

The last byte is when the server, another process, has handed it to its socket. What starts the tool is a whole agent:
its planner reads the stream, its executor validates the call, tells its events and runs it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import Any
from urllib.parse import urlsplit

from benchmarks.harness import Effort
from benchmarks.model_run import AT_ONCE
from benchmarks.model_server import asked_of, serving
from benchmarks.model_shapes import FIRST, FOUND, last_step
from benchmarks.table import Line, amount, number
from planning.llm.planner import ModelPlanner
from planning.llm.provider import ProviderModel
from spar import Agent, tool

OWED = 5.0  # milliseconds
BY_HAND, REST = "the same bytes read by hand", "the rest of the plan, which others wait for"
RUNS, QUICK_RUNS = 40, 2


async def measure(effort: Effort) -> list[Line]:
    runs = QUICK_RUNS if effort.is_quick else RUNS
    lines = []
    with serving() as url:
        for mode in FIRST:
            waits, raw = await waits_of(url, mode, runs)
            title = f"first call of a streamed plan, {mode}"
            rest = f"{number(1e3 * rest_of(mode))} ms"
            for share, of in (("p50", statistics.median), ("p95", p95_of)):
                own, least, name = of(waits), f"{number(of(raw))} ms", f"{title}, {share}"
                lines += [
                    amount(None, name, own, "ms", owed=OWED, against=BY_HAND, other=least, is_limit=True),
                    amount(None, name, own, "ms", against=REST, other=rest),
                ]
    return lines


def p95_of(waits: list[float]) -> float:
    return sorted(waits)[min(int(len(waits) * 0.95), len(waits) - 1)]


async def waits_of(url: str, mode: str, runs: int) -> tuple[list[float], list[float]]:
    """Milliseconds, of one run after another: spar's, and those of a client that only reads."""
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
    plans = [asked for asked in await asyncio.to_thread(asked_of, url) if asked["body"]["model"] == name][::2]
    least = [await read_by_hand(url, plans[0]["body"], mode) for _ in range(runs)]
    asked = (await asyncio.to_thread(asked_of, url))[-runs:]
    waits = waits_since(plans, mode, started[::2])
    return waits[1:], waits_since(asked, mode, least)  # spar's first makes the connection, too


def waits_since(asked: list[dict[str, Any]], mode: str, began: list[float]) -> list[float]:
    """Return the milliseconds from the last byte of the first call, as the server has it, to each of these moments."""
    written = [request["times"][last_step(FIRST[mode], 0)] for request in asked]
    return [1e3 * (begin - end) for begin, end in zip(began, written, strict=True)]


async def read_by_hand(url: str, body: dict[str, Any], mode: str) -> float:
    """Ask on a connection of its own. Returns: when the last byte of the first call was read."""
    place = urlsplit(url)
    content = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(f"POST {place.path}/chat/completions HTTP/1.1\r\nHost: {place.netloc}\r\n".encode())
    writer.write(f"Content-Length: {len(content)}\r\n\r\n".encode() + content)
    steps = list(FIRST[mode].steps)[: last_step(FIRST[mode], 0) + 1]  # type: ignore[arg-type]
    left = sum(not isinstance(step, bytes) for step in steps)
    while left:
        left -= (await reader.readline()).startswith(b"data:")
    read_at = time.perf_counter()
    while b"[DONE]" not in await reader.readline():
        pass
    writer.close()
    return read_at


def rest_of(mode: str) -> float:
    """Seconds from the last byte of the first call to that of the answer."""
    reply = FIRST[mode]
    after = list(reply.steps)[last_step(reply, 0) + 1 :]  # type: ignore[arg-type]
    return sum(not isinstance(step, bytes) for step in after[:-1]) / (reply.rate or 1.0)
