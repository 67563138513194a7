"""What the agent's database says, read from outside."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import apsw
import psycopg

from tests.faults.world import World

#: What a database raises that cannot be read.
UNREADABLE = (apsw.Error, psycopg.Error)
#: What must be empty when everything has come to an end.
_OPEN = {
    "item": "SELECT count(*) FROM item WHERE state = 'waiting'",
    "open_cycle": "SELECT count(*) FROM open_cycle",
    "record": "SELECT count(*) FROM record WHERE kind = 'parked'",
}
_IN_DOUBT = "SELECT count(*) FROM doubt WHERE answer IS NULL"


class Connection(Protocol):
    """Connection to a file, or to a server."""

    def execute(self, sql: Any, /) -> Iterable[tuple[Any, ...]]: ...
    def close(self) -> object: ...


def connect(world: World) -> Connection:
    if world.is_on_server:
        return psycopg.connect(world.url, autocommit=True, application_name="oracle")
    return connect_to(world.database)


def connect_to(database: Path) -> apsw.Connection:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(2_000)
    return connection


def first(connection: Connection, query: str) -> Any:
    """The first value of the first row."""
    return next(iter(connection.execute(query)))[0]


def tables(world: World, connection: Connection) -> set[str]:
    query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()" if world.is_on_server else \
            "SELECT name FROM sqlite_master WHERE type = 'table'"  # fmt: skip
    return {str(name) for (name,) in connection.execute(query)}


def left_open(world: World, *, answered: bool = False) -> dict[str, int]:
    """How much is still open, by table, and which promised files were not seen; empty when all has come to an end.

    `answered`: so has a call in doubt only once somebody has said what became of it.
    """
    files = [line["file"] for line in world.acked().values() if "file" in line]
    connection = connect(world)
    try:
        # Of one moment: what leaves one table as open comes into another.
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ" if world.is_on_server else "BEGIN")
        there = tables(world, connection)
        counts = {name: int(first(connection, query)) for name, query in _OPEN.items() if name in there}
        if answered and "doubt" in there:
            counts["doubt"] = int(first(connection, _IN_DOUBT))
        query = "SELECT key FROM own_row WHERE owner LIKE 'sensor:%'"
        seen = {str(key) for (key,) in connection.execute(query)} if "own_row" in there else set()
        counts |= {name: 1 for name in files if name not in seen}
        return {name: count for name, count in counts.items() if count}
    finally:
        connection.close()
