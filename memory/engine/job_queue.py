"""Bounded queue between the event loop, which accepts jobs, and the thread that writes them.

Jobs that are queued while a group is written form the next group. Jobs for which nobody waits are gathered for a few
milliseconds first. The queue decides whether it is full and how long the thread waits; it does not run jobs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from spar.errors import SparError

if TYPE_CHECKING:
    from memory.engine.connection import Connection

MAX_ITEMS = 8_192
MAX_BYTES = 64 << 20
GROUP = 1_000  # most jobs in one transaction: some ten milliseconds
LINGER = 0.005  # seconds for which jobs without a waiter are gathered: a transaction costs more than a job


class Awaited(Protocol):
    """Methods of a future with which the writer sets a result."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, error: Exception, /) -> None: ...


class Job:
    """Unit of work, its size in bytes, and the future of a caller that waits for its commit."""

    __slots__ = ("future", "size", "work")

    def __init__(self, work: Callable[[Connection], Any], size: int, future: Awaited | None = None) -> None:
        self.work, self.size, self.future = work, size, future


class JobQueue:
    """Queue of accepted jobs, in order, with their counts.

    `items` and `bytes` count the accepted jobs that are not yet committed, those of the current group included; `lost`
    is the number of them at the end. `refusal` is the error for jobs after the closing; None for the usual one.
    """

    __slots__ = ("_changed", "_closing_at", "_is_awaited", "_jobs", "_max_bytes", "_max_items", "_waiters", "accepted",
                 "bytes", "committed", "groups", "items", "lost", "refusal", "rejected")  # fmt: skip

    def __init__(self, max_items: int = MAX_ITEMS, max_bytes: int = MAX_BYTES) -> None:
        self._max_items, self._max_bytes = max_items, max_bytes
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._is_awaited = False  # whether a caller waits for a queued job
        self._waiters: list[asyncio.Future[None]] = []
        self._closing_at: float | None = None
        self.refusal: SparError | None = None
        self.items = self.bytes = 0
        self.accepted = self.committed = self.rejected = self.groups = self.lost = 0

    # -- the event loop's side

    def accept(self, job: Job, *, is_bounded: bool) -> bool:
        """Accept a job, or return False while the queue is full and it is bounded. Raises: SparError when closing."""
        with self._changed:
            if self._closing_at is not None:
                raise self.refusal or SparError("the memory is closed")
            if is_bounded and self._is_full():
                return False
            self._jobs.append(job)
            self.items += 1
            self.bytes += job.size
            self.accepted += 1
            if job.future is not None and not self._is_awaited:
                self._is_awaited = True
                self._changed.notify()
            elif self.items == 1 or self.items == GROUP:
                self._changed.notify()
        return True

    async def has_room(self) -> None:
        """Wait while the queue is full."""
        room = asyncio.get_running_loop().create_future()
        with self._changed:
            if self._is_full():
                self._changed.notify()  # no more jobs can be gathered
                self._waiters = [waiter for waiter in self._waiters if not waiter.done()] + [room]
            else:
                room.set_result(None)
        await room

    def close(self, within: float) -> None:
        """Accept nothing more. The queued jobs are written for at most `within` seconds."""
        with self._changed:
            if self._closing_at is None:
                self._closing_at = time.monotonic() + within
            self._changed.notify()

    @property
    def is_closing(self) -> bool:
        return self._closing_at is not None

    def snapshot(self) -> dict[str, int]:
        """Return the counts, all of the same moment. Safe from any thread."""
        with self._changed:
            return {
                "queued": self.items,
                "queued_bytes": self.bytes,
                "accepted": self.accepted,
                "committed": self.committed,
                "rejected": self.rejected,
                "lost": self.lost,
                "groups": self.groups,
            }

    # -- the thread's side

    def next(self, due_at: Callable[[], float | None]) -> list[Job] | None:
        """Wait for the next group and return it; None at the end.

        An empty group says that the time of `due_at` (monotonic seconds) has come.
        """
        with self._changed:
            while not self._jobs:
                if self._closing_at is not None:
                    return None
                due = due_at()
                wait = None if due is None else due - time.monotonic()
                if wait is not None and wait <= 0:
                    return []
                self._changed.wait(wait)
            if not self._is_awaited and self.items < GROUP and self._closing_at is None:
                self._changed.wait(LINGER)
            if len(self._jobs) <= GROUP:
                group = list(self._jobs)
                self._jobs.clear()
                self._is_awaited = False  # else unchanged: a job that is left in the queue may have a waiter
                return group
            return [self._jobs.popleft() for _ in range(GROUP)]

    def settle(self, number: int, size: int, *, failed: int, unawaited: int) -> list[asyncio.Future[None]]:
        """Count a group of `number` jobs and `size` bytes as finished.

        Args: failed: number of jobs that failed; unawaited: number of these for which nobody waited.
        Returns: the futures of the callers that wait for room, which there is now.
        """
        with self._changed:
            self.items -= number
            self.bytes -= size
            self.committed += number - failed
            self.rejected += unawaited
            self.groups += 1
            waiters, self._waiters = self._waiters, []
        return waiters

    def pause(self, seconds: float) -> bool:
        """Wait so many seconds before the next attempt. Return False if the time to close is over."""
        until = time.monotonic() + seconds
        with self._changed:
            while (left := until - time.monotonic()) > 0:
                if self._closing_at is not None:
                    if time.monotonic() >= self._closing_at:
                        return False
                    left = min(left, self._closing_at - time.monotonic())
                self._changed.wait(max(left, 0.001))
        return True

    def end(self) -> tuple[list[Job], list[asyncio.Future[None]]]:
        """Accept nothing more and count all jobs that are not committed as lost.

        Returns: the queued jobs, and the futures of the callers that wait for room.
        """
        with self._changed:
            if self._closing_at is None:
                self._closing_at = time.monotonic()
            jobs = list(self._jobs)
            self._jobs.clear()
            self.lost = self.items
            waiters, self._waiters = self._waiters, []
        return jobs, waiters

    def _is_full(self) -> bool:
        return self._closing_at is None and (self.items >= self._max_items or self.bytes >= self._max_bytes)
