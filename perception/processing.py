"""Takes batches through the pipeline, one after the other: a small one in the event loop, a large one in a thread.

The pipeline remembers things between two batches and is for one thread at a time. A batch that was begun is brought to
its end, whoever stops waiting for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from perception.supervision.buffer import size_of
from perception.supervision.sensor_task import ended
from spar.clock import Clock
from spar.threads import Threads
from spar.types import Perception

#: How many perceptions, and how many bytes of them, go through the pipeline in the event loop: a few milliseconds.
INLINE, INLINE_BYTES = 16, 64 * 1024

R = TypeVar("R")
Batch = asyncio.Future[list[Perception]]


class Processing:
    """The batches of one pipeline.

    Args: process: the pipeline's work, which raises nothing; inline: perceptions that go through it in the event loop.
    """

    def __init__(
        self, process: Callable[[Sequence[Perception]], list[Perception]], clock: Clock, inline: int = INLINE
    ) -> None:
        self._process, self._inline = process, inline
        self._clock = clock
        self._threads = Threads("perception", clock, limit=1)
        self._last: Batch | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether a batch is under way in this event loop; of one that is closed nothing comes any more."""
        last = self._last
        return last is not None and not last.done() and not last.get_loop().is_closed()

    def begin(self, batch: Sequence[Perception]) -> Batch:
        """Begin with a batch, after those that were begun before; call in the event loop."""
        loop = asyncio.get_running_loop()
        if not self.is_busy and self._is_small(batch):
            done: Batch = loop.create_future()
            done.set_result(self._process(batch))
            return done
        before = self._last if self.is_busy else None
        self._last = loop.create_task(self._in_turn(batch, before), name="perception of a batch")
        return self._last

    def between(self, work: Callable[[], int]) -> int:
        """Do something with the pipeline while no batch is under way; 0 where that has to be later."""
        if not self.is_busy or self._last is None:
            return work()
        self._last.add_done_callback(lambda _: work())
        return 0

    async def rest(self, patience: float) -> bool:
        """Wait for the batches under way; return whether there are none any more after at most so many seconds."""
        if self.is_busy and self._last is not None:
            await ended(self._last, patience, self._clock)
        return not self.is_busy

    async def _in_turn(self, batch: Sequence[Perception], before: Batch | None) -> list[Perception]:
        if before is not None:
            await asyncio.wait([before])
        return self._process(batch) if self._is_small(batch) else await self._threads.run(self._process, batch)

    def _is_small(self, batch: Sequence[Perception]) -> bool:
        return len(batch) <= self._inline and sum(map(size_of, batch)) <= INLINE_BYTES


async def finished(batch: Batch) -> list[Perception]:
    """Wait for a batch and return what came out; whoever is cancelled here does not cancel it."""
    if not batch.done():
        await asyncio.wait([batch])
    return batch.result()
