"""Tables whose rows are sealed, the digest of a row, and the totals of all seals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from memory.engine import hash_chain
from memory.engine.own_keys import SEALS
from spar.decoding import decode

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Key of the totals in the table `state`. This row has no seal: it is compared with the counted totals.
HEAD: Final = SEALS
#: Sums of seals are modulo this number.
MODULUS = 1 << 64
INTO = "INSERT INTO seal (tbl, key, digest)"
OR_REPLACE = "ON CONFLICT (tbl, key) DO UPDATE SET digest = excluded.digest"
_PUT_HEAD = "INSERT INTO state (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
#: Rows of one short read.
BATCH = 500
Key = int | str


class SealedTable(NamedTuple):
    """Table whose rows are sealed: its number, the columns of its key, the column that names a row for people."""

    number: int
    key: tuple[str, ...]
    name: str = ""


#: Numbers are never used for another table.
TABLES: Final[dict[str, SealedTable]] = {
    "experience": SealedTable(1, ("seq",), "id"),
    "cycle": SealedTable(2, ("seq",), "id"),
    "state": SealedTable(3, ("key",)),
    "record": SealedTable(4, ("kind", "id")),
    "item": SealedTable(5, ("id",)),
    "open_cycle": SealedTable(6, ("id",)),
    "doubt": SealedTable(7, ("id",)),
    "spent": SealedTable(8, ("window", "quantity")),
    "transcript": SealedTable(9, ("seq",)),
    "writer": SealedTable(10, ("seq",)),
    "own_row": SealedTable(11, ("owner", "key")),
    "tape_piece": SealedTable(12, ("seq",)),
    "session": SealedTable(13, ("agent", "key")),
    "audit": SealedTable(14, ("seq",)),
    "experience_source": SealedTable(15, ("id",)),
}


class Head(msgspec.Struct):
    """Totals of all seals: their number and sum by table, and number and link of the newest fact."""

    rows: dict[str, tuple[int, int]]
    fact: int = 0
    link: str = ""


def head(connection: Connection) -> Head | None:
    """Return the totals of the seals as they were written last; None if they cannot be read."""
    text = connection.execute("SELECT value FROM state WHERE key = ?", (HEAD,)).get
    try:
        return decode(str(text), Head) if text is not None else None
    except msgspec.DecodeError:
        return None


def counted(connection: Connection) -> Head:
    """Return the totals of the present seals, without the newest fact."""
    names = {table.number: name for name, table in TABLES.items()}
    rows: dict[str, tuple[int, int]] = {}
    for number, digest in connection.execute("SELECT tbl, digest FROM seal"):
        name = names.get(int(str(number)), str(number))
        count, total = rows.get(name, (0, 0))
        rows[name] = count + 1, (total + int(str(digest))) % MODULUS
    return Head(rows)


def newest_fact(connection: Connection, known: tuple[int, bytes] | None = None) -> tuple[int, str]:
    """Return number and link of the newest fact, which is read unless it is known; (0, "") if there is none."""
    seq, link = known or hash_chain.last(connection) or (0, b"")
    return seq, link.hex()


def put_head(connection: Connection, head: Head) -> None:
    connection.execute(_PUT_HEAD, (HEAD, msgspec.json.encode(head).decode()))


def digest_of(row: tuple[Any, ...]) -> int:
    """Return a digest over all columns of a row."""
    return int.from_bytes(blake2b(msgspec.msgpack.encode(row), digest_size=8).digest(), "big", signed=True)


def digests_of(rows: Iterable[tuple[Any, ...] | None]) -> list[int | None]:
    """Return the digests of rows; None for one that was deleted."""
    return [None if row is None else digest_of(row) for row in rows]


def names(connection: Connection) -> set[str]:
    """Return the names of the present tables."""
    return {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def rows_of(
    connection: Connection, name: str, table: SealedTable, after: Key | None = None, upto: Key | None = None
) -> Iterator[tuple[str, Key, Any]]:
    """Return rows as their name for people, key and columns; the columns are None if they cannot be read."""
    key, columns = " || char(0) || ".join(table.key), f"({', '.join(table.key)})"
    marks = f"({', '.join('?' * len(table.key))})"
    bounds = [(sql, parts_of(value)) for sql, value in ((">", after), ("<=", upto)) if value is not None]
    where = " AND ".join(f"{columns} {sql} {marks}" for sql, _ in bounds) or "1"
    bindings = tuple(part for _, parts in bounds for part in parts)
    query = f"SELECT {key}, {table.name or key}, * FROM {name} WHERE {where}"
    try:
        for row_key, shown, *row in connection.execute(query, bindings):
            yield text_of(shown), row_key, tuple(row)
    except UnicodeDecodeError:  # a text is damaged: read the rows one by one to find it
        for (row_key,) in list(connection.execute(f"SELECT {key} FROM {name} WHERE {where}", bindings)):
            yield text_of(row_key), row_key, row_of(connection, name, row_key)


def row_of(connection: Connection, name: str, key: Any) -> tuple[Any, ...] | None:
    """Return the columns of a row by its key; None if there is no such row, or it cannot be read."""
    where = " AND ".join(f"{column} = ?" for column in TABLES[name].key)
    try:
        row: tuple[Any, ...] | None = connection.execute(
            f"SELECT * FROM {name} WHERE {where}", parts_of(key)
        ).fetchone()
    except UnicodeDecodeError:
        return None
    return row


def parts_of(key: Key) -> tuple[Key, ...]:
    """Return the columns of a key, which is one value. Stored texts contain no NUL, so its order is theirs."""
    return tuple(key.split("\0")) if isinstance(key, str) else (key,)


def text_of(key: Any) -> str:
    return str(key).replace("\0", "/")
