"""Batch of rows: one unit of work for the writer, so that the rows become durable together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from memory import events
from memory.sqlite.transactions import Rejected, guarded
from spar.checks import shorten
from spar.failpoints import crashpoint
from spar.types import CycleRecord, Fault, Phase, replace

if TYPE_CHECKING:
    from apsw import Connection

#: Function that writes a list of rows of one kind.
Write = Callable[["Connection", list[Any]], object]


class Origin(NamedTuple):
    """Cycle that a row belongs to, and the phase whose product the row holds; "" if it is of no phase."""

    session: str = ""
    cycle_id: str = ""
    phase: Phase | Literal[""] = ""


NO_ORIGIN = Origin()


class Batch:
    """Unit of work of the writer, which writes it in one transaction and repeats it if the transaction was undone.

    The rows of many cycles are in it. If the database refuses one of them, the rows are written one by one: only the
    refused row is left out, and the fault names the cycle and the phase that it came from.

    Args: report: called for a refused row, in the writer's thread.
    """

    __slots__ = ("_is_told", "_report", "events", "size", "writes")

    def __init__(self, report: Callable[[Fault], object]) -> None:
        self.events: list[events.EventRow] = []
        self.writes: list[tuple[Write, list[Any], list[Origin]]] = []
        self.size = 0
        self._report, self._is_told = report, False

    def __call__(self, connection: Connection) -> None:
        if type(guarded(connection, self._write)) is Rejected:
            self._write_one_by_one(connection)
        crashpoint("journal.txn_open")

    def add(self, write: Write, row: Any, origin: Origin) -> None:
        """Add a row. The order of rows is kept; successive rows with the same `write` are written together."""
        if self.writes and self.writes[-1][0] is write:
            _, rows, origins = self.writes[-1]
            rows.append(row)
            origins.append(origin)
        else:
            self.writes.append((write, [row], [origin]))

    def _write(self, connection: Connection) -> None:
        if self.events:
            events.append(connection, self.events)
        for write, rows, _ in self.writes:
            write(connection, rows)

    def _write_one_by_one(self, connection: Connection) -> None:
        rows: list[tuple[Write, Any, Origin]] = [(events.append, fact, Origin("", fact[1])) for fact in self.events]
        for write, some, origins in self.writes:
            rows += zip([write] * len(some), some, origins, strict=True)
        refused: list[tuple[Origin, Fault]] = []
        for write, row, origin in rows:
            if type(outcome := guarded(connection, partial(_write_one, write, row))) is Rejected:
                refused.append((origin, _fault(origin, row, outcome.error)))
        for origin, fault in refused:
            for write, row, _ in rows:
                if type(row) is CycleRecord and row.cycle_id == origin.cycle_id:
                    failed = replace(row, outcome="failed", faults=(*row.faults, fault))
                    guarded(connection, partial(_write_one, write, failed))
            if not self._is_told:  # the transaction may be repeated
                self._report(fault)
        self._is_told = True


def _write_one(write: Write, row: Any, connection: Connection) -> None:
    write(connection, [row])


def _fault(origin: Origin, row: Any, error: Exception) -> Fault:
    message = f"the database refused a row of this cycle: {type(error).__name__}: {error}; the row: {shorten(row, 200)}"
    detail = {"type": type(error).__name__, "cycle_id": origin.cycle_id, "session": origin.session}
    return Fault("refused", message, "memory", origin.phase, retryable=False, detail=detail)


def many(sql: str) -> Write:
    """Return a function that executes the statement once for each row."""

    def write(connection: Connection, rows: list[Any]) -> None:
        connection.executemany(sql, rows)

    return write
