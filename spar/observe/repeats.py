"""Limit for repeated lines: further ones are counted, and one line reports their number at the end of the time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from spar.observe.formatting import text_of

#: Fields that tell lines apart: lines with the same message but different values here are different.
IDENTITY = ("agent", "phase", "tool", "sensor", "part")
#: Most different lines within the time; beyond them no line is left out. Most characters by which they are told apart.
MAX_KEYS, LONGEST = 1000, 500


class Window(Struct):
    """Time within which equal lines are counted."""

    level: str
    logger: str
    message: str
    identity: dict[str, str]
    ends: float
    count: int = 0


class Repeats:
    """Limit of `limit` equal lines in `within` seconds, for each message of each agent (and phase, tool, sensor)."""

    def __init__(self, clock: Callable[[], float], *, limit: int = 10, within: float = 60.0) -> None:
        self._clock, self._limit, self._within = clock, limit, within
        self._windows: dict[tuple[str, ...], Window] = {}
        self._lock = threading.RLock()  # a finalizer may log while its thread is logging

    def leaves_out(self, level: str, logger: str, message: Any, fields: Mapping[str, Any]) -> bool:
        """Return whether a line is one repetition too many, and count it. The line itself need not be made for this."""
        identity = {name: text_of(value)[:LONGEST] for name in IDENTITY if (value := fields.get(name)) is not None}
        text, now = text_of(message)[:LONGEST], self._clock()
        key = (level, logger, text, *identity, *identity.values())
        with self._lock:
            window = self._windows.get(key)
            if window is None or (now >= window.ends and window.count <= self._limit):
                if window is None and len(self._windows) >= MAX_KEYS and not self._make_room(now):
                    return False  # a thousand different lines in a minute: this one is new too
                window = self._windows[key] = Window(level, logger, text, identity, now + self._within)
            window.count += 1
            return window.count > self._limit

    def wait(self) -> float | None:
        """Return the seconds until there may be a number to report; None: not before further lines come."""
        now = self._clock()
        with self._lock:
            ends = [window.ends for window in self._windows.values() if window.count >= self._limit]
        return max(min(ends) - now, 0.0) if ends else None

    def due(self, *, all_of_them: bool = False) -> list[tuple[Window, int]]:
        """Return the windows whose time is over, with the numbers of left out lines, and forget them."""
        now = self._clock()
        with self._lock:
            over = [key for key, window in self._windows.items() if all_of_them or now >= window.ends]
            windows = [self._windows.pop(key) for key in over]
        return [(window, window.count - self._limit) for window in windows if window.count > self._limit]

    def _make_room(self, now: float) -> bool:
        windows = self._windows.items()
        self._windows = {key: window for key, window in windows if now < window.ends or window.count > self._limit}
        return len(self._windows) < MAX_KEYS
