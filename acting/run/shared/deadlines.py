"""Deadlines of calls: one timer for all calls with the same timeout, instead of one per call.

Calls with the same timeout fall due in the order in which they began. So there is a row for each timeout, and only the
first deadline of a row needs a timer. The beginning and the end of a call then cost only an entry of a dictionary.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from spar.clock import Clock, Timer


class _Row(Struct, eq=False):
    """The open deadlines of one timeout by call, the next one first: when, and what to do then."""

    clock: Clock
    open: OrderedDict[Any, tuple[float, Callable[[], object]]] = field(default_factory=OrderedDict)
    timer: Timer | None = None

    def ring(self) -> None:
        self.timer = None
        now = self.clock.monotonic()
        while self.open:
            call, (at, due) = next(iter(self.open.items()))
            if at > now:
                self.timer = self.clock.call_at(at, self.ring)
                return
            del self.open[call]
            due()


class Deadlines(Struct, eq=False):
    """The rows by timeout in seconds."""

    _clock: Clock
    _rows: dict[float, _Row] = field(default_factory=dict)

    def add(self, call: Any, timeout: float, at: float, due: Callable[[], object]) -> None:
        """Call `due` at `at` (monotonic seconds), `timeout` seconds after a call began, unless it is dropped before."""
        row = self._rows.get(timeout)
        if row is None:
            if len(self._rows) >= 1000:
                self._rows = {seconds: row for seconds, row in self._rows.items() if row.open}
            row = self._rows[timeout] = _Row(self._clock)
        row.open[call] = at, due
        if row.timer is None:
            row.timer = self._clock.call_at(at, row.ring)

    def drop(self, call: Any, timeout: float) -> None:
        """Drop the deadline of a call that has ended."""
        row = self._rows.get(timeout)
        if row is None or call not in row.open:
            return
        del row.open[call]
        if not row.open and row.timer is not None:
            row.timer.cancel()
            row.timer = None
