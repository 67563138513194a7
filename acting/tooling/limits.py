"""Limits concurrency and rate: counts with a queue, where a callback waits rather than a task.

A *permit* has `take(callback, about) -> bool` and `release()`. True: it is taken. False: `callback(about)` will be
called once, holding it; it returns False when it is no longer wanted, and the next in the queue then gets it. A call
takes its permits in one order (its tool's slots, the names that exclude each other sorted, the rate last), so that
no two calls ever wait for each other.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from spar.clock import Clock, Timer

_RATE = re.compile(r"([1-9]\d{0,5})/(s|min|h|day)\Z")
_PERIODS = {"s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0}

Callback = Callable[[Any], bool]


class Permit(Protocol):
    """A limit that a call passes before it starts; see the module."""

    def take(self, callback: Callback, about: Any = None) -> bool: ...
    def release(self) -> None: ...


async def acquire(permit: Permit) -> None:
    """Wait for a permit and take it."""
    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def called(_: Any) -> bool:
        if turn.done():
            return False
        turn.set_result(None)
        return True

    if permit.take(called):
        return
    try:
        await turn
    except asyncio.CancelledError:
        if turn.done() and not turn.cancelled():
            permit.release()
        raise


class Slots:
    """At most `limit` holders (0: any number)."""

    __slots__ = ("__weakref__", "_queue", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._queue: deque[tuple[Callback, Any]] = deque()

    def take(self, callback: Callback, about: Any = None) -> bool:
        if self.limit and self.used >= self.limit:
            self._queue.append((callback, about))
            return False
        self.used += 1
        return True

    def release(self) -> None:
        """Give a slot back, to whoever waits longest."""
        while self._queue:
            callback, about = self._queue.popleft()
            if callback(about):
                return
        self.used -= 1


class Rate:
    """At most `count` starts in any `period` seconds (a sliding window, exact); releasing gives nothing back."""

    __slots__ = ("_clock", "_queue", "_starts", "_timer", "count", "period")

    def __init__(self, text: str, clock: Clock) -> None:
        found = _RATE.match(text)
        assert found is not None  # the catalog has checked it
        self.count, self.period = int(found[1]), _PERIODS[found[2]]
        self._clock = clock
        self._starts: deque[float] = deque(maxlen=self.count)
        self._queue: deque[tuple[Callback, Any]] = deque()
        self._timer: Timer | None = None

    def take(self, callback: Callback, about: Any = None) -> bool:
        if self._queue or self._wait() > 0:
            self._queue.append((callback, about))
            self._arm()
            return False
        self._starts.append(self._clock.monotonic())
        return True

    def release(self) -> None:
        """A start has been, whatever became of it."""

    def _wait(self) -> float:
        """Seconds until one more may start."""
        if len(self._starts) < self.count:
            return 0.0
        return self._starts[0] + self.period - self._clock.monotonic()

    def _arm(self) -> None:
        if self._timer is None and self._queue:
            self._timer = self._clock.call_at(self._clock.monotonic() + max(0.0, self._wait()), self._due)

    def _due(self) -> None:
        self._timer = None
        while self._queue and self._wait() <= 0:
            callback, about = self._queue.popleft()
            if callback(about):
                self._starts.append(self._clock.monotonic())
        self._arm()


def is_rate(value: object) -> bool:
    """Return whether this says how often: a count in a time, or "" for any number."""
    return value == "" or (isinstance(value, str) and _RATE.match(value) is not None)
