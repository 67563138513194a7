"""Moves of a memory from a file to a database on a server, and back: all rows, each compared at the end.

The source is locked and only read. A database gets its tables and all rows in one transaction, a file gets its name
when it is complete: a move that is cut off leaves nothing. Rows pass one by one, so a large memory takes no more room.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from memory import audit
from memory.care import backup, integrity
from memory.care.lock import Lock
from memory.codec import decode
from memory.engine.own_keys import FLUSHED, SEALS
from memory.experiences import recall
from memory.experiences.rows import encoded_row
from memory.postgres import schema
from memory.postgres.full_text import vector
from memory.postgres.opening import demand_unused
from memory.postgres.server import Server, connect, demand_writable, explained
from memory.sqlite import database, seals, wal_watermark
from memory.sqlite import schema as file_schema
from memory.sqlite.connection import SqliteConnection
from memory.sqlite.seals.keeping import MODULUS, digest_of
from spar.errors import ConfigError, SparError
from spar.failpoints import crashpoint
from spar.ports.store import CareFinding
from spar.types import Experience

if TYPE_CHECKING:
    from memory.postgres.connection import PostgresConnection
    from spar.records.audit import AuditDraft

#: Appended to the name of a file that is not complete yet.
_UNFINISHED: Final = ".moving"
#: Tables of a file that have no rows of the memory: seals, and the tables that SQLite makes itself.
_INTERNAL: Final = ("seal", "sqlite_", "experience_text")
#: Rows of `state` that belong to a file.
_CONDITIONS: Final = {"state": f"WHERE key NOT IN ('{FLUSHED}', '{SEALS}')"}
#: The numbered tables of a database: name, column, sequence.
_NUMBERED: Final = (
    "SELECT table_name, column_name, pg_get_serial_sequence(table_name::text, column_name::text) "
    "FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES'"
)

Row = tuple[Any, ...]


class End(Protocol):
    """One end of a move. `tops` are the numbers up to which the rows of tables were numbered, which are never used
    again."""

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]: ...
    def put(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None: ...
    def index(self, texts: Iterable[tuple[int, Sequence[str]]]) -> None:
        """Write the words of experiences by their numbers."""

    def tops(self) -> dict[str, int]: ...
    def raise_tops(self, tops: Mapping[str, int]) -> None: ...


class FileEnd:
    """File as an end of a move."""

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each table that is moved. The table to which others refer comes first."""
        names = sorted(name for name in self._connection.tables() if not name.startswith(_INTERNAL))
        return {name: [str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({name})")] for name in names}

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        return iter(self._connection.execute(_select(table, columns)))

    def put(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        values = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} ({_quoted(columns)}) VALUES ({values})", rows)

    def index(self, texts: Iterable[tuple[int, Sequence[str]]]) -> None:
        for seq, words in texts:
            self._connection.full_text.add(self._connection, seq, words)

    def tops(self) -> dict[str, int]:
        return {str(name): int(seq) for name, seq in self._connection.execute("SELECT name, seq FROM sqlite_sequence")}

    def raise_tops(self, tops: Mapping[str, int]) -> None:
        query = "SELECT name FROM sqlite_schema WHERE sql LIKE '%AUTOINCREMENT%'"
        numbered = [str(name) for (name,) in self._connection.execute(query)]
        self._connection.execute("DELETE FROM sqlite_sequence")
        rows = [(name, tops[name]) for name in numbered if name in tops]
        self._connection.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", rows)


class ServerEnd:
    """Database on a server as an end of a move."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        return self._connection.raw.cursor().stream(_select(table, columns).encode())

    def put(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        cursor = self._connection.raw.cursor()
        with cursor.copy(f"COPY {table} ({_quoted(columns)}) FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def index(self, texts: Iterable[tuple[int, Sequence[str]]]) -> None:
        self.put("experience_text", ("seq", "words"), ((seq, vector(words)) for seq, words in texts))

    def tops(self) -> dict[str, int]:
        query = "SELECT last_value FROM {} WHERE is_called"
        tops = {table: self._connection.execute(query.format(name)).get for table, _, name in self._numbered()}
        return {table: int(top) for table, top in tops.items() if top is not None}

    def raise_tops(self, tops: Mapping[str, int]) -> None:
        for table, column, name in self._numbered():
            newest = self._connection.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").get
            if top := max(tops.get(table, 0), int(newest)):
                self._connection.execute("SELECT setval(?::regclass, ?)", (name, top))

    def _numbered(self) -> list[tuple[str, str, str]]:
        """Return each table whose rows are numbered, with its column and its sequence."""
        return [(str(table), str(column), str(name)) for table, column, name in self._connection.execute(_NUMBERED)]


class Totals:
    """Number of rows, and the sum of their digests, which does not depend on their order."""

    def __init__(self) -> None:
        self.count = self.sum = 0

    def counted(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Return rows, and add each up."""
        for row in rows:
            self.count, self.sum = self.count + 1, (self.sum + digest_of(row)) % MODULUS
            yield row


def file_to_server(path: str, server: Server, draft: AuditDraft) -> dict[str, int]:
    """Copy all rows of a file into an empty database. Return their number by table.

    Args: draft: the entry of the audit log of the database.
    Raises: ConfigError if one of them is in use, or the database is not empty; SparError if the file is damaged;
        TransientError.
    """
    with _locked(path), database.explained(path), explained(server), closing(connect(server)) as target:
        database.inspect(path, read_only=True)
        demand_writable(target, server.name)
        demand_unused(target, server.name)
        if schema.check(target, server.name):
            raise ConfigError(f"{server.name} holds a memory already; move into an empty database", path=("url",))
        _demand_whole(path, integrity.verify(path).findings)
        with database.reading(path) as source:
            source.begin()
            target.execute("BEGIN")
            schema.create(target)
            counts = _copy(FileEnd(source).tables(), FileEnd(source), ServerEnd(target))
            audit.append(target, draft, time.time())
            crashpoint("move.commit")
            target.execute("COMMIT")
            crashpoint("move.done")
    return counts


def server_to_file(server: Server, path: str, draft: AuditDraft) -> dict[str, int]:
    """Copy all rows of a database into a new file. Return their number by table.

    Args: draft: the entry of the audit log of the file.
    Raises: ConfigError if the database is in use, or the file exists; SparError if the database is damaged;
        TransientError, OSError.
    """
    path = os.path.realpath(path)
    unfinished = f"{path}{_UNFINISHED}"
    with _locked(path), database.explained(path), explained(server), closing(connect(server)) as source:
        if taken := next((name for name in (path, f"{path}-wal") if os.path.lexists(name)), None):
            raise ConfigError(f"{taken!r} exists; move into a file with a new name", path=("url",))
        demand_unused(source, server.name)
        schema.check(source, server.name, read_only=True)
        rows: dict[str, int] = {}
        findings = [*integrity.chains(source), *chain.from_iterable(integrity.bodies(source, rows))]
        _demand_whole(server.name, findings)
        source.begin()
        with suppress(FileNotFoundError):
            Path(unfinished).unlink()
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        try:
            with closing(SqliteConnection(unfinished)) as target:
                # The complete file is flushed once, and one that is not complete is deleted.
                target.execute("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
                file_schema.migrate(target)
                target.execute("BEGIN")
                counts = _copy(FileEnd(target).tables(), ServerEnd(source), FileEnd(target))
                audit.append(target, draft, time.time())
                seals.seal_all(target)
                target.execute("COMMIT")
            backup.examine(unfinished)
            backup.flush(unfinished)
            wal_watermark.remove(path)  # of an earlier file of this name
            crashpoint("move.commit")
            Path(unfinished).replace(path)
            crashpoint("move.done")
        finally:
            with suppress(OSError):
                Path(unfinished).unlink()
        backup.flush_folder(path)
    return counts


def _copy(tables: Mapping[str, Sequence[str]], source: End, target: End) -> dict[str, int]:
    """Copy the rows of all tables, write the words of experiences, and compare the rows.

    Raises: SparError if they differ.
    """
    counts: dict[str, int] = {}
    for table, columns in tables.items():
        read, written = Totals(), Totals()
        target.put(table, columns, read.counted(source.rows(table, columns)))
        crashpoint("move.table")
        for _ in written.counted(target.rows(table, columns)):
            pass
        if (read.count, read.sum) != (written.count, written.sum):
            raise SparError(f"{table}: {written.count} rows were written of {read.count}, or they differ")
        counts[table] = read.count
    target.index(
        (int(seq), [*map(recall.words_of, encoded_row(decode(str(body), Experience)).texts)])
        for seq, body in source.rows("experience", ("seq", "body"))
    )
    target.raise_tops(source.tops())
    return counts


def _demand_whole(name: str, findings: Sequence[CareFinding]) -> None:
    if findings:
        raise SparError(f"{name} is damaged ({findings[0]}); nothing was moved, see: spar memory verify")


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold the lock of a file. Raises: ConfigError while a process uses it."""
    lock = Lock(path)
    with database.explained(path):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _select(table: str, columns: Sequence[str]) -> str:
    return f"SELECT {_quoted(columns)} FROM {table} {_CONDITIONS.get(table, '')}"


def _quoted(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
