"""Row 7: what a cycle costs when many agents turn in one event loop, against a single agent's."""

from __future__ import annotations

import asyncio

from benchmarks import peers
from benchmarks.counted import Counted, counted
from benchmarks.harness import Batch, Effort, compare
from benchmarks.table import Line, compared


async def measure(effort: Effort) -> list[Line]:
    lines: list[Line] = []
    async with counted(listeners=True) as single:
        for number, owed in ((100, 1.15), (1000, 1.25)):
            # So many cycles of each agent in a row that resuming and pausing it is a few hundredths of them.
            turns = 40 if effort.is_quick else 200
            long = Effort(min(effort.rounds, 700 // number + 3), 3 * effort.seconds)
            async with counted(number, listeners=True) as crowd:
                contenders = {"spar": together(crowd, turns), "raw": tasks(number, turns)}
                measured, limit = await compare(contenders, single[0].batch, long)
            spar, title = measured["spar"], f"cycle, {number:,} agents in one loop"
            lines += [
                compared(7, title, spar, "1 agent", limit, is_limit=True, owed=owed, moonshot=1.0),
                compared(7, title, spar, f"{number:,} raw anyio tasks", measured["raw"]),
            ]
    return lines


def together(agents: list[Counted], turns: int) -> Batch:
    """All agents at once, each so many times; a unit is the cycle of one of them."""

    async def batch(_: int) -> int:
        await asyncio.gather(*(one.begin(turns) for one in agents))  # none is done before the last begins
        for one in agents:
            await one.end()
        return turns * len(agents)

    return batch


def tasks(number: int, turns: int) -> Batch:
    async def batch(_: int) -> int:
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(peers.raw(turns))
        return turns * number

    return batch
