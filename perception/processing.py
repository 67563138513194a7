"""Processing of batches by the pipeline, one after the other: a small one in the event loop, a large one in a thread.

The pipeline has a state and is for one thread at a time. A batch that has begun is always finished, even if nobody
waits for it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from perception.supervision.buffer import size_of
from spar.clock import Clock, ended
from spar.threads import Threads
from spar.types import Perception

#: Bounds of a batch in the event loop, perceptions and bytes, which takes a few milliseconds.
INLINE, INLINE_BYTES = 16, 64 * 1024

R = TypeVar("R")
Batch = asyncio.Future[list[Perception]]


class Processing:
    """Batches of one pipeline.

    Args: process: the pipeline's work, which raises nothing; inline: perceptions of a batch that is processed in the
    event loop.
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
        """Return whether a batch is in progress in this event loop; a batch of a closed loop never ends."""
        last = self._last
        return last is not None and not last.done() and not last.get_loop().is_closed()

    def begin(self, batch: Sequence[Perception]) -> Batch:
        """Begin a batch, after the earlier ones; call it in the event loop."""
        loop = asyncio.get_running_loop()
        if not self.is_busy and self._is_small(batch):
            done: Batch = loop.create_future()
            done.set_result(self._process(batch))
            return done
        before = self._last if self.is_busy else None
        self._last = loop.create_task(self._in_turn(batch, before), name="perception of a batch")
        return self._last

    def between(self, work: Callable[[], int]) -> int:
        """Run some work on the pipeline while no batch is in progress, and return its result; 0 when it has to run
        later."""
        if not self.is_busy or self._last is None:
            return work()
        self._last.add_done_callback(lambda _: work())
        return 0

    async def rest(self, patience: float) -> bool:
        """Wait at most `patience` seconds for the batches in progress; return whether all have ended."""
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
    """Wait for a batch and return its result; cancelling this does not cancel the batch."""
    if not batch.done():
        await asyncio.wait([batch])
    return batch.result()
