"""Opening of a database: takes the lock, makes the tables, raises the epoch, starts the writer and the readers.

The lock is an advisory lock of the writer's connection, so it ends with the process. A process that lost its connection
takes it again, unless another has taken the database over meanwhile: then the epoch has risen. A process that stands by
asks for the lock until it gets it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import psycopg

from memory.engine.connection import closed_on_error
from memory.engine.maintenance import Tending
from memory.engine.own_keys import EPOCH, FENCE, Prepared, next_epoch, prepared
from memory.engine.session import DatabaseSession, Readers, opened
from memory.engine.writer import WriterThread
from memory.postgres import schema
from memory.postgres.connection import PostgresConnection
from memory.postgres.server import OnlyReadsError, Server, connect, demand_writable, explained
from memory.postgres.transactions import NotYetError, PostgresTransactions
from spar.clock import Clock
from spar.errors import ConfigError, TransientError
from spar.threads import Threads
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.connection import Connection

READERS: Final = 4
#: Seconds between two questions of a process that stands by whether the server can be reached.
_ASK_EVERY: Final = 0.5
#: Seconds within which the server releases the lock of a process that has ended.
_RELEASED_WITHIN: Final = 1
_AT_ONCE: Final = 0.01  # seconds, of a lock that is free or not
_KEY: Final = "hashtext('spar memory'), hashtext(current_schema())"
_LOCK: Final = f"SELECT pg_advisory_lock({_KEY})"
#: Those that begin at one moment make the tables one after the other.
_ONE_BY_ONE: Final = "SELECT pg_advisory_xact_lock(hashtext('spar nodes'), hashtext(current_schema()))"
#: Lock of a process that works beside others of its kind.
SHARED_LOCK: Final = f"SELECT pg_advisory_lock_shared({_KEY})"
_HOLDER: Final = """
SELECT pid, application_name, coalesce(host(client_addr), 'the same machine') FROM pg_locks JOIN pg_stat_activity
USING (pid) WHERE locktype = 'advisory' AND granted AND objsubid = 2
AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (classid, objid) = (SELECT (hashtext('spar memory')::bigint & 4294967295)::oid,
                               (hashtext(current_schema())::bigint & 4294967295)::oid)
