"""Writes of a node: each transaction checks its lease, each unit of work the partitions whose rows are in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from memory.engine.maintenance import Tending
from memory.engine.transactions import Asking, Question, Work
from memory.engine.writer import Answer, WriterThread
from memory.journal.handover import Batch, Origin, Write
from memory.postgres.cluster import rows
from memory.postgres.cluster.ownership import Fenced, LeaseOverError, Ownership, Share
from memory.postgres.transactions import PostgresTransactions, questions_of

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.postgres.connection import PostgresConnection, PostgresRows
    from spar.ports.nodes import NodeRequest


#: Share of the session whose call begins in this context.
CALLING: ContextVar[Share] = ContextVar("calling", default=None)


class NodeTransactions(PostgresTransactions):
    """Transactions of a node: none is committed after the end of its lease."""

    def __init__(
        self, connection: PostgresConnection, name: str, reopen: Callable[[int], PostgresConnection],
        ownership: Ownership, *, is_strict: bool,
    ) -> None:  # fmt: skip
        super().__init__(connection, name, 0, reopen, is_strict=is_strict)
        self._ownership, self._is_late = ownership, False

    def _prepare(self, group: Sequence[Work], asking: Sequence[Work]) -> None:
        """Prepare the transaction of a group. LeaseOverError is raised at once or when it begins, if the lease is over;
        `held` are then those of the wanted partitions that the node owns, and nobody takes them before the commit."""
        token = self._valid_token()
        self._xid, begun = "", partial(self._begun_under, token)
        self.connection.prepare(rows.beginning(token, _wanted(group)), begun, questions_of(asking))

    def _begun_under(self, token: str, answer: PostgresRows) -> None:
        begun = rows.begun(answer)
        if begun is None:
            raise self._over(token)
        self._xid, self._ownership.held = begun.xid, begun.held
        self.connection.newest_fact = self._before = begun.newest  # another node may have added facts

    def _valid_token(self) -> str:
        token = self._ownership.token if self._ownership.is_valid else ""
        if not token:
            raise self._over(token)
        return token

    def _over(self, token: str) -> LeaseOverError:
        self._ownership.lose(token)
        return self._ownership.error()

    def run(self, group: Sequence[Work], *, is_guarded: bool, must_flush: bool) -> list[Any]:
        """Commit a group; without a lease all of it is `Fenced`. Raises: as the method of the base."""
        self._is_late = not is_guarded
        commit = partial(super().run, group, is_guarded=is_guarded, must_flush=must_flush)
        try:
            try:
                return commit()
            except psycopg.errors.DivisionByZero:  # something is not as it was seen without the lock
                if not self._is_late:
                    raise
                self.undo()
                self._is_late = False
                return commit()
        except LeaseOverError as error:
            self.undo()
            return [Fenced(error) for _ in group]

    def _write(self, group: Sequence[Work], *, is_guarded: bool) -> list[Any]:
        """Do the work of a group so that other nodes wait for the server alone: what it asks is answered before, and
        the transaction begins and takes the lock of all commits when all is encoded.

        `psycopg.errors.DivisionByZero` is raised, maybe with the commit, if the lease is over, a partition was lost, an
        answer is another one now, or there is no fact yet.
        """
        if not self._is_late or not group:
            return super()._write(group, is_guarded=is_guarded)
        token, connection, questions = self._valid_token(), self.connection, questions_of(group)
        self._xid = ""
        texts = {question: rows.as_text(question) for question in questions}
        connection.prepare_late(rows.looking(), self._looked, (*texts.values(), *questions))
        answers = {question: connection.execute(*text).get for question, text in texts.items()}
        self._ownership.held = _wanted(group)
        for sql, given in rows.demands(token, self._ownership.held, answers):
            connection.later(sql, given)
        return [work(connection) for work in group]

    def _looked(self, answer: PostgresRows) -> None:
        self._xid, self._before = rows.looked(answer)
        self.connection.newest_fact = self._before


def _wanted(group: Iterable[Work]) -> set[tuple[int, int]]:
    """Return the partitions, with their epochs, of which work must know whether the node owns them."""
    return {share for unit in group if isinstance(unit, OfLease) for share in unit.wanted}


class NodeTending(Tending):
    """Idle work on the database, which the owner of the first partition does for all nodes."""

    def __init__(
        self, transactions: NodeTransactions, tend: Callable[[Connection], bool], ownership: Ownership
    ) -> None:
        super().__init__(transactions, tend)
        self._ownership = ownership

    def _tend_once(self) -> None:
        if not (self._ownership.is_valid and 0 in self._ownership.partitions):
            self.postpone()
            return
        try:
            super()._tend_once()
        except LeaseOverError:  # another node does it
            self._group.undo()
            self.postpone()


class Around(Asking):
    """Unit of work around another one, which asks what that asks."""

    __slots__ = ("_work",)
    _work: Work

    @property
    def questions(self) -> Iterable[Question] | None:
        return self._work.questions if isinstance(self._work, Asking) else None


class Posting(Around):
    """Unit of work about a session of another node, or of this one as it was queued: its owner gets a request in the
    same transaction. Nothing is posted if the transaction finds this node to be the owner still."""

    __slots__ = ("_ownership", "_request", "wanted")

    def __init__(self, work: Work, request: NodeRequest, share: Share, ownership: Ownership) -> None:
        self._work, self._request, self._ownership = work, request, ownership
        self.wanted = frozenset(() if share is None else (share,))

    def __call__(self, connection: Any) -> Any:
        result = self._work(connection)
        connection.open()
        if not self.wanted & self._ownership.held:
            rows.post(connection, self._request)
        return result


class OfLease(Around):
    """Unit of work that belongs to one lease: under a later one nothing of it is written."""

    __slots__ = ("_ownership", "_token")

    def __init__(self, work: Work, ownership: Ownership) -> None:
        self._work, self._ownership, self._token = work, ownership, ownership.token

    def __call__(self, connection: Connection) -> Any:
        if self._token != self._ownership.token:
            return Fenced(self._ownership.error())
        return self._work(connection)

    @property
    def wanted(self) -> Set[tuple[int, int]]:
        """Return the partitions, with their epochs, of which it must know whether the node owns them."""
        return self._work.wanted if isinstance(self._work, SharedBatch | Posting) else frozenset()


class NodeWriter(WriterThread):
    """Writer of a node. Work that was queued under a lease that is over is not written."""

    def __init__(self, name: str, transactions: NodeTransactions, *args: Any, ownership: Ownership, **options: Any):
        super().__init__(name, transactions, *args, **options)
        self._ownership = ownership

    def offer(self, work: Work, size: int = 0) -> bool:
        """Queue work, or return False while the queue is full. Raises: SparError when closing."""
        return super().offer(OfLease(work, self._ownership), size)

    def answer(self, answer: Answer | None, work: Work, size: int = 0) -> None:
        """Do the work as `commit` does and call `answer` with its outcome. Raises: SparError when closing."""
        super().answer(answer, OfLease(work, self._ownership), size)


class SharedBatch(Batch):
    """Batch that knows the partition of each row. Rows of partitions that this node has lost are left out.

    `event_shares` and `shares` are those of the facts and of the other rows, in their order; `token` is their lease.
    """

    __slots__ = ("_lost", "_ownership", "event_shares", "share", "shares", "token")

    def __init__(
        self, report: Callable[[Any], object], ownership: Ownership, lost: Callable[[set[tuple[int, int]]], object]
    ) -> None:
        super().__init__(report)
        self._ownership, self.token, self._lost = ownership, ownership.token, lost
        self.event_shares: list[Share] = []
        self.shares: list[Share] = []
        self.share: Share = None  # that of the rows which are added now

    def add(self, write: Write, row: Any, origin: Origin) -> None:
        """Add a row of the present share."""
        super().add(write, row, origin)
        self.shares.append(self.share)

    def __call__(self, connection: Any) -> Any:
        if self.token != self._ownership.token:
            return Fenced(self._ownership.error())
        connection.open()
        lost = self.wanted - self._ownership.held
        if lost:  # or not asked for, as this batch is a part of other work
            lost -= rows.held(connection, self.token, lost)
        if lost:
            self._lost(lost)
            rest = self._without(lost)
            rest.is_repeated, self.is_repeated = self.is_repeated, True
            return rest(connection)
        return super().__call__(connection)

    @property
    def wanted(self) -> set[tuple[int, int]]:
        """Return the partitions of its rows."""
        return {share for share in (*self.event_shares, *self.shares) if share is not None}

    def _without(self, lost: set[tuple[int, int]]) -> Batch:
        """Return a batch of the rows of other partitions."""
        rest, shares = Batch(self._report), iter(self.shares)
        pairs = zip(self.events, self.event_shares, strict=True)
        rest.events = [event for event, share in pairs if share not in lost]
        for write, some, origins in self.writes:
            for row, origin in zip(some, origins, strict=True):
                if next(shares) not in lost:
                    rest.add(write, row, origin)
        return rest
