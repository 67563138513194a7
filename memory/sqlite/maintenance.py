"""Idle work of the writer's thread: empties the write-ahead log, tends the data, holds the disk reserve, makes copies.

SQLite's own checkpoints are off, because they would delay some commits by milliseconds. A long log is moved into the
file between two groups, and emptied when the thread is idle. If readers prevent this for long, they have to wait.
Tending (retention, adding up counts) waits until the thread is idle, but not for ever. If nothing was written nothing
is done, except for an hourly check of rows that have become too old.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from spar.failpoints import armed, crashpoint
from spar.types import Fault

if TYPE_CHECKING:
    from apsw import Connection

    from memory.sqlite.transactions import Transactions

REST = 1.0  # seconds without work after which the data is tended
RESTS_UNTIL_TRUNCATED = 5  # not at each rest: the next commits after emptying the log cost two more flushes
TEND_WITHIN = 60.0  # seconds after which the data is tended even if there is always work
TEND_AGAIN = 3_600.0  # seconds until rows that have become too old are looked for
BALLAST_AGAIN = 1.0  # seconds until the reserve is tried again on a full disk
WAL_PAGES = 1_000  # 4 MiB: the log is moved into the file between two groups
WAL_PAGES_HARD = 16_000  # 64 MiB: readers prevented this for so long that they must wait


class Copies(Protocol):
    """Automatic copies of the file; `report` is called, in any thread, when none can be made."""

    report: Callable[[Fault], None]

    def begin_if_due(self) -> None:
        """Begin a copy in the background, unless one is under way or none is due."""

    def stop(self) -> None:
        """Abandon the current copy."""


class Maintenance:
    """Schedule and steps of the idle work, all in the writer's thread.

    Args: transactions: those of the writer; tend: does one small step inside a transaction, returns whether there is
        more to do; rest: seconds without work after which the data is tended; hold: creates the disk reserve, returns
        False to be called again soon; copies: begun when one is due.
    """

    def __init__(
        self,
        transactions: Transactions,
        tend: Callable[[Connection], bool],
        rest: float = REST,
        hold: Callable[[], bool] | None = None,
        copies: Copies | None = None,
    ) -> None:
        self._transactions, self._tend, self._rest = transactions, tend, rest
        self._hold, self._copies = hold, copies
        self._wal_pages = self._checkpointed = 0  # pages in the log now, and at the last checkpoint
        self._changes = 0
        self._due: dict[Callable[[], None], float] = {}  # the steps to do, each with its time in monotonic seconds
        self._overdue_at: float | None = None
        self.last_error: str | None = None

    def begin(self) -> None:
        """Watch the log of a new connection, and schedule the first step for rows that became too old meanwhile."""
        self._transactions.connected = self.begin
        connection = self._connection
        self._wal_pages = self._checkpointed = 0
        connection.set_wal_hook(self._note_pages)
        self._changes = connection.total_changes()
        self._due[self._tend_once] = time.monotonic() + self._rest
        if self._hold is not None:
            self._due[self._hold_reserve] = time.monotonic() + self._rest

    def after_group(self) -> None:
        """Schedule the tending after a committed group, and move the log into the file if it is long."""
        changes = self._connection.total_changes()
        if changes != self._changes:
            now = time.monotonic()
            self._changes, self._due[self._tend_once] = changes, now + self._rest
            self._overdue_at = now + TEND_WITHIN if self._overdue_at is None else self._overdue_at
        if self._wal_pages - self._checkpointed >= WAL_PAGES:
            self.checkpoint()

    def due_at(self) -> float | None:
        """Return when the next step is due, in monotonic seconds; None if no step is."""
        return min(self._due.values(), default=None)

    def is_overdue(self) -> bool:
        """Return whether tending must not wait any longer until the thread is idle."""
        return self._overdue_at is not None and time.monotonic() >= self._overdue_at

    @property
    def _connection(self) -> Connection:
        return self._transactions.connection

    @property
    def is_long(self) -> bool:
        """Return whether the log is too long, because a reader prevents its reuse."""
        return self._wal_pages >= WAL_PAGES_HARD

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
        self._due[self._hold_reserve] = time.monotonic() + BALLAST_AGAIN

    def checkpoint(self, *, is_idle: bool = False) -> None:
        """Move the log into the file, and empty the log if the thread is idle or the log far too long. Never raises.

        If a reader or a full disk prevents this, the log keeps its content and the next attempt follows later.
        """
        import apsw

        is_hard = is_idle or self.is_long
        self._checkpointed, self._transactions.must_number = self._wal_pages, True
        if armed:
            crashpoint("wal.checkpoint")
        try:
            mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if is_hard else apsw.SQLITE_CHECKPOINT_PASSIVE
            self._connection.wal_checkpoint(mode=mode)
            self.last_error = None
        except Exception as error:
            self.last_error = f"the write-ahead log could not be emptied yet: {error}"
            self._transactions.failed(error)
            self._due[self._truncate] = time.monotonic() + RESTS_UNTIL_TRUNCATED * self._rest

    # -- the steps

    def _tend_once(self) -> None:
        now = time.monotonic()
        self._transactions.begin()
        has_more = self._tend(self._connection)
        self._transactions.commit()
        self._changes = self._connection.total_changes()
        self._due[self._tend_once], self._overdue_at = (now, now) if has_more else (now + TEND_AGAIN, None)
        if self._wal_pages - self._checkpointed >= WAL_PAGES:
            self.checkpoint()
        if not has_more and self._copies is not None:
            self._copies.begin_if_due()

    def _truncate(self) -> None:
        del self._due[self._truncate]
        self.checkpoint(is_idle=True)

    def _hold_reserve(self) -> None:
        assert self._hold is not None
        self._due[self._hold_reserve] = time.monotonic() + (TEND_AGAIN if self._hold() else BALLAST_AGAIN)

    def _note_pages(self, connection: Connection, name: str, pages: int) -> int:
        if pages < self._wal_pages:  # the log was begun again from its start
            self._checkpointed = 0
        self._transactions.pages = pages
        self._wal_pages, self._due[self._truncate] = pages, time.monotonic() + RESTS_UNTIL_TRUNCATED * self._rest
        return 0
