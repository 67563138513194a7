"""What the agent's database says, read from outside."""

from __future__ import annotations

from pathlib import Path

import apsw

from tests.faults.world import World

#: What must be empty when everything has come to an end.
_OPEN = {
    "item": "SELECT count(*) FROM item WHERE state = 'waiting'",
    "open_cycle": "SELECT count(*) FROM open_cycle",
    "record": "SELECT count(*) FROM record WHERE kind = 'parked'",
}
_IN_DOUBT = "SELECT count(*) FROM doubt WHERE answer IS NULL"


def connect(database: Path) -> apsw.Connection:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(2_000)
    return connection


def tables(connection: apsw.Connection) -> set[str]:
    return {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def left_open(world: World, *, answered: bool = False) -> dict[str, int]:
    """How much is still open, by table, and which promised files were not seen; empty when all has come to an end.

    `answered`: so has a call in doubt only once somebody has said what became of it.
    """
    files = [line["file"] for line in world.acked().values() if "file" in line]
    connection = connect(world.database)
    try:
        connection.execute("BEGIN")  # of one moment: what leaves one table as open comes into another
        there = tables(connection)
        counts = {name: int(str(connection.execute(query).get)) for name, query in _OPEN.items() if name in there}
        if answered and "doubt" in there:
            counts["doubt"] = int(str(connection.execute(_IN_DOUBT).get))
        query = "SELECT key FROM own_row WHERE owner GLOB 'sensor:*'"
        seen = {str(key) for (key,) in connection.execute(query)} if "own_row" in there else set()
        counts |= {name: 1 for name in files if name not in seen}
        return {name: count for name, count in counts.items() if count}
    finally:
        connection.close()
