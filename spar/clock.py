"""Time through one port: wall time, elapsed time, waits and timers.

Deadlines and intervals use `monotonic`; `now` is for people and for schedules. Tests pass a
`spar.testing.VirtualClock`, with which an hour takes milliseconds.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import time as Time
from typing import Any, Protocol

from spar.ids import new_id


class Timer(Protocol):
    """Timer that `Clock.call_at` returns and that can be cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Port of a clock. Every duration is in seconds; `monotonic` never goes back; no method raises."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC."""

    def monotonic(self) -> float:
        """Return the seconds since some fixed moment."""

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`; other tasks run meanwhile, also for 0. May be cancelled."""

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` in the event loop's thread once `monotonic()` has reached `when`."""

    def new_id(self) -> str:
        """Return a new identifier, unique and sortable by time."""

    def working(self) -> AbstractContextManager[object]:
        """Return a context in which a thread works for the loop, so that a virtual clock does not run ahead of the
        thread."""

    @property
    def is_virtual(self) -> bool:
        """Return whether time moves only when the loop is idle; then a watchdog runs in the loop and not in a
        thread."""


class SystemClock:
    """Real clock. `monotonic` is the event loop's own, so the loop's timers and ours agree."""

    is_virtual = False
    monotonic = staticmethod(time.monotonic)
    now = staticmethod(functools.partial(datetime.now, UTC))
    new_id = staticmethod(new_id)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        # Not loop.call_at(when): a loop's time may start at another moment than time.monotonic.
        return asyncio.get_running_loop().call_later(when - time.monotonic(), callback)

    working: Callable[[], AbstractContextManager[object]] = staticmethod(nullcontext)


class Wake:
    """Flag with one sleeper. A call of `set` while nobody sleeps is remembered (`is_set`): the next `sleep` returns at
    once."""

    __slots__ = ("_clock", "_future", "is_set")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_set = False
        self._future: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the sleeper. From the event loop's thread only."""
        self.is_set = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def sleep(self, seconds: float | None) -> bool:
        """Sleep for `seconds` (None: until woken), clear the flag, and return True if woken."""
        if not self.is_set:
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
        was_set, self.is_set = self.is_set, False
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


async def ended(future: asyncio.Future[Any], timeout: float, clock: Clock) -> bool:
    """Wait until a future is done, at most `timeout` seconds of the clock; return whether it is. It is not
    cancelled."""
    wake = Wake(clock)

    def stir(_: object) -> None:
        wake.set()

    if not future.done():
        future.add_done_callback(stir)
        try:
            await wake.sleep(timeout)
        finally:
            future.remove_done_callback(stir)
    return future.done()


def time_of_day(text: str) -> Time | None:
    """Return the time of a text like "04:00"; None for another text."""
    try:
        return Time.fromisoformat(text)
    except ValueError:
        return None


def zone_named(name: str) -> tzinfo | None:
    """Return a time zone by its name, None for "local". Raises: ValueError with the known names."""
    if name == "local":
        return None
    if name.upper() == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # few agents name a zone

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        hint = 'known: "local", "UTC", or a name like "Europe/Berlin"'
        raise ValueError(f"no time zone is named {name!r:.100}; {hint}") from None


def moment_of(reading: datetime, zone: tzinfo | None) -> datetime:
    """Return the first moment (UTC) at which a wall clock shows this reading or a later one.

    Daylight saving follows cron(8): a reading that is skipped counts right after the change, one that comes twice
    counts the first time. Args: zone: the time zone; None for that of the system.
    """
    wall = reading.replace(tzinfo=zone)
    late, early = wall.astimezone(UTC), wall.replace(fold=1).astimezone(UTC)
    if late <= early:  # it is not skipped
        return late
    before = early.astimezone(zone).utcoffset()
    while late - early > timedelta(seconds=1):  # the offset changes in between
        middle = early + (late - early) / 2
        early, late = (middle, late) if middle.astimezone(zone).utcoffset() == before else (early, middle)
    return late.replace(microsecond=0)
