"""Groups of work as transactions: each still ours to write, flushed when somebody waits, mended after a disk error.

With durability "power" a transaction is flushed only if it must be; what was committed without that is flushed by the
next one that is, in the order in which it was written, because it all goes into one log. What a flush made safe is
told to the `watermark`. It knows no queue and no time but the moment until which a flush may wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from memory.sqlite import wal
from memory.sqlite.database import FLUSHED, SYNCHRONOUS, epoch_of, is_storage, number_of
from memory.sqlite.seals import Seals
from memory.sqlite.wal_watermark import WalWatermark
from spar.errors import FencedError

if TYPE_CHECKING:
    from apsw import Connection

Work = Callable[["Connection"], Any]

FLUSH_WITHIN = 1.0  # seconds for which what nobody waits for may stay in the kernel's memory


class Transactions:
    """The transactions of one connection, and of the ones that follow it.

    Args: name: the file; durability: as in `database`; epoch: what the file's must be, None not to ask; reopen: a new
        connection after an error of the disk, None where there is no disk. `connected` is called when there is one.

    Told from outside: `pages`, with each commit, how many the log holds; `must_number`, before each checkpoint.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        durability: str,
        epoch: int | None,
        reopen: Callable[[], Connection] | None,
    ) -> None:
        self.connection, self._name, self._epoch = connection, name, epoch
        self._reopen = reopen
        self.connected: Callable[[], None] = lambda: None
        self._has_power = durability == "power" and reopen is not None
        self._synchronous = SYNCHRONOUS[durability]
        self._is_connected = True
        self.must_mend = False
        self.flush_at: float | None = None  # monotonic; set while the log is ahead of the disk
        self.flushes = 0
        self.commits = 0, 0.0  # how many, and the seconds that all of them took; one value, read by other threads
        self._seals = Seals(connection)
        self._watermark = WalWatermark(name) if reopen is not None else None
        self._number = self.pages = 0
        self.must_number = True  # the next flush, in the file itself

    def begin(self, *, must_flush: bool = False) -> None:
        """Begin one that is still ours to write. Raises: FencedError; apsw.Error."""
        if self.must_mend:
            self._mend()
        if self._has_power and (synchronous := "FULL" if must_flush else "NORMAL") != self._synchronous:
            self.connection.execute(f"PRAGMA synchronous = {synchronous}")
            self._synchronous = synchronous
        self.connection.execute("BEGIN IMMEDIATE")
        if self._epoch is not None and (found := epoch_of(self.connection)) != self._epoch:
            raise FencedError(self._name, self._epoch, found)

    def run(self, group: Sequence[Work], *, is_guarded: bool, must_flush: bool) -> list[Any]:
        """Commit a group; what each returned, or its `Rejected` error when each is guarded from the others.

        Args: must_flush: what was committed up to here must be as safe as the durability says when this returns.
        Raises: what the work or the database raises; `undo` it then.
        """
        must_flush = must_flush and self._has_power
        self.begin(must_flush=must_flush)
        connection = self.connection
        before = connection.total_changes()
        outcomes = [self._alone(work) for work in group] if is_guarded else [work(connection) for work in group]
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
        """Leave the transaction that failed, if there is one. Raises: apsw.Error."""
        self._seals.forget()
        if self._is_connected and self.connection.in_transaction:  # a full disk may have rolled back by itself
            self.connection.execute("ROLLBACK")

    def failed(self, error: BaseException) -> None:
        """Note an error: after one of the disk itself nobody knows what of the last writes it holds."""
        import apsw

        if isinstance(error, (apsw.IOError, apsw.CorruptError, apsw.NotADBError)):
            self.must_mend = True

    def close(self) -> None:
        """Close the connection and the mark. Raises: apsw.Error."""
        self.connection.close()
        if self._watermark is not None:
            self._watermark.close()

    def _number_flush(self) -> None:
        """Write down which flush this is going to be; again for each try, so that no other number is ever promised."""
        assert self._watermark is not None
        self.must_number = True
        self._number = max(number_of(self.connection, FLUSHED), self._watermark.flush) + 1
        self.connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (FLUSHED, str(self._number)))

    def _alone(self, work: Work) -> Any:
        """Return the outcome of one unit, or its own error without a trace in the data; the disk's errors go on up."""
        self.connection.execute("SAVEPOINT unit")
        try:
            outcome: Any = work(self.connection)
        except Exception as error:
            if is_storage(error):
                raise
            self.connection.execute("ROLLBACK TO unit")
            self._seals.distrust()
            outcome = Rejected(error)
        self.connection.execute("RELEASE unit")
        return outcome

    def _mend(self) -> None:
        """Write again what a failing disk may have dropped, and go on with a connection that knows nothing of it.

        Raises: apsw.Error.
        """
        if self._reopen is not None:
            if self._is_connected:
                wal.mend(self.connection)
                self.connection.close()
                self._is_connected = False
            self.must_number = True  # closing emptied the log, perhaps
            self.connection = self._reopen()
            self._is_connected = True
            self._seals = Seals(self.connection)
            self._synchronous = ""
            self.connected()
        self.must_mend = False


class Rejected:
    """The error of one unit of work, as an outcome."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error
