"""Whether the cost of a call stays what it is when a run has many: 1,000, 10,000 and 100,000 calls in one run.

The work is to be in proportion to calls and references: whatever looks at all that remains would be ten or a hundred
times dearer here. What also grows is the heap that the garbage collector walks and that no cache holds, for the raw
countdown as well, which is therefore measured beside.
"""

from __future__ import annotations

from benchmarks import graphs
from benchmarks.calling import contender, reading
from benchmarks.graphs import batch_of
from benchmarks.harness import Batch, Effort, Measured, frozen, timed
from benchmarks.table import Line, compared

FEW, MANY = 1000, (10_000, 100_000)
QUICK_FEW, QUICK_MANY = 100, (200,)
SHAPES = {
    "independent calls": (9, graphs.independent),
    "one writer, many readers": (9, graphs.one_writer),
    "chain by reference": (10, graphs.chain),
}


async def measure(effort: Effort) -> list[Line]:
    first, many = (QUICK_FEW, QUICK_MANY) if effort.is_quick else (FEW, MANY)
    lines: list[Line] = []
    for title, (row, shape) in SHAPES.items():
        spar, raw = (
            {calls: batch_of(carry_out, shape(calls)) for calls in (first, *many)}
            for carry_out in (contender(reading, listeners=False), graphs.task_per_call)
        )
        with frozen():
            for _ in range(2):
                await spar[first](first)
            measured = [[await grown(each, first, calls, effort) for each in (spar, raw)] for calls in many]
        for calls, (own, other) in zip(many, measured, strict=True):
            few = Measured(own.limit)
            name = f"{title}, {calls:,} in a run"
            lines.append(compared(row, name, own, f"{first:,} in a run", few, is_limit=True, owed=3))
            lines.append(
                compared(row, f"{name}: raw", other, f"{first:,} in a run", Measured(other.limit), is_limit=True)
            )
    return lines


async def grown(batches: dict[int, Batch], few: int, many: int, effort: Effort) -> Measured:
    """A run of many calls beside short runs, ten of them: the first one pays for memory that was given back."""
    measured = Measured()
    for _ in range(effort.at_most(2).rounds):
        measured.limit.append(await timed(batches[few], 10 * few))
        measured.own.append(await timed(batches[many], many))
    return measured
