"""Schedule of the idle work of the writer's thread, and the tending of the data, which every database needs.

Tending (retention, adding up counts) waits until the thread is idle, but not for ever. If nothing was written nothing
is done, except for an hourly check of rows that have become too old.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING

from memory.engine.transactions import GroupTransactions

if TYPE_CHECKING:
    from memory.engine.connection import Connection

REST = 1.0  # seconds without work after which the data is tended
TEND_WITHIN = 60.0  # seconds after which the data is tended even if there is always work
TEND_AGAIN = 3_600.0  # seconds until rows that have become too old are looked for


class Tending:
    """Schedule of idle work, all in the writer's thread.

    Args: transactions: those of the writer; tend: does one small step inside a transaction, returns whether there is
        more to do; rest: seconds without work after which the data is tended.
    """

    #: Whether a log of the database is too long.
    is_long = False

    def __init__(self, transactions: GroupTransactions, tend: Callable[[Connection], bool], rest: float = REST) -> None:
        self._group, self._tend, self._rest = transactions, tend, rest
        self._changes = 0
        self._due: dict[Callable[[], None], float] = {}  # the steps to do, each with its time in monotonic seconds
        self._overdue_at: float | None = None
        self.last_error: str | None = None

    def begin(self) -> None:
        """Schedule the first step, for rows that became too old meanwhile."""
        self._changes = self._group.connection.total_changes()
        self._due[self._tend_once] = time.monotonic() + self._rest

    def after_group(self) -> None:
        """Schedule the tending after a committed group."""
        changes = self._group.connection.total_changes()
        if changes != self._changes:
            now = time.monotonic()
            self._changes, self._due[self._tend_once] = changes, now + self._rest
            self._overdue_at = now + TEND_WITHIN if self._overdue_at is None else self._overdue_at

    def due_at(self) -> float | None:
        """Return when the next step is due, in monotonic seconds; None if no step is."""
        return min(self._due.values(), default=None)

    def is_overdue(self) -> bool:
        """Return whether tending must not wait any longer until the thread is idle."""
        return self._overdue_at is not None and time.monotonic() >= self._overdue_at

    def step(self) -> None:
        """Do one step that is due. Raises: the errors of the database."""
        if self.is_overdue():
            self._tend_once()
            return
        at, first = min(((at, step) for step, at in self._due.items()), key=itemgetter(0), default=(math.inf, None))
        if first is not None and time.monotonic() >= at:
            first()

    def postpone(self) -> None:
        """Schedule a failed step again after `TEND_WITHIN` seconds."""
        self._due[self._tend_once], self._overdue_at = time.monotonic() + TEND_WITHIN, None

    def hold_reserve_soon(self) -> None:
        """Try soon to reserve disk space again; without a reserve nothing is done."""

    def checkpoint(self, *, is_idle: bool = False) -> None:
        """Move the log of the database into its file; nothing is done without a log. Never raises."""

    def stop(self) -> None:
        """Abandon what goes on beside the thread."""

    def _tend_once(self) -> None:
        now = time.monotonic()
        self._group.begin()
        has_more = self._tend(self._group.connection)
        self._group.commit()
        self._changes = self._group.connection.total_changes()
        self._due[self._tend_once], self._overdue_at = (now, now) if has_more else (now + TEND_AGAIN, None)
        self._has_tended(has_more=has_more)

    def _has_tended(self, *, has_more: bool) -> None:
        """Note that the data was tended."""
