"""Transactions of groups of work, as the writer's thread wants them of a database, and units of work in them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from memory.engine.connection import Connection

FLUSH_WITHIN = 1.0  # seconds after which commits are flushed even if nobody waits for them


class GroupTransactions(Protocol):
    """Transactions of one connection, and of its successors after errors of the disk or the server.

    `flush_at` (monotonic seconds) is set while commits are ahead of the disk; `flushes` counts the flushes, `commits`
    are number and total seconds of the commits.
    """

    connection: Any
    flush_at: float | None
    flushes: int
    commits: tuple[int, float]

    def begin(self) -> None:
        """Begin a transaction for idle work. Raises: FencedError; the errors of the database."""

    def run(self, group: Sequence[Work], *, is_guarded: bool, must_flush: bool) -> list[Any]:
        """Commit a group. Return the result of each unit of work.

        Args: is_guarded: a unit that fails is undone alone, and its result is `Rejected`; must_flush: all commits up to
            this one must be as safe as the durability says when this returns.
        Raises: FencedError; the errors of the work or the database, call `undo` then.
        """

    def commit(self) -> None:
        """Commit idle work. Raises: the errors of the database."""

    def undo(self) -> None:
        """Undo the transaction that failed, if there is one. Raises: the errors of the database."""

    def failed(self, error: BaseException) -> None:
        """Note an error of the disk or the server."""

    def close(self) -> None:
        """Close the connection. Raises: the errors of the database."""


Work = Callable[[Connection], Any]
#: Statement that asks for a row, and what it is given.
Statement = tuple[str, tuple[Any, ...]]


class Question(NamedTuple):
    """Statement whose answer decides what a unit of work writes, and what it is about: work about none of these does
    not change the answer."""

    about: tuple[Hashable, ...]
    statement: Statement


class Asking:
    """Unit of work that says what it asks first: a server answers that in one turn, for a whole group.

    `questions` is None if what it writes may change the answers to those of others.
    """

    __slots__ = ()

    @property
    def questions(self) -> Iterable[Question] | None:
        return None


class Asked(Struct, Asking):
    """Work with its questions."""

    work: Work
    questions: tuple[Question, ...]

    def __call__(self, connection: Connection) -> Any:
        return self.work(connection)


class Rejected:
    """Result of a unit of work that failed: its error."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


def guarded(connection: Connection, work: Work) -> Any:
    """Return the result of one unit of work, or `Rejected` after undoing it alone. Raises: errors of the disk."""
    connection.execute("SAVEPOINT unit")
    try:
        outcome: Any = work(connection)
        connection.execute("RELEASE unit")  # a server may tell an error of the work only here
    except Exception as error:
        if connection.is_storage(error):
            raise
        connection.execute("ROLLBACK TO unit")
        connection.undone_in_part()
        connection.execute("RELEASE unit")
        return Rejected(error)
    return outcome
