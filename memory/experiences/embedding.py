"""Embedding in idle time: what has no vector yet is given one, some at a time, in a thread of its own.

The writer's maintenance wakes it when there is nothing else to do. A batch is read, embedded in the thread, and handed
to the writer; an embedder that cannot be loaded is told once, and recall goes by words alone.
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
from spar.ports.embedder import Embedder
from spar.threads import Threads
from spar.types import Fault

if TYPE_CHECKING:
    from memory.sqlite.session import DatabaseSession

Vectors = TypeVar("Vectors")

#: Texts of one batch, and batches until the writer has to be idle again.
BATCH, BATCHES = 16, 16


class Embedding:
    """Embeds for one memory while it is open.

    Args: file: the open file; told: hears of an embedder that does not work.
    """

    def __init__(
        self,
        embedder: Embedder,
        clock: Callable[[], Clock],
        file: Callable[[], DatabaseSession],
        told: Callable[[Fault], None],
    ) -> None:
        self._embedder, self._clock, self._file, self._told = embedder, clock, file, told
        self._threads: Threads | None = None
        self._upto, self._is_broken = 0, False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Wait for idle moments from now on."""
        self._loop, self._idle = asyncio.get_running_loop(), asyncio.Event()
        self._task = asyncio.create_task(self._live(), name="memory embedding")

    async def end(self) -> None:
        """Stop; what is not embedded yet is embedded by the next process."""
        task, self._task, self._loop = self._task, None, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def wake(self) -> None:
        """Note, from any thread, that the writer has nothing to do."""
        loop, idle = self._loop, self._idle
        if loop is not None and idle is not None and not self._is_broken:
            with suppress(RuntimeError):  # the loop is being closed
                loop.call_soon_threadsafe(idle.set)

    async def nearness(self, query: str) -> Nearness | None:
        """Return how near rows are to a question; None where that cannot be known."""
        if self._is_broken:
            return None
        try:
            [vector] = await self._run(self._embedder.embed, [query])
        except Exception as error:  # an embedder is a stranger's
            self._fail(error)
            return None
        return vectors.nearness(self._embedder.fingerprint, vector)

    async def step(self) -> bool:
        """Embed one batch; returns whether there may be more. Raises: what the embedder or the file raises."""
        fingerprint = self._embedder.fingerprint
        file = self._file()
        found = await file.read(partial(vectors.missing, fingerprint=fingerprint, after=self._upto, number=BATCH))
        if found.rows:
            made = await self._run(self._packed, [text for _, _, text in found.rows])
            keep = partial(vectors.keep, fingerprint=fingerprint, rows=found.rows, vectors=made)
            await file.put(keep, sum(map(len, made)))
        self._upto = found.upto
        return not found.is_end

    async def _live(self) -> None:
        assert self._idle is not None
        while not self._is_broken:
            await self._idle.wait()
            self._idle.clear()
            try:
                for _ in range(BATCHES):
                    if not await self.step():
                        break
            except TransientError:  # the file cannot be read or written now, which is told by others
                continue
            except Exception as error:  # an embedder is a stranger's
                self._fail(error)

    def _packed(self, texts: list[str]) -> list[bytes]:
        return [vectors.packed(each) for each in self._embedder.embed(texts)]

    async def _run(self, work: Callable[[list[str]], Vectors], texts: list[str]) -> Vectors:
        if self._threads is None:
            self._threads = Threads("memory embedding", self._clock(), limit=2)
        return await self._threads.run(work, texts)

    def _fail(self, error: Exception) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._told(Fault.of(error, part="memory"))
