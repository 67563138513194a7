"""Transactions of groups of work on a server: each checks the epoch, and a lost answer to COMMIT is cleared up.

The row of the epoch is locked against changes in each transaction (`FOR SHARE`): a process that has been replaced
cannot commit. If the connection is lost while a COMMIT waits for its answer, nobody knows whether it was done: the next
connection asks the server whether it still works on it (`pg_xact_status`), and looks for the newest fact of the group,
before anything is done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import psycopg

from memory.engine import hash_chain
from memory.engine.own_keys import EPOCH
from memory.engine.transactions import Asking, Statement, Work, guarded
from memory.postgres.connection import PostgresConnection, PostgresRows
from spar.errors import FencedError
from spar.failpoints import armed, crashpoint

_BEGIN: Final = (
    ("BEGIN", ()),
    (f"SELECT value, pg_current_xact_id()::text FROM state WHERE key = '{EPOCH}' FOR SHARE", ()),
)
_STATUS: Final = "SELECT pg_xact_status(CAST(CAST(? AS TEXT) AS xid8))"


class WentBackError(FencedError):
    """Error of a database that has lost what was committed: an old copy was put in its place."""

    def __init__(self, name: str, seq: int) -> None:
        super().__init__(name, 0, 0)
        self.args = (
            f"{name} went back in time: fact number {seq}, which was committed, is missing; nothing is written "
            "any more: restore the newest copy of the database, then start again",
        )


class NotYetError(psycopg.OperationalError):
    """Error of a server that has not let go of the connection before."""


class Unanswered(NamedTuple):
    """COMMIT without an answer: the transaction, its backend, the group, its results, its newest fact; of one that the
    server links the number behind which it is, and its columns."""

    xid: str
    backend: int
    group: Sequence[Work] | None
    outcomes: list[Any]
    newest: tuple[int, bytes] | None
    linked: tuple[int, tuple[Any, ...]] | None = None


def questions_of(group: Iterable[Work]) -> list[Statement]:
    """Return what work asks first, of several questions about the same the first one: the answer to another depends on
    what is written before. Nothing if there is work that may change any answers."""
    known, asked = set[Hashable](), list[Statement]()
    for work in group:
        questions = work.questions if isinstance(work, Asking) else None
        if questions is None:
            return []
        for about, statement in questions:
            if known.isdisjoint(about):
                asked.append(statement)
            known.update(about)
    return asked


class PostgresTransactions:
    """Transactions of one connection, and of its successors after it was lost.

    Args: name: the database as errors name it; epoch: the epoch that each transaction demands; reopen: returns a new
        connection that holds the lock of the database; is_strict: whether the server must have all that was committed.
    """

    def __init__(
        self,
        connection: PostgresConnection,
        name: str,
        epoch: int,
        reopen: Callable[[int], PostgresConnection],
        *,
        is_strict: bool,
    ) -> None:
        self.connection, self._name, self._epoch, self._reopen = connection, name, epoch, reopen
        self._is_strict = is_strict
        self._backend = connection.raw.info.backend_pid
        #: Every COMMIT is flushed by the server as the durability demands: none is ever ahead of the disk.
        self.flush_at: float | None = None
        self.flushes = 0
        self.commits = 0, 0.0
        self._xid = ""
        self._unanswered: Unanswered | None = None
        self._before: tuple[int, bytes] | None = None  # the newest fact at the begin of a transaction, if that was read
        self._committed: tuple[int, bytes] | None = None  # the newest fact of ours that is known to be committed

    def begin(self) -> None:
        """Begin a transaction. Raises: FencedError when another process has taken the database over; psycopg.Error."""
        if self.connection.is_lost:
            self._reconnect()
        self._cleared_up()
        self._prepare((), ())
        self.connection.settle()

    def run(self, group: Sequence[Work], *, is_guarded: bool, must_flush: bool) -> list[Any]:
        """Commit a group. Return the result of each unit of work.

        If an earlier attempt at the same group turns out to be committed, its results are returned.
        Args: is_guarded: a unit that fails is undone alone, and its result is `Rejected`; must_flush: not looked at,
            since the server flushes each commit as the durability demands.
        Raises: the errors of the work or the database; call `undo` then.
        """
        if self.connection.is_lost:
            self._reconnect()
        if (unanswered := self._cleared_up()) is not None and unanswered.group is group:
            return unanswered.outcomes
        outcomes = self._write(group, is_guarded=is_guarded)
        self._commit(group, outcomes)
        return outcomes

    def _write(self, group: Sequence[Work], *, is_guarded: bool) -> list[Any]:
        """Do the work of a group in a transaction, which begins with the first answer that is wanted. Return the
        results."""
        self._prepare(group, () if is_guarded else group)
        connection = self.connection
        return [guarded(connection, work) if is_guarded else work(connection) for work in group]

    def _prepare(self, group: Sequence[Work], asking: Sequence[Work]) -> None:
        """Prepare the transaction of a group. It raises FencedError when it begins, if another process has taken the
        database over. Args: asking: work whose questions are asked first, if all of it is such work."""
        self._xid = ""
        self.connection.prepare(_BEGIN, self._begun, questions_of(asking))

    def _begun(self, answer: PostgresRows) -> None:
        present, xid = answer.fetchone() or ("", "")
        if present != str(self._epoch):
            raise FencedError(self._name, self._epoch, int(present) if str(present).isdigit() else 0)
        self._xid = xid

    def commit(self) -> None:
        """Commit idle work. Raises: psycopg.Error."""
        self._commit(None, [])

    def undo(self) -> None:
        """Undo the transaction that failed, if there is one. Raises: psycopg.Error."""
        self.connection.newest_fact = None
        self.connection.drop()
        if not self.connection.is_lost and self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def failed(self, error: BaseException) -> None:
        """Close a connection that the server has given up."""
        is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and error.sqlstate is None
        if is_lost and not isinstance(error, NotYetError):
            self.connection.close()

    def close(self) -> None:
        """Close the connection; the server then releases the lock of the database."""
        self.connection.close()

    def _commit(self, group: Sequence[Work] | None, outcomes: list[Any]) -> None:
        connection, began = self.connection, time.monotonic()
        connection.start()
        if not self._xid:
            raise psycopg.OperationalError("a transaction that was not allowed to begin is not committed")
        if armed:
            connection.settle()
            crashpoint("postgres.before_commit")
        newest = self._newest()
        linked = None if newest or connection.linked is None else ((self._before or (0,))[0], connection.linked)
        self._unanswered = Unanswered(self._xid, self._backend, group, outcomes, newest, linked)
        connection.execute("COMMIT")
        connection.settle()
        if armed:
            crashpoint("postgres.committed")
        self._unanswered = None
        self._committed = self._newest() or self._committed
        number, seconds = self.commits
        self.commits = number + 1, seconds + time.monotonic() - began
        self.flushes += 1

    def _newest(self) -> tuple[int, bytes] | None:
        """Return number and link of the newest fact, if this transaction has added it."""
        newest = self.connection.newest_fact
        return None if newest == self._before else newest

    def _cleared_up(self) -> Unanswered | None:
        """Return the last COMMIT without an answer if it was done; None if there is none or it was not done.

        Raises: NotYetError while the server still works on it.
        """
        unanswered = self._unanswered
        if unanswered is None:
            return None
        try:
            status = self.connection.execute(_STATUS, (unanswered.xid,)).get
        except psycopg.errors.InvalidParameterValue:  # "in the future": a server that restarted never had it on disk
            status = "aborted"
        if status == "in progress":
            self.connection.execute("SELECT pg_terminate_backend(?::int)", (unanswered.backend,))
            raise NotYetError("the server still works on the last transaction")
        self._unanswered = None
        is_done = status == "committed"
        if unanswered.newest not in (None, self._committed):
            # Its facts are sure: a server that crashed may have given the number to another transaction since.
            is_done = self._has(unanswered.newest)
        elif unanswered.linked is not None:
            is_done = self._has_linked(*unanswered.linked, otherwise=is_done)
        if not is_done:
            return None
        self._committed = unanswered.newest or self._committed
        return unanswered

    def _reconnect(self) -> None:
        """Continue with a new connection. Raises: FencedError; psycopg.Error."""
        self.connection.close()
        connection = self._reopen(self._backend)
        self.connection = connection
        self._backend = connection.raw.info.backend_pid
        if self._is_strict and self._committed is not None and not self._has(self._committed):
            raise WentBackError(self._name, self._committed[0])

    def _has(self, newest: tuple[int, bytes]) -> bool:
        """Return whether a fact is stored, or was deleted for its age."""
        seq, link = newest
        stored = self.connection.execute("SELECT link FROM fact WHERE seq = ?", (seq,)).get
        return bytes(stored) == link if stored is not None else hash_chain.anchor(self.connection)[0] >= seq

    def _has_linked(self, behind: int, fact: tuple[Any, ...], otherwise: bool) -> bool:
        """Return whether a fact with these columns is stored behind a number.

        Args: otherwise: the answer if facts behind that number were deleted for their age.
        """
        if hash_chain.anchor(self.connection)[0] > behind:
            return otherwise
        columns = "at = ? AND work = ? AND call = ? AND kind = ? AND body = ?"
        given = (behind, *fact[:5])
        query = f"SELECT 1 FROM fact WHERE seq > ? AND {columns} LIMIT 1"
        return self.connection.execute(query, given).get is not None
