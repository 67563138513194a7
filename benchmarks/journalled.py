"""Agents that keep a journal, in a file of their own on a real disk.

A batch ends when what it told is written as its durability promises; that is on spar's bill. At the end the tape must
hold every cycle that was turned: a quick journal that loses some would not be measured, it would be found out.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from benchmarks.counted import Counted, counted
from benchmarks.harness import Batch
from memory import Memory

Durability = Literal["power", "process"]


class Journalled:
    """So many agents on one memory. `groups` is how often the writer has committed."""

    def __init__(self, agents: list[Counted], memory: Memory) -> None:
        self.agents, self.memory = agents, memory

    async def batch(self, cycles: int) -> None:
        """So many cycles of the first agent."""
        await self.agents[0].batch(cycles)
        await self.written()

    def together(self, turns: int) -> Batch:
        """All agents at once, each so many times; a unit is the cycle of one of them."""

        async def batch(_: int) -> int:
            await asyncio.gather(*(one.begin(turns) for one in self.agents))
            for one in self.agents:
                await one.end()
            await self.written()
            return turns * len(self.agents)

        return batch

    async def written(self) -> None:
        await self.memory.journal.safe()

    @property
    def groups(self) -> int:
        return int(self.memory.snapshot()["groups"])

    async def must_be_whole(self) -> None:
        """Raises: RuntimeError when a cycle is not on the tape."""
        await self.written()
        turned, recorded = sum(one.turned for one in self.agents), (await self.memory.counts())["cycles"]
        if recorded != turned:
            raise RuntimeError(f"{turned} cycles were turned and {recorded} are on the tape")


@asynccontextmanager
async def journalled(
    number: int = 1, *, durability: Durability, listeners: bool = True, loop_interval: float = 0
) -> AsyncIterator[Journalled]:
    """The agents, their memory open; stopped, counted and deleted at the end."""
    with folder() as place:
        # Nothing is to be deleted for its age while cycles are counted.
        memory = Memory.open(f"sqlite:///{place}/memory.db", durability=durability, keep_cycles=None)
        async with (
            memory,
            counted(number, listeners=listeners, memory=memory, loop_interval=loop_interval) as agents,
        ):
            one = Journalled(agents, memory)
            yield one
            await one.must_be_whole()


def folder() -> tempfile.TemporaryDirectory[str]:
    """A folder on the disk that this code is on: a temporary one may be in memory, where a flush costs nothing."""
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(dir=results, prefix="disk-", ignore_cleanup_errors=True)
