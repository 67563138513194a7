"""Deadlines of calls: one timer for all calls with the same timeout, instead of one per call.

Calls with the same timeout fall due in the order in which they began. So there is a row for each timeout, and only the
first deadline of a row needs a timer. The beginning and the end of a call then cost only an entry of a dictionary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict

from spar.clock import Clock, Timer


class Deadline(ABC):
    """One call's deadline: `due` is called at `at` (monotonic seconds) unless it is closed before.

    `row` is None until it is added.
    """

    __slots__ = ("at", "row")

    at: float
    row: _Row | None

    @abstractmethod
    def due(self) -> None:
        """End the call: its time has passed."""

    def close(self) -> None:
        if self.row is not None:
            self.row.remove(self)


class _Row:
    """The open deadlines of one timeout, the next one first."""

    __slots__ = ("_clock", "_open", "_timer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: OrderedDict[Deadline, None] = OrderedDict()
        self._timer: Timer | None = None

    def add(self, deadline: Deadline) -> None:
        deadline.row = self
        self._open[deadline] = None
        if self._timer is None:
            self._timer = self._clock.call_at(deadline.at, self._ring)

    def remove(self, deadline: Deadline) -> None:
        if self._open.pop(deadline, self) is None and not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        while self._open:
            deadline = next(iter(self._open))
            if deadline.at > now:
                self._timer = self._clock.call_at(deadline.at, self._ring)
                return
            del self._open[deadline]
            deadline.due()

    @property
    def is_empty(self) -> bool:
        return not self._open


class Deadlines:
    """The rows by timeout in seconds."""

    __slots__ = ("_clock", "_rows")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[float, _Row] = {}

    def add(self, timeout: float, at: float, deadline: Deadline) -> None:
        """Add the deadline `at` of a call that began `timeout` seconds before it. Close it when the call ends."""
        deadline.at = at
        row = self._rows.get(timeout)
        if row is None:
            if len(self._rows) >= 1000:
                self._rows = {seconds: row for seconds, row in self._rows.items() if not row.is_empty}
            row = self._rows[timeout] = _Row(self._clock)
        row.add(deadline)
