"""Check of every page and every row of a file, which may be in use.

It answers five questions: are the pages whole, are the tables exactly those of the format, does the chain of facts hold
from the first to the last, can every row be read, and does every row fit its seal, with none added and none removed
(`memory.sqlite.seals`). It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from memory.codec.decoding import decode
from memory.engine import hash_chain
from memory.sqlite import database, schema, seals
from spar.errors import DamagedError
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


class Finding(Struct, frozen=True):
    """Problem: its table, its row and a description."""

    table: str
    row: str
    what: str

    def __str__(self) -> str:
        where = " ".join(filter(None, [self.table, self.row]))
        return f"{where}: {self.what}"


class Report(Struct, frozen=True):
    """Result of a check: the number of rows by table, and the first hundred findings."""

    path: str
    rows: dict[str, int]
    findings: tuple[Finding, ...]

    @property
    def is_whole(self) -> bool:
        return not self.findings


def verify(path: str) -> Report:
    """Check the whole file; this takes some seconds for a gigabyte.

    Raises: ConfigError for no file, a file of another program or of a newer format; TransientError when it is locked.
    """
    rows: dict[str, int] = {}
    try:
        database.inspect(path)
        with database.explained(path), database.reading(path) as connection:
            findings = tuple(islice(_findings(connection, rows), _MOST))
    except DamagedError as error:
        findings = (Finding("file", "", str(error)),)
    return Report(path, rows, findings)


def _findings(connection: Connection, rows: dict[str, int]) -> Iterator[Finding]:
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
            yield Finding("file", "", str(error))


def _pages(connection: Connection) -> Iterator[Finding]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({_MOST})"):
        if line != "ok":
            yield Finding("file", "", str(line))


def _tables(connection: Connection) -> Iterator[Finding]:
    from memory.sqlite.connection import SqliteConnection

    fresh = SqliteConnection(database.IN_MEMORY)
    try:
        schema.migrate(fresh, steps=schema.STEPS[: schema.version(connection)])
        expected, present = _names(fresh), _names(connection)
    finally:
        fresh.close()
    for kind, name in sorted(present - expected):
        yield Finding(name, "", f"a {kind} that is not ours")
    for kind, name in sorted(expected - present):
        yield Finding(name, "", f"the {kind} is missing")


def _names(connection: Connection) -> set[tuple[str, str]]:
    query = "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    return {(str(kind), str(name)) for kind, name in connection.execute(query)}


def chains(connection: Connection) -> Iterator[Finding]:
    """Check the chains of facts and of the audit log."""
    for chain in (hash_chain.FACTS, hash_chain.AUDIT):
        if broken := hash_chain.check(connection, chain=chain):
            yield Finding(chain.table, str(broken.seq), broken.why)


def _seals(connection: Connection) -> Iterator[Finding]:
    if schema.version(connection) == len(schema.STEPS):  # older files have no seals, or not all
        for broken in seals.check(connection):
            yield Finding(broken.table, broken.row, broken.why)


def bodies(connection: Connection, rows: dict[str, int]) -> Iterator[Iterator[Finding]]:
    """Return a check of the bodies of each table, which also counts its rows."""
    return (_bodies(connection, rows, *table) for table in _BODIES)


def _bodies(
    connection: Connection, rows: dict[str, int], table: str, key: tuple[str, ...], body: str, kind: Any
) -> Iterator[Finding]:
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
                yield Finding(table, "/".join(map(str, row[:count])), f"its {body} cannot be read: {error}")
        batch = list(connection.execute(after, batch[-1][:count]))
