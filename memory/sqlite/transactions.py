"""Transactions of groups of work: each checks the epoch, is flushed if a caller waits, and is repaired after an error.

With durability "power" a transaction is flushed to the disk only if it must be. The next flush covers all transactions
before it, in their order, because they are in one log. The length of the log after a flush is noted in the watermark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from memory.engine.own_keys import EPOCH, FLUSHED
from memory.engine.transactions import FLUSH_WITHIN, Work, guarded
from memory.sqlite import wal
from memory.sqlite.database import SYNCHRONOUS, epoch_of, number_of
from memory.sqlite.seals import Seals
from memory.sqlite.wal_watermark import WalWatermark
from spar.errors import FencedError

if TYPE_CHECKING:
    from memory.sqlite.connection import SqliteConnection

#: As bytes: a damaged value may be no text.
_EPOCH: Final = f"SELECT CAST(value AS BLOB) FROM state WHERE key = '{EPOCH}'"


class Transactions:
    """Transactions of one connection, and of its successors after errors of the disk.

    Args: name: the file; durability: as in `database`; epoch: the file's epoch that each transaction demands, None for
        no check; reopen: returns a new connection after an error of the disk, None for a database without a file.

    `connected` is called after each new connection. Others set `pages`, the number of pages of the log, at each commit,
    and `must_number` before each checkpoint.
    """

    def __init__(
        self,
        connection: SqliteConnection,
        name: str,
        durability: str,
        epoch: int | None,
        reopen: Callable[[], SqliteConnection] | None,
    ) -> None:
        self.connection, self._name, self._epoch = connection, name, epoch
        self._written_epoch = str(epoch).encode()
        self._reopen = reopen
        self.connected: Callable[[], None] = lambda: None
        self._has_power = durability == "power" and reopen is not None
        self._synchronous = SYNCHRONOUS[durability]
        self._is_connected = True
        self.must_mend = False
        self.flush_at: float | None = None  # monotonic; set while the log is ahead of the disk
        self.flushes = 0
        self.commits = 0, 0.0  # their number and total seconds; one tuple, since other threads read it
        self._seals = Seals(connection)
        self._watermark = WalWatermark(name) if reopen is not None else None
        self._number = self.pages = 0
        self.must_number = True  # whether the next flush writes its number into the file

    def begin(self, *, must_flush: bool = False) -> None:
        """Begin a transaction. Raises: FencedError when another process has taken the file over; apsw.Error."""
        if self.must_mend:
            self._mend()
        if self._has_power and (synchronous := "FULL" if must_flush else "NORMAL") != self._synchronous:
            self.connection.execute(f"PRAGMA synchronous = {synchronous}")
            self._synchronous = synchronous
        self.connection.execute("BEGIN IMMEDIATE")
        if self._epoch is not None and self.connection.execute(_EPOCH).get != self._written_epoch:
            raise FencedError(self._name, self._epoch, epoch_of(self.connection))

    def run(self, group: Sequence[Work], *, is_guarded: bool, must_flush: bool) -> list[Any]:
        """Commit a group. Return the result of each unit of work.

        Args: is_guarded: a unit that fails is undone alone, and its result is `Rejected`; must_flush: all commits up to
            this one must be as safe as the durability says when this returns.
        Raises: the errors of the work or the database; call `undo` then.
        """
        must_flush = must_flush and self._has_power
        self.begin(must_flush=must_flush)
        connection = self.connection
        before = connection.total_changes()
        outcomes = [guarded(connection, work) if is_guarded else work(connection) for work in group]
        has_changed = connection.total_changes() != before
        # A commit without a change flushes nothing, not even what others wrote before it.
        if must_flush and (self.must_number if has_changed else self.flush_at is not None):
            self._number_flush()
            has_changed = True
        self.pages = 0
        self.commit()
        if must_flush:
            self.flushes += has_changed
            self.flush_at = None
            if self.pages and self._watermark is not None:
                self.must_number = False
                self._watermark.promise(self._number, self.pages)
        elif has_changed and self._has_power and self.flush_at is None:
            self.flush_at = time.monotonic() + FLUSH_WITHIN
        return outcomes

    def commit(self) -> None:
        """Seal what the transaction has changed and commit it. Raises: apsw.Error; `undo` it then."""
        self._seals.write()
        began = time.monotonic()
        self.connection.execute("COMMIT")
        number, seconds = self.commits
        self.commits = number + 1, seconds + time.monotonic() - began
        self._seals.done()

    def undo(self) -> None:
        """Undo the transaction that failed, if there is one. Raises: apsw.Error."""
        self._seals.forget()
        if self._is_connected and self.connection.in_transaction:  # SQLite may have undone it already on a full disk
            self.connection.execute("ROLLBACK")

    def failed(self, error: BaseException) -> None:
        """Note an error. After an error of the disk the last writes may be lost, so the log must be mended."""
        import apsw

        if isinstance(error, (apsw.IOError, apsw.CorruptError, apsw.NotADBError)):
            self.must_mend = True

    def close(self) -> None:
        """Close the connection and the mark. Raises: apsw.Error."""
        self.connection.close()
        if self._watermark is not None:
            self._watermark.close()

    def _number_flush(self) -> None:
        """Write the number of the next flush; again for each attempt, so that the watermark has no other number."""
        assert self._watermark is not None
        self.must_number = True
        self._number = max(number_of(self.connection, FLUSHED), self._watermark.flush) + 1
        self.connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (FLUSHED, str(self._number)))

    def _mend(self) -> None:
        """Write the log again, which a failing disk may have lost, and continue with a new connection.

        Raises: apsw.Error.
        """
        if self._reopen is not None:
            if self._is_connected:
                wal.mend(self.connection)
                self.connection.close()
                self._is_connected = False
            self.must_number = True  # the closing may have emptied the log
            self.connection = self._reopen()
            self._is_connected = True
            self._seals = Seals(self.connection)
            self._synchronous = ""
            self.connected()
        self.must_mend = False
