"""Row 10: calls that each need the one before and do nothing, told by `after` and by a reference to what it wrote.

The limit makes a task for each; nothing can be cheaper than going on in the same task.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks import call_peers, graphs
from benchmarks.call_peers import judged
from benchmarks.calling import contender, following, reading
from benchmarks.graphs import batch_of
from benchmarks.harness import Effort, Measured, compare
from benchmarks.table import Goals, Line, compared

CALLS, QUICK_CALLS = 1000, 100
BY_REFERENCE, BY_AFTER = "chained call, by reference", "chained call, by after"
#: What is owed beside a task for each, and the moonshot; what is owed beside a peer.
GOALS: Mapping[str, Goals] = {f"{BY_REFERENCE}, events": (3, 1.5), f"{BY_AFTER}, events": (2, 1)}
BESIDE: Mapping[str, float] = {call_peers.HAMILTON: 0.6}
TASKS, INLINE = "raw asyncio, a task each", "raw asyncio, in one task"


async def measure(effort: Effort) -> list[Line]:
    graph = graphs.chain(QUICK_CALLS if effort.is_quick else CALLS)
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
        owed, moonshot = GOALS.get(name, (None, None))
        lines.append(compared(10, name, measured[name], TASKS, limit, is_limit=True, owed=owed, moonshot=moonshot))
        lines.append(compared(10, name, measured[name], INLINE, measured[INLINE]))
    name = f"{BY_REFERENCE}, events"
    for other in (*others, *missing):
        beside = BESIDE.get(other)
        lines.append(compared(10, name, measured[name], other, measured[other], owed=beside, by=judged(other)))
    return lines
