"""Where the time of a row goes, by named step: `python -m benchmarks.profile ROW` (`make profile ROW=9`).

A row is carried out twice: as it is, for its processor time, and under cProfile, which says how that is shared out
among functions. A function's own time, with that of the built-in functions that it calls, is charged to the step of
its file (`STEPS`). What the event loop waits for its selector is left out. The profiler makes calls dearer than they
are, so shares lean towards steps of many short functions; the calls of a unit are exact. Other threads, as the
journal's writer, have a line of their own, measured without the profiler.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import logging
import pstats
import select
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import graphs, model_run, streamed
from benchmarks.calling import bare, contender, following, reading, writing
from benchmarks.counted import counted
from benchmarks.graphs import Dependencies, batch_of, makespan_of
from benchmarks.harness import Batch
from benchmarks.journalled import folder, journalled
from benchmarks.many import together
from benchmarks.publish import async_functions, plain_functions, spar_bus
from benchmarks.table import columns, number
from memory import Memory

ROOT = Path(__file__).parents[1]
#: By the beginning of a file's path from the root: what it is a step of. The longest beginning counts.
STEPS: Mapping[str, str] = {
    "acting/run/checks": "prepare a call",
    "acting/tooling/": "validate parameters",
    "acting/run/holds": "hold a call",
    "acting/approvals/": "hold a call",
    "acting/run/call_state": "attempt a call",
    "acting/run/results": "collect results",
    "acting/run/": "schedule calls",
    "acting/graph/": "find ready calls",
    "acting/": "the executor",
    "spar/bus/": "publish events",
    "spar/events": "publish events",
    "spar/observe/": "account and log",
    "spar/loop/": "turn a cycle",
    "spar/session/": "run a session",
    "spar/agent/": "start, stop, submit",
    "spar/journal/": "record a cycle",
    "spar/records/": "record a cycle",
    "spar/runs/": "run a message",
    "spar/budgets/": "count budgets",
    "spar/health/": "watch health",
    "spar/data/": "read and write state",
    "spar/": "values and clock",
    "memory/": "write the journal",
    "planning/prompt/": "write the request",
    "planning/": "plan",
    "perception/": "perceive",
    "reflection/": "reflect",
    "benchmarks/": "the benchmark itself",
    "asyncio": "event loop",
    "selectors": "event loop",
    "anyio": "event loop",
    "": "libraries",
}
SECONDS = 1.0


@dataclass
class Step:
    """Own seconds and calls of the functions of one step, and the dearest of them."""

    seconds: float = 0.0
    calls: int = 0
    functions: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Profiled:
    """The steps of a row by name, and what a unit costs in seconds of the event loop's thread and of the others."""

    steps: Mapping[str, Step]
    units: int
    loop: float
    threads: float


def step_of(file: str) -> str:
    """Return the step that a file belongs to, by its path."""
    path = Path(file)
    parts = path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else ()
    if not parts or parts[0].startswith("."):
        parts = tuple(part for part in path.with_suffix("").parts if part in ("asyncio", "selectors", "anyio"))[:1]
    name = "/".join(parts)
    return STEPS[max((beginning for beginning in STEPS if name.startswith(beginning)), key=len)]


# -- the rows


@asynccontextmanager
async def cycles(*, listeners: bool) -> AsyncIterator[Batch]:
    async with counted(listeners=listeners) as [agent]:
        yield agent.batch


@asynccontextmanager
async def durable() -> AsyncIterator[Batch]:
    async with journalled(durability="process") as agents:
        yield agents.batch


@asynccontextmanager
async def flushed(agents: int) -> AsyncIterator[Batch]:
    async with journalled(agents, durability="power") as crowd:
        yield crowd.together(5) if agents > 1 else crowd.batch


@asynccontextmanager
async def crowd(agents: int) -> AsyncIterator[Batch]:
    async with counted(agents, listeners=True) as several:
        yield together(several, 20)


def calls(form: Callable[[Dependencies], list], graph: Dependencies, *, listeners: bool = True) -> Row:  # type: ignore[type-arg]
    @asynccontextmanager
    async def row() -> AsyncIterator[Batch]:
        yield batch_of(contender(form, listeners=listeners), graph)

    return row


