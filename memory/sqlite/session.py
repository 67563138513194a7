"""A file that is open: one writer, some readers, and reads that see what was written just before.

The store says what is to be done; this says where it runs. Waits for the disk are bounded by the real clock, and
held against the agent's, so that a virtual one does not run ahead of a disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from memory.care import losses
from memory.care import repair as salvage
from memory.care.backup import Copies
from memory.care.disk_reserve import SIZE, Ballast
from memory.sqlite import connection as database
from memory.sqlite.connection import IN_MEMORY, Prepared
from memory.sqlite.lock import Lock
from memory.sqlite.readers import Readers
from memory.sqlite.writer import Writer, is_done
from spar.clock import Clock
from spar.errors import NoRoomError, PermanentError, TransientError
from spar.threads import Threads
from spar.types import Fault

if TYPE_CHECKING:
    from apsw import Connection

R = TypeVar("R")

CLOSE_WITHIN = 10.0  # seconds; then what a failing disk did not take is given up, loudly
LET_GO = 1.0  # seconds that who calls an opening off waits for it to be undone
SETTLE_WITHIN = 2.0  # seconds that a read waits for what was written just before it
_READERS = 4


class Opened:
    """An open file; made by `open_file`.

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
        """How much was accepted and is not yet committed."""
        return self._writer.pending if self._writer is not None else 0

    @property
    def is_writable(self) -> bool:
        """Whether it is of use to accept more now: there is a writer, it works, and there is room on the disk."""
        return self._writer is not None and self._writer.is_writable

    def demand_room(self) -> None:
        """Raises: NoRoomError on a disk that is full: what is left is for bringing to an end what has begun, and for
        deleting."""
        if self._writer is not None and self._writer.is_out_of_room:
            raise NoRoomError(f"nothing more can be kept: {self._writer.last_error or 'the disk is full'}")

    def snapshot(self) -> dict[str, Any]:
        """The writer's counts; empty when read-only. Safe from any thread."""
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
        """What the work returned, once it is safe. Raises: what it raised; PermanentError when read-only."""
        with self._clock.working():
            return await self.writer.commit(work, size)

    async def read(self, work: Callable[[Connection], R]) -> R:
        """What the work returned, from the file as it is now. Raises: TransientError when it cannot be read."""
        if self._readers is None:  # in memory: there is one connection, the writer's
            return await self.commit(work)
        if self.pending and self._writer is not None and not self._writer.is_failing:
            await self.written(SETTLE_WITHIN)  # while the disk is failing, what is written must do
        return await self._readers.read(work)

    async def written(self, within: float) -> bool:
        """Whether everything accepted so far was safe in time; waits for that at most `within` seconds."""
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


async def open_file(
    path: str,
    durability: str,
    clock: Clock,
    *,
    read_only: bool,
    tend: Callable[[Connection], bool],
    told: Callable[[Fault | None], None],
    ballast: int = SIZE,
    on_damage: salvage.OnDamage = "restore",
    copies: bool = True,
) -> Opened:
    """Open a file, or say why not; what is wrong with it although it can be used is told.

    Args: ballast: bytes that are kept free for the day on which the disk is full; copies: whether one is made a day.
    Raises: ConfigError, TransientError; nothing then stays open or locked.
    """
    threads, lock = Threads("memory", clock, limit=_READERS), Lock(path)
    kept = Ballast(path, ballast)

    def prepare() -> Prepared | None:
        if read_only:
            database.inspect(path, read_only=True)
            return None
        prepared = salvage.prepare(path, durability, lock, on_damage=on_damage, ballast=kept)
        if path != IN_MEMORY and prepared.faults:
            with suppress(OSError):  # it is told in any case
                losses.note(path, [fault.message for fault in prepared.faults])
        return prepared

    # A thread cannot be cancelled: when the caller is, what it opens in the end is closed again.
    opening = asyncio.ensure_future(threads.run(prepare))
    try:
        prepared = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(lambda late: _close_late(late, lock))
        await asyncio.wait([opening], timeout=LET_GO)  # who opens it again finds it closed
        raise
    writer: Writer | None = None
    if prepared is not None:
        is_file = path != IN_MEMORY
        writer = Writer(
            prepared.connection,
            path,
            durability=durability,
            epoch=prepared.epoch,
            tend=tend,
            told=told,
            ended=lock.release,
            reopen=(lambda: database.open_writer(path, durability)) if is_file else None,
            ballast=kept if is_file else None,
            copies=Copies(path) if is_file and copies else None,
        )
        writer.start()
        for fault in prepared.faults:
            writer.tell(fault)
    readers = None if path == IN_MEMORY else Readers(path, database.open_reader, threads)
    return Opened(path, clock, writer, readers, prepared)


def _close_late(opening: asyncio.Future[Prepared | None], lock: Lock) -> None:
    if opening.cancelled() or opening.exception() is not None:
        return
    if (prepared := opening.result()) is not None:
        prepared.connection.close()
    lock.release()


def _nothing(connection: Connection) -> None:
    return None
