"""Rows 1 and 2: a whole cycle of four trivial phases, with one subscriber to its eight phase events and with none.

The deadlines of the phases and the account of their durations, which the metrics are read from, are on in both.
"""

from __future__ import annotations

from benchmarks import peers
from benchmarks.counted import counted
from benchmarks.harness import Effort, Measured, compare
from benchmarks.table import Line, compared


async def measure(effort: Effort) -> list[Line]:
    others, missing = peers.installed()
    async with counted(listeners=True) as [heard], counted(listeners=False) as [quiet]:
        measured, limit = await compare({"spar": heard.batch, "spar, quiet": quiet.batch, **others}, peers.raw, effort)
    assert heard.heard, "the subscriber must have been called"
    measured |= {name: Measured(error=reason) for name, reason in missing.items()}
    spar, silent = measured["spar"], measured["spar, quiet"]
    graphs = [measured["LangGraph ainvoke"], measured["LangGraph self-loop"]]
    best = min(graphs, key=lambda graph: float("inf") if graph.error else graph.wall)
    full = "full cycle, 8 events to 1 subscriber"
    return [
        compared(1, full, spar, "raw anyio", limit, is_limit=True, owed=4.5, moonshot=3),
        compared(1, full, spar, "py_trees tick", measured["py_trees tick"], owed=0.75, moonshot=0.5),
        compared(1, full, spar, "LangGraph, the better form", best, owed=1 / 35, moonshot=1 / 100),
        compared(2, "quiet cycle, nobody listens", silent, "raw anyio", limit, is_limit=True, owed=2.5, moonshot=1.8),
    ]