@asynccontextmanager
async def layered(*, journal: bool) -> AsyncIterator[Batch]:
    graph = graphs.Layered.of(1000, 20)
    with folder() as place:
        async with Memory.open(f"sqlite:///{place}/memory.db", durability="process") as memory:
            records = memory.journal if journal else None
            whole = makespan_of(contender(reading, listeners=journal, journal=records, effect="read"), graph)

            async def batch(calls: int) -> int:
                times = -(-calls // 1000)
                await whole(times)
                return times * 1000

            yield batch


@asynccontextmanager
async def playing(mode: streamed.Mode) -> AsyncIterator[Batch]:
    async def batch(calls: int) -> int:
        times = -(-calls // mode.calls)
        await streamed.played({"spar": streamed.spar}, mode, times)
        return times * mode.calls

    yield batch


@asynccontextmanager
async def runs() -> AsyncIterator[Batch]:
    async with model_run.in_agent(model_run.at_once) as run:
        yield model_run.batch_of(run)


@asynccontextmanager
async def requests() -> AsyncIterator[Batch]:
    async with model_run.alone(model_run.in_two()) as run:
        yield model_run.batch_of(run)


Row = Callable[[], AbstractAsyncContextManager[Batch]]
GRAPH, CHAIN = graphs.independent(1000), graphs.chain(1000)
#: By the word on the command line: what a unit is, and the row of spar alone.
ROWS: Mapping[str, tuple[str, Row]] = {
    "1": ("full cycle", lambda: cycles(listeners=True)),
    "2": ("quiet cycle", lambda: cycles(listeners=False)),
    "3": ("journalled cycle", durable),
    "4": ("flushed cycle, 100 agents", lambda: flushed(100)),
    "5": ("flushed cycle, 1 agent", lambda: flushed(1)),
    "7": ("cycle among 100 agents", lambda: crowd(100)),
    "9": ("independent call, state write, events", calls(writing, GRAPH)),
    "9-bare": ("bare call", calls(bare, GRAPH, listeners=False)),
    "10": ("chained call, by reference, events", calls(reading, CHAIN)),
    "10-after": ("chained call, by after, events", calls(following, CHAIN)),
    "11": ("call of a makespan, 1,000 calls", lambda: layered(journal=False)),
    "12": ("call of a makespan with events and journal", lambda: layered(journal=True)),
    "13": ("streamed call, waiting", lambda: playing(streamed.MODES["waiting"])),
    "13-silent": ("streamed call, the stream silent", lambda: playing(streamed.MODES["silent"])),
    "14": ("publish to a plain subscriber", lambda: spar_bus(plain_functions(1), yields=False)),
    "15": ("publish to an async subscriber", lambda: spar_bus(async_functions(1), yields=True)),
    "run": ("run of one request and one call", runs),
    "requests": ("two requests and a call by planning.Requests", requests),
}


# -- measuring


async def profiled(row: Row, seconds: float = SECONDS) -> Profiled:
    """Carry out a row as it is and under the profiler, for about so many seconds each."""
    profiler = cProfile.Profile()
    async with row() as batch:
        await batch(1)
        began = time.perf_counter()
        some = await batch(20) or 20
        units = max(1, round(some * seconds / (time.perf_counter() - began)))
        process, thread = time.process_time(), time.thread_time()
        done = await batch(units) or units
        loop = (time.thread_time() - thread) / done
        threads = (time.process_time() - process) / done - loop
        profiler.enable()
        try:
            counted_units = await batch(units) or units
        finally:
            profiler.disable()
    return Profiled(by_step(profiler), counted_units, loop, max(threads, 0.0))


def by_step(profiler: cProfile.Profile) -> dict[str, Step]:
    """Return the own time of each step; built-in functions are charged to the functions that called them."""
    steps: dict[str, Step] = {}
    for (file, line, name), (_, calls, own, _, callers) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        if file == "~":
            most = poll_seconds() if "'poll' of 'select." in name else float("inf")
            for (caller_file, caller_line, caller), (_, times, part, _) in callers.items():
                if caller_file != "~":
                    charge(steps, caller_file, f"{caller}:{caller_line}", min(part, most * times))
        elif "_lsprof" not in name:
            charge(steps, file, f"{name}:{line}", own)
            steps[step_of(file)].calls += calls
    return steps


def poll_seconds() -> float:
    """Return the seconds of a look at a selector that does not wait: more than that is no work of the processor."""
    with select.epoll() as selector:
        began = time.perf_counter()
        for _ in range(1000):
            selector.poll(0)
        return (time.perf_counter() - began) / 1000


def charge(steps: dict[str, Step], file: str, function: str, seconds: float) -> None:
    step = steps.setdefault(step_of(file), Step())
    step.seconds += seconds
    step.functions[f"{Path(file).stem}.{function}"] += seconds  # type: ignore[assignment]


def rendered(title: str, profiled: Profiled, functions: int) -> str:
    """Return the table: a line for each step, the dearest first, and so many functions of each."""
    whole = sum(step.seconds for step in profiled.steps.values())
    rows = [("step", "share", "µs", "calls", "mostly in")]
    for name, step in sorted(profiled.steps.items(), key=lambda item: -item[1].seconds):
        share = step.seconds / whole
        most = ", ".join(function for function, _ in step.functions.most_common(functions))
        rows.append(
            (name, f"{share:.0%}", number(share * profiled.loop * 1e6), f"{step.calls / profiled.units:.1f}", most)
        )
    total = sum(step.calls for step in profiled.steps.values()) / profiled.units
    rows.append(("all of the loop's thread", "100%", number(profiled.loop * 1e6), f"{total:.1f}", ""))
    rows.append(("other threads", "", number(profiled.threads * 1e6), "", ""))
    return f"{title}: processor time of a unit, by step\n\n{columns(rows)}"


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description="Where the time of a row goes.")
    parser.add_argument("row", choices=ROWS, metavar="ROW", help=f"one of {', '.join(ROWS)}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long to measure (default %(default)s)")
    parser.add_argument("--functions", type=int, default=3, help="how many functions of a step to name (default 3)")
    given = parser.parse_args(None if arguments is None else list(arguments))
    logging.disable(logging.CRITICAL)
    title, row = ROWS[given.row]
    print(rendered(f"row {given.row}, {title}", asyncio.run(profiled(row, given.seconds)), given.functions))


if __name__ == "__main__":
    main()
