"""Embedding in idle time: computes missing vectors in batches, in a thread of its own.

The writer's maintenance wakes it when the writer is idle. A batch is read, embedded in the thread, and handed to the
writer. An embedder that cannot be loaded is reported once, and recall then uses words alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from memory.experiences import vectors
from memory.experiences.search import Nearness
from spar.clock import Clock
from spar.errors import TransientError
from spar.ports.services import Embedder
from spar.threads import Threads
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.session import DatabaseSession

Vectors = TypeVar("Vectors")

#: Texts of one batch, and batches after which the writer must be idle again.
BATCH, BATCHES = 16, 16


class Embedding:
    """Embeds for one memory while it is open.

    Args: file: returns the open file; report: called for an embedder that does not work.
    """

    def __init__(
        self,
        embedder: Embedder,
        clock: Callable[[], Clock],
        file: Callable[[], DatabaseSession],
        report: Callable[[Fault], None],
    ) -> None:
        self._embedder, self._clock, self._file, self._report = embedder, clock, file, report
        self._threads: Threads | None = None
        self._upto, self._is_broken = 0, False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the task that waits for idle moments."""
        self._loop, self._idle = asyncio.get_running_loop(), asyncio.Event()
        self._task = asyncio.create_task(self._live(), name="memory embedding")

    async def end(self) -> None:
        """Stop the task. The next process computes the vectors that are still missing."""
        task, self._task, self._loop = self._task, None, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def wake(self) -> None:
        """Note that the writer is idle. Safe from any thread."""
        loop, idle = self._loop, self._idle
        if loop is not None and idle is not None and not self._is_broken:
            with suppress(RuntimeError):  # the loop is being closed
                loop.call_soon_threadsafe(idle.set)

    async def nearness(self, query: str) -> Nearness | None:
        """Return a function that computes how near rows are to a query; None if there is no vector of the query."""
        if self._is_broken:
            return None
        try:
            [vector] = await self._run(self._embedder.embed, [query])
        except Exception as error:  # an embedder is a stranger's
            self._fail(error)
            return None
        return vectors.nearness(self._embedder.fingerprint, vector)

    async def step(self) -> bool:
        """Embed one batch. Return whether there may be more. Raises: the errors of the embedder and the file."""
        fingerprint = self._embedder.fingerprint
        file = self._file()
        missing = await file.read(partial(vectors.missing, fingerprint=fingerprint, after=self._upto, number=BATCH))
        if missing.rows:
            packed = await self._run(self._packed, [text for _, _, text in missing.rows])
            keep = partial(vectors.keep, fingerprint=fingerprint, rows=missing.rows, vectors=packed)
            await file.put(keep, sum(map(len, packed)))
        self._upto = missing.upto
        return not missing.is_end

    async def _live(self) -> None:
        assert self._idle is not None
        while not self._is_broken:
            await self._idle.wait()
            self._idle.clear()
            try:
                for _ in range(BATCHES):
                    if not await self.step():
                        break
            except TransientError:  # the file cannot be read or written now, which the writer reports
                continue
            except Exception as error:  # an embedder is a stranger's
                self._fail(error)

    def _packed(self, texts: list[str]) -> list[bytes]:
        return [vectors.packed(text) for text in self._embedder.embed(texts)]

    async def _run(self, work: Callable[[list[str]], Vectors], texts: list[str]) -> Vectors:
        if self._threads is None:
            self._threads = Threads("memory embedding", self._clock(), limit=2)
        return await self._threads.run(work, texts)

    def _fail(self, error: Exception) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._report(Fault.of(error, part="memory"))
