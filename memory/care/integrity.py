"""Check of every page and every row of a file, which may be in use.

It answers five questions: are the pages whole, are the tables exactly those of the format, does the chain of facts hold
from the first to the last, can every row be read, and does every row fit its seal, with none added and none removed
(`memory.sqlite.seals`). It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from memory.codec import decode
from memory.engine import hash_chain
from memory.sqlite import database, schema, seals
from spar.errors import DamagedError
from spar.ports.store import CareFinding, CareReport
from spar.types import Experience

if TYPE_CHECKING:
    from memory.engine.connection import Connection

_MOST = 100  # findings of a report
_BATCH = 1_000
#: Tables with bodies: table, columns of its key, column of the body, type of the body.
_BODIES: tuple[tuple[str, tuple[str, ...], str, Any], ...] = (
    ("experience", ("id",), "body", Experience),
    ("cycle", ("id",), "body", object),
    ("fact", ("seq",), "body", object),
    ("item", ("id",), "body", object),
    ("open_cycle", ("id",), "body", object),
    ("doubt", ("id",), "body", object),
    ("transcript", ("seq",), "body", dict),
    ("record", ("kind", "id"), "value", object),
    ("tape_piece", ("seq",), "text", object),
    ("own_row", ("owner", "key"), "value", object),
    ("session", ("agent", "key"), "body", dict),
    ("state", ("key",), "value", object),
)


def verify(path: str) -> CareReport:
    """Check the whole file; this takes some seconds for a gigabyte.

    Raises: ConfigError for no file, a file of another program or of a newer format; TransientError when it is locked.
    """
    rows: dict[str, int] = {}
    try:
        database.inspect(path)
        with database.explained(path), database.reading(path) as connection:
            findings = tuple(islice(_findings(connection, rows), _MOST))
    except DamagedError as error:
        findings = (CareFinding("file", "", str(error)),)
    return CareReport(path, rows, findings)


def _findings(connection: Connection, rows: dict[str, int]) -> Iterator[CareFinding]:
    import apsw

    steps = (
        _pages(connection),
        _tables(connection),
        chains(connection),
        *bodies(connection, rows),
        _seals(connection),
    )
    reported: set[tuple[str, str]] = set()
    for step in steps:
        try:
            for finding in step:
                if not finding.row or (finding.table, finding.row) not in reported:  # one finding for each row
                    reported.add((finding.table, finding.row))
                    yield finding
        except (apsw.CorruptError, apsw.NotADBError) as error:  # the next steps may still work
            yield CareFinding("file", "", str(error))


def _pages(connection: Connection) -> Iterator[CareFinding]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({_MOST})"):
        if line != "ok":
            yield CareFinding("file", "", str(line))


def _tables(connection: Connection) -> Iterator[CareFinding]:
    expected, present = _names_of_format(schema.version(connection)), _names(connection)
    for kind, name in sorted(present - expected):
        yield CareFinding(name, "", f"a {kind} that is not ours")
    for kind, name in sorted(expected - present):
        yield CareFinding(name, "", f"the {kind} is missing")


@cache
def _names_of_format(number: int) -> set[tuple[str, str]]:
    from memory.sqlite.connection import SqliteConnection

    fresh = SqliteConnection(database.IN_MEMORY)
    try:
        schema.migrate(fresh, steps=schema.STEPS[:number])
        return _names(fresh)
    finally:
        fresh.close()


def _names(connection: Connection) -> set[tuple[str, str]]:
    query = "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    return {(str(kind), str(name)) for kind, name in connection.execute(query)}


def chains(connection: Connection) -> Iterator[CareFinding]:
    """Check the chains of facts and of the audit log."""
    for chain in (hash_chain.FACTS, hash_chain.AUDIT):
        if broken := hash_chain.check(connection, chain=chain):
            yield CareFinding(chain.table, str(broken.seq), broken.why)


def _seals(connection: Connection) -> Iterator[CareFinding]:
    if schema.version(connection) == len(schema.STEPS):  # older files have no seals, or not all
        for broken in seals.check(connection):
            yield CareFinding(broken.table, broken.row, broken.why)


def bodies(connection: Connection, rows: dict[str, int]) -> Iterator[Iterator[CareFinding]]:
    """Return a check of the bodies of each table, which also counts its rows."""
    return (_bodies(connection, rows, *table) for table in _BODIES)


def _bodies(
    connection: Connection, rows: dict[str, int], table: str, key: tuple[str, ...], body: str, kind: Any
) -> Iterator[CareFinding]:
    """Check the bodies of a table, in short transactions that do not delay the writer."""
    if table not in connection.tables():
        return
    columns, count = ", ".join(key), len(key)
    query = f"SELECT {columns}, {body} FROM {table} {{}} ORDER BY {columns} LIMIT {_BATCH}"
    after = query.format(f"WHERE ({columns}) > ({', '.join('?' * count)})")
    batch = list(connection.execute(query.format("")))
    rows[table] = 0
    while batch:
        rows[table] += len(batch)
        for row in batch:
            try:
                decode(row[count], kind)
            except Exception as error:
                yield CareFinding(table, "/".join(map(str, row[:count])), f"its {body} cannot be read: {error}")
        batch = list(connection.execute(after, batch[-1][:count]))
