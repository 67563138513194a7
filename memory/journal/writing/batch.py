"""The rows of one moment: one unit of work for the writer, so that they become durable together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memory import events
from spar.failpoints import crashpoint

if TYPE_CHECKING:
    from apsw import Connection

#: Makes all writes of its kind that follow one another.
Write = Callable[["Connection", list[Any]], object]


class Batch:
    """A unit of work that becomes durable together; the writer may have to repeat it."""

    __slots__ = ("events", "size", "writes")

    def __init__(self) -> None:
        self.events: list[events.EventRow] = []
        self.writes: list[tuple[Write, list[Any]]] = []
        self.size = 0

    def __call__(self, connection: Connection) -> None:
        if self.events:
            events.append(connection, self.events)
        for write, given in self.writes:
            write(connection, given)
        crashpoint("journal.txn_open")

    def add(self, write: Write, given: Any) -> None:
        """Keep the order of writes; those of one kind that follow one another are made at once."""
        if self.writes and self.writes[-1][0] is write:
            self.writes[-1][1].append(given)
        else:
            self.writes.append((write, [given]))


def many(sql: str) -> Write:
    """Return the write that makes a statement once for each of what is given."""

    def write(connection: Connection, given: list[Any]) -> None:
        connection.executemany(sql, given)

    return write
