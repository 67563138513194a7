"""Waits of coroutines: for a time or until `set` is called (`Wake`), for the next change of something (`Signal`)."""

from __future__ import annotations

import asyncio

from spar.clock import Clock


class Wake:
    """Flag with one sleeper. A call of `set` while nobody sleeps is remembered: the next `sleep` returns at once."""

    __slots__ = ("_clock", "_future", "_is_set")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_set = False
        self._future: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the sleeper. From the event loop's thread only."""
        self._is_set = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def sleep(self, seconds: float | None) -> bool:
        """Sleep for `seconds` (None: until woken), clear the flag, and return True if woken."""
        if not self._is_set:
            self._future = future = asyncio.get_running_loop().create_future()
            timer = None
            if seconds is not None:
                timer = self._clock.call_at(self._clock.monotonic() + seconds, lambda: _finish(future))
            try:
                await future
            finally:
                self._future = None
                if timer is not None:
                    timer.cancel()
        was_set, self._is_set = self._is_set, False
        return was_set


class Signal:
    """Signal for any number of coroutines. Setting it wakes those that wait at that moment."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    def set(self) -> None:
        """Wake all that wait. From the event loop's thread only."""
        for waiter in self._waiters:  # they remove themselves later, in their own tasks
            _finish(waiter)

    async def wait(self, clock: Clock | None = None, timeout: float | None = None) -> None:
        """Return when the signal is set, or after `timeout` seconds by the clock (None or infinite: no time limit)."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = None
        if clock is not None and timeout is not None and timeout < float("inf"):
            timer = clock.call_at(clock.monotonic() + timeout, lambda: _finish(waiter))
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            del self._waiters[waiter]
            if timer is not None:
                timer.cancel()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
