"""A file that is open: one writer, some readers, and reads that see what was written just before.

The store says what is to be done; this says where it runs. Waits for the disk are bounded by the real clock, and
held against the agent's, so that a virtual one does not run ahead of a disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from memory.sqlite.database import Prepared
from memory.sqlite.readers import Readers
from memory.sqlite.writer import Writer, is_done
from spar.clock import Clock
from spar.errors import NoRoomError, PermanentError, TransientError

if TYPE_CHECKING:
    from apsw import Connection

R = TypeVar("R")

CLOSE_WITHIN = 10.0  # seconds; then what a failing disk did not take is given up, loudly
SETTLE_WITHIN = 2.0  # seconds that a read waits for what was written just before it


class DatabaseSession:
    """An open file; made by `memory.care.opening`.

    `epoch` counts how often it was opened for writing, 0 when read-only; `fence` is where the fences begin that it
    reserved; `broken` says where the newest facts did not
    fit together when it was opened.
    """

    def __init__(
        self, path: str, clock: Clock, writer: Writer | None, readers: Readers | None, prepared: Prepared | None
    ) -> None:
        self._path, self._clock, self._writer, self._readers = path, clock, writer, readers
        self.epoch = prepared.epoch if prepared is not None else 0
        self.fence = prepared.fence if prepared is not None else 0
        self.broken = prepared.broken if prepared is not None else None

    @property
    def pending(self) -> int:
        """Return how much was accepted and is not yet committed."""
        return self._writer.pending if self._writer is not None else 0

    @property
    def is_writable(self) -> bool:
        """Return whether it is of use to accept more now: there is a writer, it works, and there is room on the
        disk."""
        return self._writer is not None and self._writer.is_writable

    def demand_room(self) -> None:
        """Raises: NoRoomError on a disk that is full: what is left is for bringing to an end what has begun, and for
        deleting."""
        if self._writer is not None and self._writer.is_out_of_room:
            raise NoRoomError(f"nothing more can be kept: {self._writer.last_error or 'the disk is full'}")

    def snapshot(self) -> dict[str, Any]:
        """Return the writer's counts; empty when read-only. Safe from any thread."""
        if self._writer is None:
            return {}
        return {**self._writer.snapshot(), "epoch": self.epoch, "chain": str(self.broken) if self.broken else None}

    async def put(self, work: Callable[[Connection], Any], size: int) -> None:
        """Accept work; waits only while the queue is full. Raises: PermanentError when read-only."""
        writer = self.writer
        if not writer.offer(work, size):
            with self._clock.working():
                await writer.put(work, size)

    async def commit(self, work: Callable[[Connection], R], size: int = 0) -> R:
        """Do the work and return its result once it is safe. Raises: what it raised; PermanentError when read-only."""
        with self._clock.working():
            return await self.writer.commit(work, size)

    async def read(self, work: Callable[[Connection], R]) -> R:
        """Do the work on the file as it is now and return its result. Raises: TransientError when it cannot be read."""
        if self._readers is None:  # in memory: there is one connection, the writer's
            return await self.commit(work)
        if self.pending and self._writer is not None and not self._writer.is_failing:
            await self.written(SETTLE_WITHIN)  # while the disk is failing, what is written must do
        return await self._readers.read(work)

    async def written(self, within: float) -> bool:
        """Wait at most `within` seconds until everything accepted so far is safe; returns whether it is."""
        if self._writer is None:
            return True
        with self._clock.working():
            mark = self._writer.submit(_nothing)
            try:
                return await is_done(mark, within)
            finally:
                mark.cancel()

    async def close(self) -> None:
        """Write what is queued, close all connections, release the lock; bounded. Again does nothing.

        Raises: TransientError when not everything could be written, with how much and why.
        """
        if self._readers is not None:
            self._readers.close()  # first: the writer, closed last, then takes the write-ahead log away
        writer = self._writer
        if writer is not None:
            with self._clock.working():
                await writer.close(CLOSE_WITHIN)
        if writer is not None and (lost := writer.lost or writer.pending):
            raise TransientError(f"{lost} accepted items could not be written before closing: {writer.last_error}")

    @property
    def writer(self) -> Writer:
        """The writer. Raises: PermanentError when there is none."""
        if self._writer is None:
            raise PermanentError(f"{self._path!r} is open read-only; what is to be changed must go to its own process")
        return self._writer


def _nothing(connection: Connection) -> None:
    return None
