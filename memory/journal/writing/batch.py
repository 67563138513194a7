"""Batch of rows: one unit of work for the writer, so that the rows become durable together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memory import events
from spar.failpoints import crashpoint

if TYPE_CHECKING:
    from apsw import Connection

#: Function that writes a list of rows of one kind.
Write = Callable[["Connection", list[Any]], object]


class Batch:
    """Unit of work of the writer, which writes it in one transaction and repeats it if the transaction was undone."""

    __slots__ = ("events", "size", "writes")

    def __init__(self) -> None:
        self.events: list[events.EventRow] = []
        self.writes: list[tuple[Write, list[Any]]] = []
        self.size = 0

    def __call__(self, connection: Connection) -> None:
        if self.events:
            events.append(connection, self.events)
        for write, rows in self.writes:
            write(connection, rows)
        crashpoint("journal.txn_open")

    def add(self, write: Write, row: Any) -> None:
        """Add a row. The order of rows is kept; successive rows with the same `write` are written together."""
        if self.writes and self.writes[-1][0] is write:
            self.writes[-1][1].append(row)
        else:
            self.writes.append((write, [row]))


def many(sql: str) -> Write:
    """Return a function that executes the statement once for each row."""

    def write(connection: Connection, rows: list[Any]) -> None:
        connection.executemany(sql, rows)

    return write
