"""Time behind one seam: what the wall says, what has passed, how to wait, how to be called back.

Deadlines and intervals use `monotonic`; `now` is for people and for schedules. Tests put a
`spar.testing.VirtualClock` here and an hour passes in milliseconds.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, tzinfo
from datetime import time as Time
from typing import Protocol
from zoneinfo import ZoneInfo

import anyio

from spar.ids import new_id


class Timer(Protocol):
    """Timer that `Clock.call_at` returns: it can still be called off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The port. Every duration is in seconds; `monotonic` never goes back; nothing here raises."""

    def now(self) -> datetime:
        """The wall clock, aware, UTC."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass; other tasks run meanwhile, also for 0. May be cancelled."""

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call back in the event loop's thread once `monotonic()` has reached `when`."""

    def new_id(self) -> str:
        """A new identifier, unique and sortable by time."""

    def working(self) -> AbstractContextManager[object]:
        """Held while a thread works for the loop, so that a virtual clock does not run ahead of it."""

    @property
    def is_virtual(self) -> bool:
        """Return whether time moves only as the loop goes idle; watchers then watch from the loop, not a thread."""


class SystemClock:
    """The real clock. `monotonic` is the event loop's own, so its timers and ours agree."""

    is_virtual = False
    monotonic = staticmethod(time.monotonic)
    now = staticmethod(functools.partial(datetime.now, UTC))
    new_id = staticmethod(new_id)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(max(0.0, seconds))

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        # Not loop.call_at(when): a loop may count its time from another moment than time.monotonic.
        return asyncio.get_running_loop().call_later(when - time.monotonic(), callback)

    def working(self) -> AbstractContextManager[object]:
        return nullcontext()


def time_of_day(text: str) -> Time | None:
    """Return the time that a text like "04:00" names; None for another text."""
    try:
        return Time.fromisoformat(text)
    except ValueError:
        return None


def zone_named(name: str) -> tzinfo | None:
    """Return a time zone by its name, None for "local". Raises: ValueError saying which names are known."""
    if name == "local":
        return None
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        known = 'known: "local", "UTC", or a name like "Europe/Berlin"'
        raise ValueError(f"no time zone is named {name!r:.100}; {known}") from None
