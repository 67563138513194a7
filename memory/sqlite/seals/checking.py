"""Comparison of rows with their seals, and of all seals with their totals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from memory.engine import hash_chain
from memory.sqlite.seals.keeping import (
    BATCH,
    HEAD,
    MODULUS,
    TABLES,
    Key,
    SealedTable,
    counted,
    digest_of,
    head,
    names,
    row_of,
    rows_of,
    text_of,
)

if TYPE_CHECKING:
    from memory.engine.connection import Connection


class SealBreak(NamedTuple):
    """Row that does not fit its seal: its table, its name for people, the reason."""

    table: str
    row: str
    why: str


def check(connection: Connection) -> Iterator[SealBreak]:
    """Compare every row with its seal, and all seals with their totals. In short reads, since others may write.

    Raises: apsw.Error when the rows cannot be read.
    """
    present = names(connection)
    if not {"seal", "state", "fact"} <= present:
        return  # another check reports missing tables
    for name, table in TABLES.items():
        if name in present:
            yield from _compare_table(connection, name, table)
    yield from _compare_all_totals(connection)


def check_table(connection: Connection, name: str) -> Iterator[SealBreak]:
    """Compare the rows of one table with their seals, and these with their totals. In one read."""
    if not (connection.filename and {"seal", "state", name} <= names(connection)):
        return
    table = TABLES[name]
    query = connection.execute("SELECT key, digest FROM seal WHERE tbl = ?", (table.number,))
    seals = {key: int(str(digest)) for key, digest in query}
    present = len(seals), sum(seals.values()) % MODULUS
    for shown, key, row in rows_of(connection, name, table):
        yield from _compare_row(name, shown, row, seals.pop(key, None))
    for key in seals:
        yield SealBreak(name, text_of(key), "it is missing")
    known = head(connection)
    if known is None:
        yield SealBreak("state", HEAD, "it is missing or cannot be read: nobody knows how many rows there were")
    else:
        yield from _compare_totals(name, known.rows.get(name, (0, 0)), present)


def fits(connection: Connection, name: str, key: Key) -> bool:
    """Return whether a committed row fits its seal; always True in a memory without a file, which has no seals."""
    if not connection.filename:
        return True
    query = "SELECT digest FROM seal WHERE tbl = ? AND key = ?"
    sealed = connection.execute(query, (TABLES[name].number, key)).get
    row = row_of(connection, name, key)
    return sealed is not None and row is not None and digest_of(row) == sealed


def _compare_all_totals(connection: Connection) -> Iterator[SealBreak]:
    connection.execute("BEGIN")
    try:
        known, present = head(connection), counted(connection).rows
        fact = None if known is None or not known.fact else (known.fact, known.link)
        link = None if fact is None else connection.execute("SELECT link FROM fact WHERE seq = ?", (fact[0],)).get
        newest = hash_chain.newest(connection)
    finally:
        connection.execute("COMMIT")
    if known is None:
        yield SealBreak("state", HEAD, "it is missing or cannot be read: nobody knows how many rows there were")
        return
    for name in sorted(known.rows.keys() | present.keys()):
        yield from _compare_totals(name, known.rows.get(name, (0, 0)), present.get(name, (0, 0)))
    if fact is not None and newest < fact[0]:
        yield SealBreak("fact", str(newest + 1), f"it is missing, and so are all up to number {fact[0]}")
    elif fact is not None and (not isinstance(link, bytes) or link.hex() != fact[1]):
        yield SealBreak("fact", str(fact[0]), "it is not the one that was written last")


def _compare_row(name: str, shown: str, row: tuple[Any, ...] | None, sealed: int | None) -> Iterator[SealBreak]:
    """Compare a row, None if it cannot be read, with its seal."""
    if sealed is None:
        yield SealBreak(name, shown, "it has no seal: it was put in by somebody else")
    elif row is None or digest_of(row) != sealed:
        yield SealBreak(name, shown, "it was altered: its seal does not fit")


def _compare_totals(name: str, written: tuple[int, int], present: tuple[int, int]) -> Iterator[SealBreak]:
    """Compare number and sum of the present seals of a table with those that were written in the head."""
    if written[0] != present[0]:
        yield SealBreak(name, "", f"{present[0]} rows are sealed, {written[0]} were")
    elif written != present:
        yield SealBreak(name, "", "its seals do not come to what they did: a row and its seal were changed")


def _compare_table(connection: Connection, name: str, table: SealedTable) -> Iterator[SealBreak]:
    for batch, seals in _batches(connection, name, table):
        for shown, key, row in batch:
            sealed = seals.pop(key, None)
            if (name, key) != ("state", HEAD):
                yield from _compare_row(name, shown, row, sealed)
        for key in seals:
            yield SealBreak(name, text_of(key), "it is missing")


def _batches(
    connection: Connection, name: str, table: SealedTable
) -> Iterator[tuple[list[tuple[str, Key, Any]], dict[Key, int]]]:
    """Return the rows of a table in batches, in the order of their keys, each batch with the seals of its keys."""
    last: Key | None = None
    while True:
        connection.execute("BEGIN")
        try:
            beyond, bindings = ("", ()) if last is None else ("AND key > ?", (last,))
            query = f"SELECT key, digest FROM seal WHERE tbl = ? {beyond} ORDER BY key LIMIT {BATCH}"
            seals = {key: int(str(digest)) for key, digest in connection.execute(query, (table.number, *bindings))}
            end = list(seals)[-1] if len(seals) == BATCH else None
            batch = list(rows_of(connection, name, table, last, end))
        finally:
            connection.execute("COMMIT")
        yield batch, seals
        if end is None:
            return
        last = end
