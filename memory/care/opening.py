"""Opening of the file: takes the lock, repairs damage, and starts the writer and the readers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from memory.care import losses, repair
from memory.care.backup import DailyBackup
from memory.care.lock import Lock
from memory.engine.own_keys import Prepared
from memory.engine.session import DatabaseSession, Readers, opened
from memory.sqlite import database
from memory.sqlite.database import IN_MEMORY
from memory.sqlite.disk_reserve import SIZE, DiskReserve
from memory.sqlite.writer import Writer
from spar.clock import Clock
from spar.threads import Threads
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.connection import Connection

_READERS = 4


async def open_file(
    path: str,
    durability: str,
    clock: Clock,
    *,
    read_only: bool,
    tend: Callable[[Connection], bool],
    report: Callable[[Fault | None], None],
    ballast: int = SIZE,
    on_damage: repair.OnDamage = "restore",
    copies: bool = True,
) -> DatabaseSession:
    """Open a file. Damage that does not prevent its use is reported.

    Args: tend: does one small step of maintenance, returns whether there is more to do; report: called with a fault
        when writing begins to fail, and with None when it works again; ballast: bytes of the disk reserve; copies:
        whether a copy is made once a day.
    Raises: ConfigError, TransientError; nothing then stays open or locked.
    """
    threads, lock = Threads("memory", clock, limit=_READERS), Lock(path)
    reserve = DiskReserve(path, ballast)

    def prepare() -> Prepared | None:
        if read_only:
            database.inspect(path, read_only=True)
            return None
        prepared = repair.prepare(path, durability, lock, on_damage=on_damage, ballast=reserve)
        if path != IN_MEMORY and prepared.faults:
            with suppress(OSError):  # the writer reports it in any case
                losses.note(path, [fault.message for fault in prepared.faults])
        return prepared

    prepared = await opened(threads.run(prepare), partial(_let_go, lock))
    writer: Writer | None = None
    if prepared is not None:
        is_file, daily = path != IN_MEMORY, DailyBackup(path)
        writer = Writer(
            prepared.connection,
            path,
            durability=durability,
            epoch=prepared.epoch,
            tend=tend,
            report=report,
            ended=lock.release,
            reopen=(lambda: database.open_writer(path, durability)) if is_file else None,
            ballast=reserve if is_file else None,
            copy=daily.begin_if_due,
            stop_copy=daily.stop,
        )
        daily.report = writer.report
        if not (is_file and copies):
            daily.stop()  # none begins
        writer.start()
    readers = None
    if path != IN_MEMORY:
        import apsw

        readers = Readers(path, partial(database.open_reader, path), threads, apsw.Error)
    return DatabaseSession(path, clock, writer, readers, prepared)


def _let_go(lock: Lock, prepared: Prepared | None) -> None:
    if prepared is not None:
        prepared.connection.close()
    lock.release()
