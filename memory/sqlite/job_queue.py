"""The bounded queue between the event loop, which accepts work, and the thread that writes it.

Whatever has queued while the last group went to disk goes into the next one. Work that nobody waits for may gather for
a moment first. Whether it is full, and for how long the thread rests, is decided here, not what a job does.
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
    from apsw import Connection

MAX_ITEMS = 8_192
MAX_BYTES = 64 << 20
GROUP = 1_000  # units of work in one transaction: some ten milliseconds
LINGER = 0.005  # seconds in which work that nobody waits for may gather: a transaction costs more than a unit


class Awaited(Protocol):
    """Future, as far as the writer answers it."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, error: Exception, /) -> None: ...


class Job:
    """A unit of work, how large it is, and who waits for its commit."""

    __slots__ = ("future", "size", "work")

    def __init__(self, work: Callable[[Connection], Any], size: int, future: Awaited | None = None) -> None:
        self.work, self.size, self.future = work, size, future


class JobQueue:
    """The jobs that were accepted, in order, and the account of them.

    `items` and `bytes` are those of what was accepted and is not yet committed, the group in hand included; `lost` is
    what was left of it at the end. `refusal` says why nothing is accepted once it is closed; None for the usual reason.
    """

    __slots__ = ("_changed", "_closing_at", "_is_awaited", "_jobs", "_max_bytes", "_max_items", "_waiters", "accepted",
                 "bytes", "committed", "groups", "items", "lost", "refusal", "rejected")  # fmt: skip

    def __init__(self, max_items: int = MAX_ITEMS, max_bytes: int = MAX_BYTES) -> None:
        self._max_items, self._max_bytes = max_items, max_bytes
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._is_awaited = False  # whether somebody waits for what is queued
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
                self._changed.notify()  # no more will gather
                self._waiters = [waiter for waiter in self._waiters if not waiter.done()] + [room]
            else:
                room.set_result(None)
        await room

    def close(self, within: float) -> None:
        """Accept nothing more; what is queued has so many seconds to be written."""
        with self._changed:
            if self._closing_at is None:
                self._closing_at = time.monotonic() + within
            self._changed.notify()

    @property
    def is_closing(self) -> bool:
        return self._closing_at is not None

    def snapshot(self) -> dict[str, int]:
        """Return the account, its numbers of one moment; from any thread."""
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
        """Return the next group; empty when something else is due (`due_at`: monotonic seconds); None at the end."""
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
                self._is_awaited = False  # else it stays: whoever waits may be among the rest
                return group
            return [self._jobs.popleft() for _ in range(GROUP)]

    def settled(self, number: int, size: int, *, failed: int, unheard: int) -> list[asyncio.Future[None]]:
        """Note that a group of so many jobs and bytes is through.

        Args: failed: how many of them; unheard: how many of those nobody waited for.
        Returns: the futures of those who wait for room, which there is now.
        """
        with self._changed:
            self.items -= number
            self.bytes -= size
            self.committed += number - failed
            self.rejected += unheard
            self.groups += 1
            waiters, self._waiters = self._waiters, []
        return waiters

    def pause(self, seconds: float) -> bool:
        """Wait before the next try; False when there is no time for one."""
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
        """Accept nothing more, and give up what is queued: it is lost, with what is in hand.

        Returns: the jobs that were queued, and the futures of those who wait for room.
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
