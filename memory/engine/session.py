"""Open database: one writer, some readers beside it, and reads that see earlier writes.

The store gives functions of a connection; the session runs them in the right thread. A read is one short transaction,
so it sees one state of the data and delays no checkpoint for long. Waits for the disk are bounded by the real clock.
The agent's clock is told of them (`Clock.working`), so that a virtual clock does not run ahead.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from json import JSONDecodeError
from typing import Any, TypeVar

from memory.codec import AlteredError
from memory.engine.connection import Connection
from memory.engine.own_keys import Prepared
from memory.engine.writer import WriterThread, first_line, is_done
from spar.clock import Clock
from spar.errors import DamagedRowError, NoRoomError, PermanentError, SparError, TransientError
from spar.threads import Threads
from spar.types import Fault

R = TypeVar("R")

CLOSE_WITHIN = 10.0  # seconds; rows that a failing disk has not stored by then are lost, which raises an error
LET_GO = 1.0  # seconds for which a cancelled opening waits until it is closed again
SETTLE_WITHIN = 2.0  # seconds for which a read waits for earlier writes


async def opened(
    work: Coroutine[Any, Any, R], close: Callable[[R], object], stop: Callable[[], object] = lambda: None
) -> R:
    """Return the result of an opening. A thread cannot be cancelled: if the caller is, the late result is closed.

    That is waited for a little, so that the database can be opened again at once. Args: stop: called when the caller is
    cancelled. Raises: errors of the opening.
    """
    opening = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        stop()
        opening.add_done_callback(partial(_close_late, close))
        await asyncio.wait([opening], timeout=LET_GO)
        raise


def _close_late(close: Callable[[R], object], opening: asyncio.Future[R]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        close(opening.result())


class Readers:
    """Read-only connections to one database, opened when needed; at most as many as `threads` runs at once.

    Args: path: the database as errors name it; connect: opens a connection; failure: errors of the database.
    """

    def __init__(
        self, path: str, connect: Callable[[], Connection], threads: Threads, failure: type[Exception]
    ) -> None:
        self._path, self._connect, self._threads, self._failure = path, connect, threads, failure
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._is_closed = False

    def read(self, work: Callable[[Connection], R]) -> Coroutine[Any, Any, R]:
        """Run `work` in a thread, within one transaction, and return its result.

        Raises: TransientError when the file cannot be read now; DamagedRowError; SparError after the closing; the
        errors of `work`.
        """
        return self._threads.run(self._run, work)

    def close(self) -> None:
        """Close the idle connections and interrupt the busy ones. Safe from any thread and more than once."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for connection in self._busy:
                connection.interrupt()
        for connection in idle:
            connection.close()

    def _run(self, work: Callable[[Connection], R]) -> R:
        try:
            connection = self._take()
            is_usable = False
            try:
                connection.begin()
                try:
                    return work(connection)
                finally:
                    connection.end()
                    is_usable = True
            finally:
                self._give_back(connection, is_usable=is_usable)
        except self._failure as error:
            if self._is_closed:
                raise SparError("the memory was closed while it was read") from None
            raise TransientError(f"cannot read {self._path!r}: {first_line(error)}") from error
        except (UnicodeDecodeError, JSONDecodeError, AlteredError) as error:  # rows are ASCII JSON with a checksum
            raise DamagedRowError(
                f"a row of {self._path!r} is damaged ({error}); spar memory verify says which"
            ) from error

    def _take(self) -> Connection:
        with self._lock:
            if self._is_closed:
                raise SparError("the memory is closed")
            connection = self._idle.pop() if self._idle else self._connect()
            self._busy.add(connection)
            return connection

    def _give_back(self, connection: Connection, *, is_usable: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if is_usable and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()


class DatabaseSession:
    """Open database; `memory.care.opening` makes that of a file, `memory.postgres.opening` that of a server. The damage
    that the opening has found is reported.

    `epoch` is the number of openings for writing, 0 when read-only; `fence` is the number above which its reserved
    fences begin; `broken` is the first of the newest facts that did not fit the chain at the opening, or None.
    """

    def __init__(
        self, path: str, clock: Clock, writer: WriterThread | None, readers: Readers | None,
        prepared: Prepared | None,
    ) -> None:  # fmt: skip
        self._path, self._clock, self._writer, self._readers = path, clock, writer, readers
        prepared = prepared or Prepared(None, 0, 0)
        self.epoch, self.fence, self.broken = prepared.epoch, prepared.fence, prepared.broken
        if writer is not None:
            for fault in prepared.faults:
                writer.report(fault)

    @property
    def pending(self) -> int:
        """Return the number of accepted jobs that are not yet committed."""
        return self._writer.queue.items if self._writer is not None else 0

    def demand_room(self) -> None:
        """Raise an error if the disk is full; the last room is for ending open work and for deleting.

        Raises: NoRoomError.
        """
        if self._writer is not None and self._writer.reserve.is_given_up:
            raise NoRoomError(f"nothing more can be kept: {self._writer.last_error or 'the disk is full'}")

    def snapshot(self) -> dict[str, Any]:
        """Return the writer's counts; empty when read-only. Safe from any thread."""
        if self._writer is None:
            return {}
        return {**self._writer.snapshot(), "epoch": self.epoch, "chain": str(self.broken) if self.broken else None}

    async def put(self, work: Callable[[Connection], Any], size: int) -> None:
        """Queue work for the writer; while the queue is full, wait until it is safe. Raises: as `commit`."""
        if not self.writer.offer(work, size):
            await self.commit(work, size)

    async def commit(self, work: Callable[[Connection], R], size: int = 0) -> R:
        """Do the work and return its result once it is safe. Raises: its errors; PermanentError when read-only."""
        with self._clock.working():
            return await self.writer.submit(work, size)

    def read(self, work: Callable[[Connection], R]) -> Coroutine[Any, Any, R]:
        """Do the work on the file as it is now and return its result. Raises: TransientError when it cannot be read."""
        if self._readers is None:  # a database in memory has only the writer's connection
            return self.commit(work)
        writer = self._writer
        is_behind = writer is not None and writer.queue.items and not writer.is_failing
        return self._read_written(work, self._readers) if is_behind else self._readers.read(work)

    async def _read_written(self, work: Callable[[Connection], R], readers: Readers) -> R:
        await self.written(SETTLE_WITHIN)
        return await readers.read(work)

    async def written(self, within: float) -> bool:
        """Wait at most `within` seconds until everything accepted so far is safe. Return whether it is."""
        if self._writer is None:
            return True
        with self._clock.working():
            mark = self._writer.submit(nothing)
            try:
                return await is_done(mark, within)
            finally:
                mark.cancel()

    async def close(self, left: int = 0) -> None:
        """Write the queued jobs, close all connections, release the lock. Repeated calls do nothing.

        Args: left: the number of items that the writer did not accept any more.
        Raises: TransientError when not everything could be written, with how much and why.
        """
        if self._readers is not None:
            self._readers.close()  # first, since the last connection to close removes the write-ahead log
        writer = self._writer
        if writer is not None:
            with self._clock.working():
                await writer.close(CLOSE_WITHIN)
        if writer is not None and (lost := (writer.queue.lost or writer.queue.items) + left):
            raise TransientError(f"{lost} accepted items could not be written before closing: {writer.last_error}")

    @property
    def writer(self) -> WriterThread:
        """Return the writer. Raises: PermanentError when there is none."""
        if self._writer is None:
            raise PermanentError(f"{self._path!r} is open read-only; what is to be changed must go to its own process")
        return self._writer


def nothing(connection: Connection) -> None:
    """Write nothing."""


class SessionQueries:
    """Base of queries of the database that is open now.

    Args: read: runs a query in the open file; hand_over: gives the writer all rows that were gathered so far; report:
        called once for each row that cannot be read.
    """

    def __init__(
        self, read: Callable[[Callable[[Connection], Any]], Coroutine[Any, Any, Any]], hand_over: Callable[[], None],
        report: Callable[[Fault], None],
    ) -> None:  # fmt: skip
        self._in_file, self.hand_over, self._report = read, hand_over, report
        self._missed: set[str] = set()

    def _read(self, query: Callable[[Connection], R]) -> Coroutine[Any, Any, R]:
        self.hand_over()
        return self._in_file(query)

    async def _rows(self, query: Callable[..., R]) -> R:
        """Return the result of a query, which adds to `missed` a description of each row that it cannot read."""
        missed: list[str] = []
        rows = await self._read(partial(query, missed=missed))
        for row in missed:
            if row not in self._missed:
                self._missed.add(row)
                message = f"a row cannot be read and is left where it is: {row}; see: spar memory verify"
                self._report(Fault("damaged", message, "memory", retryable=False))
        return rows
