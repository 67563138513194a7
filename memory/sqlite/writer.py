"""Writer of a file: the writer's thread with the transactions, the idle work and the disk reserve of SQLite."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from memory.engine.maintenance import REST
from memory.engine.writer import MAX_BYTES, MAX_ITEMS, WriterThread
from memory.sqlite.disk_reserve import DiskReserve
from memory.sqlite.maintenance import Maintenance
from memory.sqlite.transactions import Transactions
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.sqlite.connection import SqliteConnection


class Writer(WriterThread):
    """Owner of the writing connection of a file from `start` to its end.

    Args:
        connection: opened by the caller, closed here.
        durability: as in `database`.
        epoch: the epoch that the file must have in every transaction.
        tend: does one small step of maintenance inside a transaction, returns whether there is more to do.
        report, ended, max_items, max_bytes: as in `WriterThread`.
        reopen: returns a new connection after an error of the disk.
        ballast: the disk reserve, given up when the disk is full.
        copy, stop_copy: as in `Maintenance`.
    """

    def __init__(
        self,
        connection: SqliteConnection,
        name: str,
        *,
        durability: str = "process",
        epoch: int | None = None,
        tend: Callable[[Connection], bool],
        report: Callable[[Fault | None], None],
        ended: Callable[[], None],
        reopen: Callable[[], SqliteConnection] | None = None,
        ballast: DiskReserve | None = None,
        copy: Callable[[], object] = lambda: None,
        stop_copy: Callable[[], object] = lambda: None,
        max_items: int = MAX_ITEMS,
        max_bytes: int = MAX_BYTES,
        rest: float = REST,
    ) -> None:
        transactions = Transactions(connection, name, durability, epoch, reopen)
        hold = self._hold_reserve if ballast else None
        maintenance = Maintenance(transactions, tend, rest, hold, copy, stop_copy)
        super().__init__(name, transactions, maintenance, ballast or DiskReserve(name, 0), report=report, ended=ended,
                         max_items=max_items, max_bytes=max_bytes)  # fmt: skip
