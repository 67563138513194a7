"""What the writer's thread does when it has time: empty the write-ahead log, tend the data.

SQLite's own checkpoints are off, because they would make an unlucky commit wait for milliseconds. A long log is
moved into the file between two groups, an idle one is emptied, and one that readers keep from being reused is
emptied by making them wait. Tending (retention, merging) waits for a rest, but not for ever. When nothing was
written nothing is done, except for an hourly look at what merely grew older.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apsw import Connection

REST = 1.0  # seconds without work after which the data is tended
RESTS_UNTIL_TRUNCATED = 5  # an emptied log costs two more flushes
TEND_WITHIN = 60.0  # seconds after which it is tended although there is always work
TEND_AGAIN = 3_600.0  # seconds until what merely grew older is looked at
WAL_PAGES = 1_000  # 4 MiB: moved into the file between groups
WAL_PAGES_HARD = 16_000  # 64 MiB: readers held that up so long that now they must wait


class Upkeep:
    """The schedule and the steps, all in the writer's thread.

    Args: tend: one small step inside a transaction; returns whether there is more to do; rest: seconds without work
        after which the data is tended.
    """

    def __init__(self, connection: Connection, tend: Callable[[Connection], bool], rest: float = REST) -> None:
        self._connection, self._tend, self._rest = connection, tend, rest
        self._wal_pages = self._checkpointed = 0  # in the log; and how many there were at the last checkpoint
        self._changes = 0
        self._tend_at: float | None = None
        self._overdue_at: float | None = None
        self._truncate_at: float | None = None
        self.last_error: str | None = None

    def begin(self) -> None:
        """Watch the log; look soon at what grew too old while nobody was there."""
        self._connection.set_wal_hook(self._note_pages)
        self._changes = self._connection.total_changes()
        self._tend_at = time.monotonic() + self._rest

    def after_group(self) -> None:
        """Work was committed: tend later, and move the log into the file if it has grown long."""
        changes, now = self._connection.total_changes(), time.monotonic()
        if changes != self._changes:
            self._changes, self._tend_at = changes, now + self._rest
            self._overdue_at = now + TEND_WITHIN if self._overdue_at is None else self._overdue_at
        self.checkpoint()

    def due_at(self) -> float | None:
        """When the next step is due, in monotonic seconds; None when nothing is."""
        return min((at for at in (self._tend_at, self._truncate_at) if at is not None), default=None)

    def is_overdue(self) -> bool:
        """Whether tending can wait no longer for a rest."""
        return self._overdue_at is not None and time.monotonic() >= self._overdue_at

    def step(self) -> None:
        """One step of what is due. Raises: what the database raises."""
        now = time.monotonic()
        if self.is_overdue() or (self._tend_at is not None and now >= self._tend_at):
            self._connection.execute("BEGIN IMMEDIATE")
            has_more = self._tend(self._connection)
            self._connection.execute("COMMIT")
            self._changes = self._connection.total_changes()
            self._tend_at, self._overdue_at = (now, now) if has_more else (now + TEND_AGAIN, None)
            self.checkpoint()
        elif self._truncate_at is not None and now >= self._truncate_at:
            self._truncate_at = None
            self.checkpoint(is_idle=True)

    def put_off(self) -> None:
        """A step failed: try again after a while."""
        self._tend_at, self._overdue_at = time.monotonic() + TEND_WITHIN, None

    def checkpoint(self, *, is_idle: bool = False) -> None:
        """Move the log into the file when it is long, empty it when idle or far too long; never raises.

        When a reader or a full disk is in the way the log keeps everything, and it is tried again later.
        """
        import apsw

        if not is_idle and self._wal_pages - self._checkpointed < WAL_PAGES:
            return
        is_hard = is_idle or self._wal_pages >= WAL_PAGES_HARD
        self._checkpointed = self._wal_pages
        try:
            mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if is_hard else apsw.SQLITE_CHECKPOINT_PASSIVE
            self._connection.wal_checkpoint(mode=mode)
            self.last_error = None
        except Exception as error:
            self.last_error = f"the write-ahead log could not be emptied yet: {error}"
            self._truncate_at = time.monotonic() + RESTS_UNTIL_TRUNCATED * self._rest

    def _note_pages(self, connection: Connection, name: str, pages: int) -> int:
        if pages < self._wal_pages:  # it began anew
            self._checkpointed = 0
        self._wal_pages, self._truncate_at = pages, time.monotonic() + RESTS_UNTIL_TRUNCATED * self._rest
        return 0
