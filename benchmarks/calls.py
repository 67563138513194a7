"""Row 9: a thousand calls that need nothing of one another and do nothing.

What is owed is the whole of it: a validated parameter, a write to the state, three events to a subscriber each, a
result and a message. The smaller forms say what part of that costs how much.
"""

from __future__ import annotations

from benchmarks import call_peers, graphs
from benchmarks.calling import bare, contender, writing
from benchmarks.graphs import batch_of, independent
from benchmarks.harness import Effort, Measured, compare
from benchmarks.table import Line, compared

CALLS = 1000
FULL, UNHEARD = "independent call, state write, events", "the same, nobody listens"
BARE = "bare call: no parameter, no write, nobody listens"
RAW, ANYIO = "raw asyncio, a task each", "anyio task group"

GOALS = {
    call_peers.SEND: 1 / 10,
    call_peers.SCHEDULE: 1 / 1.5,
    call_peers.STREAMED: None,
    call_peers.HAMILTON: 1 / 1.5,
    call_peers.TOOL_NODE: None,
    call_peers.PYDANTIC_AI: None,
    call_peers.OPENAI_AGENTS: None,
}


async def measure(effort: Effort) -> list[Line]:
    graph = independent(CALLS)
    others, missing = call_peers.independents()
    own = {
        FULL: contender(writing, listeners=True),
        UNHEARD: contender(writing, listeners=False),
        BARE: contender(bare, listeners=False),
        ANYIO: graphs.anyio_group,
    }
    contenders = {name: batch_of(carry_out, graph) for name, carry_out in own.items()}
    measured, limit = await compare({**contenders, **others}, batch_of(graphs.task_per_call, graph), effort.at_most(7))
    measured |= {name: Measured(error=reason) for name, reason in missing.items()}
    owed = {"first": 3, "then": 2}
    return [
        *(
            compared(9, name, measured[name], RAW, limit, is_limit=True, **(owed if name == FULL else {}))
            for name in (FULL, UNHEARD, BARE)
        ),
        compared(9, FULL, measured[FULL], ANYIO, measured[ANYIO]),
        *(
            compared(9, FULL, measured[FULL], name, measured[name], first=goal, by=call_peers.judged(name))
            for name, goal in GOALS.items()
        ),
    ]
