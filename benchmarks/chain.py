"""Row 10: calls that each need the one before and do nothing, told by `after` and by a reference to what it wrote.

The limit makes a task for each; nothing can be cheaper than going on in the same task.
"""

from __future__ import annotations

from benchmarks import call_peers, graphs
from benchmarks.calling import contender, following, reading
from benchmarks.graphs import batch_of
from benchmarks.harness import Effort, Measured, compare
from benchmarks.table import Line, compared

CALLS = 1000
BY_REFERENCE, BY_AFTER = "chained call, by reference", "chained call, by after"
TASKS, INLINE = "raw asyncio, a task each", "raw asyncio, in one task"


async def measure(effort: Effort) -> list[Line]:
    graph = graphs.chain(CALLS)
    others, missing = call_peers.chains()
    own = {
        f"{name}, {heard}": contender(form, listeners=listeners)
        for name, form in ((BY_AFTER, following), (BY_REFERENCE, reading))
        for heard, listeners in (("events", True), ("nobody listens", False))
    }
    contenders = {name: batch_of(carry_out, graph) for name, carry_out in (own | {INLINE: graphs.inline}).items()}
    measured, limit = await compare({**contenders, **others}, batch_of(graphs.task_per_call, graph), effort.at_most(7))
    measured |= {name: Measured(error=reason) for name, reason in missing.items()}
    lines: list[Line] = []
    for name in own:
        lines.append(compared(10, name, measured[name], TASKS, limit, is_limit=True, first=1))
        lines.append(compared(10, name, measured[name], INLINE, measured[INLINE], then=2))
    name = f"{BY_REFERENCE}, events"
    return lines + [
        compared(10, name, measured[name], other, measured[other], by=call_peers.judged(other))
        for other in (*others, *missing)
    ]
