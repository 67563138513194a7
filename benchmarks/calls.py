"""Row 9: a thousand calls that need nothing of one another and do nothing.

What is owed is the whole of it: a validated parameter, a write to the state, three events to a subscriber each, a
result and a message. The smaller forms say what part of that costs how much.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks import call_peers, graphs
from benchmarks.call_peers import judged
from benchmarks.calling import bare, contender, writing
from benchmarks.graphs import batch_of, independent
from benchmarks.harness import Effort, Measured, compare
from benchmarks.table import Goals, Line, compared

CALLS, QUICK_CALLS = 1000, 100
FULL, UNHEARD = "independent call, state write, events", "the same, nobody listens"
BARE = "bare call: no parameter, no write, nobody listens"
RAW, ANYIO = "raw asyncio, a task each", "anyio task group"

#: What is owed beside the limit and beside the peers, and the moonshot.
LIMITED: Mapping[str, Goals] = {FULL: (3, 2), UNHEARD: (None, None), BARE: (2.2, 1.5)}
BESIDE: Mapping[str, Goals] = {
    call_peers.SEND: (1 / 10, None),
    call_peers.SCHEDULE: (1 / 1.5, None),
    call_peers.STREAMED: (None, None),
    call_peers.HAMILTON: (0.65, 0.4),
    call_peers.TOOL_NODE: (None, None),
    call_peers.PYDANTIC_AI: (None, None),
    call_peers.OPENAI_AGENTS: (None, None),
}


async def measure(effort: Effort) -> list[Line]:
    graph = independent(QUICK_CALLS if effort.is_quick else CALLS)
    others, missing = call_peers.independents(graph)
    own = {
        FULL: contender(writing, listeners=True),
        UNHEARD: contender(writing, listeners=False),
        BARE: contender(bare, listeners=False),
        ANYIO: graphs.anyio_group,
    }
    contenders = {name: batch_of(carry_out, graph) for name, carry_out in own.items()}
    measured, limit = await compare({**contenders, **others}, batch_of(graphs.task_per_call, graph), effort.at_most(7))
    measured |= {name: Measured(error=reason) for name, reason in missing.items()}
    return [
        *(
            compared(9, name, measured[name], RAW, limit, is_limit=True, owed=owed, moonshot=moonshot)
            for name, (owed, moonshot) in LIMITED.items()
        ),
        compared(9, FULL, measured[FULL], ANYIO, measured[ANYIO]),
        *(
            compared(9, FULL, measured[FULL], name, measured[name], owed=owed, moonshot=moonshot, by=judged(name))
            for name, (owed, moonshot) in BESIDE.items()
        ),
    ]