"""


class InUseError(ConfigError):
    """Error of a database that another process uses."""


class NoReserve:
    """Reserve of disk space on a server, of which there is none."""

    def __init__(self) -> None:
        self.held, self.is_given_up = 0, False

    def hold(self) -> bool:
        return True

    def give_up(self) -> int:
        return 0

    def is_full(self, error: BaseException) -> bool:
        """Return whether an error means that there is no room on the disk of the server."""
        return isinstance(error, psycopg.errors.DiskFull)


async def open_database(
    server: Server,
    durability: str,
    clock: Clock,
    *,
    read_only: bool,
    standby: bool,
    tend: Callable[[Connection], bool],
    report: Callable[[Fault | None], None],
) -> DatabaseSession:
    """Open a database. Args: as in `memory.care.opening.open_file`. Raises: ConfigError, TransientError."""
    threads, is_ended = Threads("memory", clock, limit=READERS), threading.Event()
    loop = asyncio.get_running_loop()

    def tell(fault: Fault) -> None:
        loop.call_soon_threadsafe(report, fault)

    claiming = partial(stand_by, tell=tell, is_ended=is_ended) if standby else claim
    claimed = await opened(threads.run(look if read_only else claiming, server, durability), let_go, is_ended.set)
    writer: WriterThread | None = None
    if claimed is not None:
        transactions = PostgresTransactions(
            claimed.connection, server.name, claimed.epoch,
            partial(reopen, server, durability, lock=_LOCK, taken=partial(_taken, claimed.epoch)),
            is_strict=durability == "power",
        )  # fmt: skip
        writer = WriterThread(
            server.name, transactions, Tending(transactions, tend), NoReserve(), report=report, ended=nothing
        )
        writer.start()
    readers = Readers(server.name, partial(connect, server), threads, psycopg.Error)
    return DatabaseSession(server.name, clock, writer, readers, claimed)


def look(server: Server, durability: str) -> None:
    """Check that a database can be read. Raises: ConfigError, TransientError."""
    with explained(server):
        connection = connect(server)
        try:
            schema.check(connection, server.name, read_only=True)
        finally:
            connection.close()


def stand_by(
    server: Server, durability: str, tell: Callable[[Fault], object], is_ended: threading.Event
) -> Prepared | None:
    """Claim a database as soon as no other process uses it and it can be reached; None once `is_ended`.

    Args: tell: gets the reasons for which it waits.
    Raises: ConfigError for a database that cannot be used.
    """
    reason = ""
    while not is_ended.is_set():
        try:
            return claim(server, durability)
        except (InUseError, OnlyReadsError, TransientError) as error:
            if reason != (reason := str(error).partition(";")[0]):
                tell(Fault("standby", reason, "memory"))
            if not isinstance(error, InUseError):  # else it has waited for the lock
                is_ended.wait(_ASK_EVERY)
    return None


def claim(
    server: Server, durability: str, *, lock: str = _LOCK, adapt: Callable[[PostgresConnection], None] = schema.migrate
) -> Prepared:
    """Take the lock of a database, make its tables if there are none, and raise its epoch by one.

    Args: lock: the statement that takes it; adapt: brings the tables to the format of this release, in the same
        transaction.
    Raises: ConfigError, TransientError; the lock is then free and the database unchanged.
    """
    with explained(server), closed_on_error(connect(server, is_writer=True, durability=durability)) as connection:
        demand_writable(connection, server.name)
        demand_unused(connection, server.name, lock)
        connection.execute(f"BEGIN; {_ONE_BY_ONE}")
        if not schema.check(connection, server.name):
            schema.create(connection)
        adapt(connection)
        keys = "SELECT key, value FROM state WHERE key IN (?, ?) FOR UPDATE"
        stored = dict(connection.execute(keys, (EPOCH, FENCE)))
        epoch, fence = next_epoch(connection, int(stored.get(EPOCH, 0)), int(stored.get(FENCE, 0)))
        connection.execute("COMMIT")
        return prepared(connection, server.name, epoch, fence)


def reopen(
    server: Server, durability: str, lost: int, *, lock: str, taken: Callable[[PostgresConnection, int], None]
) -> PostgresConnection:
    """Return a new connection of the writer, with the lock. Args: lost: the backend of the connection before; taken:
    called with both while another process has the lock.

    Raises: psycopg.Error; errors of `taken`.
    """
    try:
        connection = connect(server, is_writer=True, durability=durability)
    except ConfigError as error:
        raise psycopg.OperationalError(str(error)) from None
    with closed_on_error(connection):
        if connection.execute("SELECT pg_is_in_recovery()").get:
            raise psycopg.OperationalError("the server is a standby that only reads now")
        if not has_locked(connection, lock, _AT_ONCE):
            taken(connection, lost)
    return connection


def _taken(epoch: int, connection: PostgresConnection, lost: int) -> None:
    """Have the server release the lock of the connection before. If another process has taken the database over, the
    next transaction finds that out by the epoch. Raises: psycopg.Error; NotYetError while the lock is not released."""
    connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({_HOLDER}) AS holder WHERE pid = ?", (lost,))
    if connection.execute("SELECT value FROM state WHERE key = ?", (EPOCH,)).get == str(epoch):
        raise NotYetError("the lock of the lost connection is not free yet")


def demand_unused(connection: PostgresConnection, name: str, lock: str = _LOCK) -> None:
    """Take the lock of a database for a connection. Raises: InUseError naming the process that has it.

    It waits a little: the server keeps the lock of a process that has just ended until it notices that.
    """
    if has_locked(connection, lock, _RELEASED_WITHIN):
        return
    holder = connection.execute(_HOLDER).fetchone()
    who = f"{holder[1]!r} on {holder[2]} (backend {holder[0]})" if holder else "another process"
    raise InUseError(
        f"{name} is in use by {who}; stop it first, stand by (memory.standby), open the memory read-only, or "
        "give this agent a database of its own",
        path=("url",),
    )


def has_locked(connection: PostgresConnection, lock: str, within: float) -> bool:
    """Take a lock and return True; False if another process has it for so many seconds."""
    try:
        connection.execute(f"SET lock_timeout = '{within:g}s'; {lock}")
    except psycopg.errors.LockNotAvailable:
        return False
    finally:
        if not connection.is_lost:
            connection.execute("SET lock_timeout = 0")
    return True


def let_go(claimed: Prepared | None) -> None:
    """Close a database that was claimed for nobody."""
    if claimed is not None:
        claimed.connection.close()


def nothing() -> None:
    return None
