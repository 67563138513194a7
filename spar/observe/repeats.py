"""Limit for repeated lines: further ones are counted, and one line reports their number at the end of the time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from spar.observe.formatting import Line

#: Fields that tell lines apart: lines with the same message but different values here are different.
IDENTITY = ("agent", "phase", "tool", "sensor", "part")

#: Most different lines within the time; beyond them no line is left out.
MAX_KEYS = 1000

Key = tuple[object, ...]


class _Window(Struct):
    ends: float
    line: Line
    count: int = 0
    left_out: int = 0


class Repeats:
    """Limit of `limit` equal lines in `within` seconds, for each message of each agent (and phase, tool, sensor)."""

    def __init__(self, clock: Callable[[], float], *, limit: int = 10, within: float = 60.0) -> None:
        self._clock, self._limit, self._within = clock, limit, within
        self._windows: dict[Key, _Window] = {}
        self._lock = threading.RLock()  # a finalizer may log while its thread is logging
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._windows)

    def leaves_out(self, level: str, logger: str, message: Any, fields: Mapping[str, Any]) -> bool:
        """Return whether a line is one repetition too many, before it is made; count it if so.

        False also if only the finished line can tell: then call `admit`.
        """
        identity = [fields.get(name) for name in IDENTITY]
        if type(message) is not str or not all(value is None or type(value) is str for value in identity):
            return False
        with self._lock:
            window = self._windows.get((level, logger, message, *map(str, identity)))
            if window is None or window.count < self._limit or self._clock() >= window.ends:
                return False
            self._leave_out(window)
            return True

    def admit(self, line: Line) -> bool:
        """Return whether to write this line; count it if not."""
        key: Key = (line.level, line.logger, line.message, *(str(line.fields.get(name)) for name in IDENTITY))
        now = self._clock()
        with self._lock:
            window = self._windows.get(key)
            if window is None or (now >= window.ends and not window.left_out):
                if window is None and len(self._windows) >= MAX_KEYS and not self._make_room(now):
                    return True  # a thousand different lines in a minute: this one is new too
                window = self._windows[key] = _Window(now + self._within, line)
            if window.count >= self._limit:
                self._leave_out(window)
                return False
            window.count += 1
            return True

    def wait(self) -> float | None:
        """Return the seconds until there may be a number to report; None: not before further lines come."""
        now = self._clock()
        with self._lock:
            ends = [window.ends for window in self._windows.values() if window.count >= self._limit]
        return max(min(ends) - now, 0.0) if ends else None

    def due(self, *, all_of_them: bool = False) -> list[tuple[Line, int]]:
        """Return the lines whose time is over, with the numbers of left out lines, and forget them."""
        now = self._clock()
        with self._lock:
            over = [key for key, window in self._windows.items() if all_of_them or now >= window.ends]
            windows = [self._windows.pop(key) for key in over]
        return [(window.line, window.left_out) for window in windows if window.left_out]

    def _leave_out(self, window: _Window) -> None:
        window.left_out += 1
        self.left_out += 1

    def _make_room(self, now: float) -> bool:
        for key in [key for key, window in self._windows.items() if now >= window.ends and not window.left_out]:
            del self._windows[key]
        return len(self._windows) < MAX_KEYS
