"""Rows 11 and 12: how long a layered random graph of calls that sleep for 0 to 20 ms takes, against its longest path.

Every schedule pays for the timers of the event loop: asyncio's round each sleep up to a whole millisecond, which is
most of what the raw countdown is above 1. The time of the processor is what decides for larger graphs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from benchmarks import call_peers, graphs
from benchmarks.calling import contender, reading
from benchmarks.graphs import Layered, makespan_of
from benchmarks.harness import Effort, Measured, compare
from benchmarks.journalled import folder
from benchmarks.table import Line, amount, compared, number, shown, times_of
from memory import Memory

RAW, INLINE, QUIET, HEARD = "raw asyncio, a task each", "raw asyncio, in line", "nobody listens", "events"
KEPT, KEPT_FIRST = "events and journal", "events and journal, each call on record before it starts"


@dataclass(frozen=True)
class Goals:
    """How many times the longest path is owed, without and with events and journal; the moonshot is one of uvloop."""

    path: float
    path_moonshot: float
    told: float
    told_moonshot: float
    faster_than_llmcompiler: float


SMALL, LARGE = Goals(1.07, 1.03, 1.10, 1.05, 1.25), Goals(1.15, 1.06, 1.3, 1.1, 1.9)


async def measure(effort: Effort) -> list[Line]:
    if effort.is_quick:
        return await graph_of(200, 4, SMALL, effort.at_most(1))
    lines = await graph_of(1000, 20, SMALL, effort.at_most(5))
    return lines + await graph_of(10_000, 50, LARGE, effort.at_most(3))


async def graph_of(calls: int, layers: int, goals: Goals, effort: Effort) -> list[Line]:
    graph = Layered.of(calls, layers)
    others, missing = call_peers.layered(graph, with_langgraph=calls <= 1000)
    with folder() as place:
        async with Memory.open(f"sqlite:///{place}/memory.db", durability="process") as memory:
            own = {
                QUIET: contender(reading, listeners=False),
                HEARD: contender(reading, listeners=True),
                KEPT: contender(reading, listeners=True, journal=memory.journal, effect="read"),
                KEPT_FIRST: contender(reading, listeners=True, journal=memory.journal),
                INLINE: graphs.inline,
            }
            contenders = {name: makespan_of(carry_out, graph) for name, carry_out in own.items()}
            measured, limit = await compare({**contenders, **others}, makespan_of(graphs.task_per_call, graph), effort)
    measured |= {name: Measured(error=reason) for name, reason in missing.items()}
    quiet, kept = measured[QUIET], measured[KEPT]
    title = f"makespan, {calls:,} calls"
    told = f"{title}, {KEPT}"
    uvloop = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
    path = {"owed": goals.path, "moonshot": goals.path_moonshot if uvloop else None}
    compiler = measured[call_peers.SCHEDULE]
    lines = [
        compared(11, title, quiet, RAW, limit, is_limit=True, by="wall"),
        compared(11, title, quiet, INLINE, measured[INLINE], by="wall"),
        over_path(11, title, quiet, graph, **path),
        over_path(11, f"{title}: {RAW}", limit, graph),
        compared(11, title, quiet, call_peers.SCHEDULE, compiler, owed=1 / goals.faster_than_llmcompiler, by="wall"),
        compared(12, f"{title}, {HEARD}", measured[HEARD], RAW, limit, is_limit=True, by="wall"),
        compared(12, told, kept, RAW, limit, is_limit=True, by="wall"),
        compared(12, f"{title}, {KEPT_FIRST}", measured[KEPT_FIRST], RAW, limit, is_limit=True, by="wall"),
        over_path(12, told, kept, graph, owed=goals.told, moonshot=goals.told_moonshot),
        processor(12, told, kept, limit, calls),
    ]
    if call_peers.GRAPH in measured:
        lines.insert(5, compared(11, title, quiet, call_peers.GRAPH, measured[call_peers.GRAPH], by="wall"))
    return lines


def over_path(
    row: int,
    measure: str,
    measured: Measured,
    graph: Layered,
    *,
    owed: float | None = None,
    moonshot: float | None = None,
) -> Line:
    """The makespan as a multiple of the longest path."""
    path = graph.critical_path
    spread = [cost.wall / path for cost in measured.own]
    return Line(
        row,
        measure,
        times_of(measured),
        "the longest path",
        f"{number(path * 1e3)} ms",
        measured.wall / path,
        spread=f"{shown(min(spread))}–{shown(max(spread))}",
        owed=owed,
        moonshot=moonshot,
        is_limit=True,
    )


def processor(row: int, measure: str, measured: Measured, limit: Measured, calls: int) -> Line:
    """Time of the processor for each call."""
    own, other = (each.cpu * 1e6 / calls for each in (measured, limit))
    title = f"{measure}: processor, a call"
    return amount(row, title, own, "µs", owed=60, moonshot=30, against=RAW, other=f"{number(other)} µs", by="cpu")
