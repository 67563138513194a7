"""Opening of a database as one of its nodes: makes the tables, begins the lease, starts the writer and the readers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import psycopg

from memory.engine.session import DatabaseSession, Readers, opened
from memory.postgres.cluster import rows
from memory.postgres.cluster.nodes import ClusterNodes
from memory.postgres.cluster.writing import NodeTending, NodeTransactions, NodeWriter
from memory.postgres.connection import PostgresConnection
from memory.postgres.opening import (
    READERS,
    SHARED_LOCK,
    NoReserve,
    claim,
    let_go,
    nothing,
    reopen,
)
from memory.postgres.server import Server, connect
from memory.postgres.transactions import NotYetError
from spar.clock import Clock
from spar.threads import Threads
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.connection import Connection


class NodeSession(DatabaseSession):
    """Open database of a node, whose lease ends with it."""

    def __init__(self, *args: Any, nodes: ClusterNodes) -> None:
        super().__init__(*args)
        self._nodes = nodes

    async def close(self, left: int = 0) -> None:
        """Close all, and end the lease. Args, raises: as the method of the base."""
        try:
            await super().close(left)
        finally:
            await self._nodes.close()


async def open_node(
    server: Server,
    durability: str,
    clock: Clock,
    *,
    tend: Callable[[Connection], bool],
    report: Callable[[Fault | None], None],
) -> tuple[DatabaseSession, ClusterNodes]:
    """Open a database beside other nodes. Args: as in `memory.postgres.opening.open_database`.

    Returns: the open database, and the nodes, whose lease has begun.
    Raises: ConfigError, TransientError.
    """
    threads = Threads("memory", clock, limit=READERS)
    claiming = partial(claim, server, durability, lock=SHARED_LOCK, adapt=partial(rows.create, name=server.name))
    claimed = await opened(threads.run(claiming), let_go)
    nodes = ClusterNodes(server.name, partial(connect, server), report)
    transactions = NodeTransactions(
        claimed.connection, server.name, partial(reopen, server, durability, lock=SHARED_LOCK, taken=_taken),
        nodes.ownership, is_strict=durability == "power",
    )  # fmt: skip
    tending = NodeTending(transactions, tend, nodes.ownership)
    writer = NodeWriter(
        server.name, transactions, tending, NoReserve(), report=report, ended=nothing, ownership=nodes.ownership
    )
    writer.start()
    readers = Readers(server.name, partial(connect, server), threads, psycopg.Error)
    session = NodeSession(server.name, clock, writer, readers, claimed, nodes=nodes)
    try:
        await nodes.open()
    except BaseException:  # else the node of an opening that was left would have its partitions for ever
        await session.close()
        raise
    return session, nodes


def _taken(connection: PostgresConnection, lost: int) -> NoReturn:
    raise NotYetError("a process that works alone has the database now")
