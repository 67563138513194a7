"""Sealing of whole tables, for migrations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from memory.inserts import insert_all
from memory.sqlite.seals.keeping import (
    BATCH,
    HEAD,
    INTO,
    MODULUS,
    OR_REPLACE,
    TABLES,
    Head,
    Key,
    digest_of,
    head,
    names,
    newest_fact,
    put_head,
    row_of,
    rows_of,
)

if TYPE_CHECKING:
    from memory.engine.connection import Connection


def seal_all(connection: Connection) -> None:
    """Seal every row of every table, in place of all present seals."""
    connection.execute("DELETE FROM seal")
    rows: dict[str, tuple[int, int]] = {}
    for name in TABLES.keys() & names(connection):
        rows[name] = _seal_table(connection, name)
    put_head(connection, Head(rows, *newest_fact(connection)))


def seal_new(connection: Connection, name: str) -> None:
    """Seal the rows of a table that a migration has created; the other seals stay as they are."""
    known = head(connection)
    if known is None:  # the totals are missing, which a check must report: do not write new ones
        return
    rows = _seal_table(connection, name)
    put_head(connection, Head({**known.rows, name: rows}, known.fact, known.link))


def seal_again(connection: Connection, name: str, columns: int) -> None:
    """Seal the rows of a table to which a migration has added columns after its first `columns`.

    A row that did not fit its seal, or had none, stays so: a migration must not hide damage.
    """
    known, table = head(connection), TABLES[name]
    change = 0
    after: Key = ""
    while batch := list(_rows_after(connection, name, after)):
        digests: dict[Key, int] = {}
        for key, row in batch:
            after = key
            sealed = connection.execute("SELECT digest FROM seal WHERE tbl = ? AND key = ?", (table.number, key)).get
            if isinstance(sealed, int) and sealed == digest_of(row[:columns]):
                digests[key] = digest_of(row)
                change += digests[key] - sealed
        insert_all(connection, INTO, [(table.number, key, digest) for key, digest in digests.items()], OR_REPLACE)
    if known is not None:
        count, total = known.rows.get(name, (0, 0))
        put_head(connection, Head({**known.rows, name: (count, (total + change) % MODULUS)}, known.fact, known.link))


def _rows_after(connection: Connection, name: str, after: Key) -> Iterator[tuple[Key, tuple[Any, ...]]]:
    """Return a batch of rows of a table with a key of one column, those after a key; "" begins at the first row."""
    (column,) = TABLES[name].key
    where, bindings = ("1", ()) if after == "" else (f"{column} > ?", (after,))
    query = f"SELECT {column} FROM {name} WHERE {where} ORDER BY {column} LIMIT {BATCH}"
    for (key,) in list(connection.execute(query, bindings)):
        row = row_of(connection, name, key)
        yield key, row if row is not None else ()


def _seal_table(connection: Connection, name: str) -> tuple[int, int]:
    """Seal every row of a table; return their number and the sum of the seals."""
    count, total, table = 0, 0, TABLES[name]
    for _, key, row in rows_of(connection, name, table):
        if (name, key) == ("state", HEAD):
            continue
        digest = digest_of(row)
        insert_all(connection, INTO, ((table.number, key, digest),), OR_REPLACE)
        count, total = count + 1, (total + digest) % MODULUS
    return count, total
