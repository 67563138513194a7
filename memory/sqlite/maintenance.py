"""Idle work of the writer's thread: empties the write-ahead log, tends the data, holds the disk reserve, makes copies.

SQLite's own checkpoints are off, because they would delay some commits by milliseconds. A long log is moved into the
file between two groups, and emptied when the thread is idle. If readers prevent this for long, they have to wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from memory.engine.maintenance import REST, TEND_AGAIN, Tending
from spar.failpoints import armed, crashpoint

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.sqlite.transactions import Transactions

RESTS_UNTIL_TRUNCATED = 5  # not at each rest: the next commits after emptying the log cost two more flushes
BALLAST_AGAIN = 1.0  # seconds until the reserve is tried again on a full disk
WAL_PAGES = 1_000  # 4 MiB: the log is moved into the file between two groups
WAL_PAGES_HARD = 16_000  # 64 MiB: readers prevented this for so long that they must wait


class Maintenance(Tending):
    """Schedule and steps of the idle work, all in the writer's thread.

    Args: transactions, tend, rest: as in `Tending`; hold: creates the disk reserve, returns False to be called again
        soon; copy: begins a copy of the file, if one is due, in the background; stop_copy: abandons it.
    """

    def __init__(
        self,
        transactions: Transactions,
        tend: Callable[[Connection], bool],
        rest: float = REST,
        hold: Callable[[], bool] | None = None,
        copy: Callable[[], object] = lambda: None,
        stop_copy: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(transactions, tend, rest)
        self._transactions, self._hold, self._copy, self._stop_copy = transactions, hold, copy, stop_copy
        self._wal_pages = self._checkpointed = 0  # pages in the log now, and at the last checkpoint

    def begin(self) -> None:
        """Watch the log of a new connection, and schedule the first step for rows that became too old meanwhile."""
        self._transactions.connected = self.begin
        self._wal_pages = self._checkpointed = 0
        self._transactions.connection.set_wal_hook(self._note_pages)
        super().begin()
        if self._hold is not None:
            self._due[self._hold_reserve] = time.monotonic() + self._rest

    def after_group(self) -> None:
        """Move the log into the file after a committed group if it is long, and schedule the tending."""
        self._move_long_log()
        super().after_group()

    @property
    def is_long(self) -> bool:  # type: ignore[override]
        """Return whether the log is too long, because a reader prevents its reuse."""
        return self._wal_pages >= WAL_PAGES_HARD

    def hold_reserve_soon(self) -> None:
        """Try soon to reserve disk space again."""
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
            self._transactions.connection.wal_checkpoint(mode=mode)
            self.last_error = None
        except Exception as error:
            self.last_error = f"the write-ahead log could not be emptied yet: {error}"
            self._transactions.failed(error)
            self._due[self._truncate] = time.monotonic() + RESTS_UNTIL_TRUNCATED * self._rest

    def stop(self) -> None:
        """Abandon the current copy."""
        self._stop_copy()

    # -- the steps

    def _has_tended(self, *, has_more: bool) -> None:
        self._move_long_log()
        if not has_more:
            self._copy()

    def _move_long_log(self) -> None:
        if self._wal_pages - self._checkpointed >= WAL_PAGES:
            self.checkpoint()

    def _truncate(self) -> None:
        del self._due[self._truncate]
        self.checkpoint(is_idle=True)

    def _hold_reserve(self) -> None:
        assert self._hold is not None
        self._due[self._hold_reserve] = time.monotonic() + (TEND_AGAIN if self._hold() else BALLAST_AGAIN)

    def _note_pages(self, connection: object, name: str, pages: int) -> int:
        if pages < self._wal_pages:  # the log was begun again from its start
            self._checkpointed = 0
        self._transactions.pages = pages
        self._wal_pages, self._due[self._truncate] = pages, time.monotonic() + RESTS_UNTIL_TRUNCATED * self._rest
        return 0
