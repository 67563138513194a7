"""Care of a database from outside: the work of `spar memory verify` and `doctor`, and what a server's tools do instead.

All functions block. They may be called while a service uses the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, NoReturn

import psycopg

from memory.care.doctor import lines_of_work
from memory.care.integrity import bodies, chains
from memory.engine.own_keys import EPOCH
from memory.postgres import schema
from memory.postgres.moving import file_to_server, server_to_file
from memory.postgres.server import Server, connect, explained
from spar.errors import ConfigError, SparError
from spar.ports.store import CareCopy, CareLine, CareReport

if TYPE_CHECKING:
    from memory.postgres.connection import PostgresConnection
    from spar.records.audit import AuditDraft

_MOST = 100  # findings of a report


class ServerCare:
    """Care of a database on a server."""

    def __init__(self, server: Server) -> None:
        self._server, self.path = server, server.name

    def back_up(self, target: str) -> CareCopy:
        """Refuse: the server's own tools copy a database that is in use. Raises: ConfigError."""
        self._refuse(f"copied with: pg_dump --format=custom --file={target}")

    def restore(self, source: str) -> str | None:
        """Refuse: the server's own tools restore a database. Raises: ConfigError."""
        self._refuse(f"restored, while no agent runs, with: pg_restore --clean --if-exists --dbname=… {source}")

    def copy_from_file(self, path: str, draft: AuditDraft) -> dict[str, int]:
        """Copy all rows of a file into the database, which must be empty. Return their number by table."""
        return file_to_server(path, self._server, draft)

    def copy_to_file(self, path: str, draft: AuditDraft) -> dict[str, int]:
        """Copy all rows of the database into a new file. Return their number by table."""
        return server_to_file(self._server, path, draft)

    def acknowledge(self) -> int:
        """Return 0: losses are noted beside a file, and there is none."""
        return 0

    def verify(self) -> CareReport:
        """Check the chains and every row; the pages are checked by the server. Raises: ConfigError, TransientError."""
        rows: dict[str, int] = {}
        with self._reading() as connection:
            findings = chain(chains(connection), chain.from_iterable(bodies(connection, rows)))
            return CareReport(self.path, rows, tuple(islice(findings, _MOST)))

    def examine(self) -> list[CareLine]:
        """Examine server and database quickly. Problems are lines, never errors."""
        try:
            with self._reading() as connection:
                return list(_lines(connection))
        except SparError as error:
            return [CareLine("memory", "bad", str(error))]

    @contextmanager
    def _reading(self) -> Iterator[PostgresConnection]:
        with explained(self._server):
            connection = connect(self._server)
            try:
                schema.check(connection, self.path, read_only=True)
                yield connection
            finally:
                connection.close()

    def _refuse(self, instead: str) -> NoReturn:
        raise ConfigError(f"{self.path} is a database of a server: it is {instead}", path=("url",))


def _lines(connection: PostgresConnection) -> Iterator[CareLine]:
    version = connection.raw.info.parameter_status("server_version")
    yield CareLine("postgresql", "ok", f"{version}, psycopg {psycopg.__version__}")
    has_checksums = connection.execute("SELECT current_setting('data_checksums')").get == "on"
    advice = "" if has_checksums else "stop the server, then: pg_checksums --enable"
    yield CareLine("checksums", "ok" if has_checksums else "warn", "on" if has_checksums else "off", advice)
    size = int(connection.execute("SELECT pg_database_size(current_database())").get)
    yield CareLine("size", "ok", f"{size // 1024} KiB")
    yield CareLine("format", "ok", str(schema.present_formats(connection)[-1]))
    yield CareLine("epoch", "ok", str(connection.execute("SELECT value FROM state WHERE key = ?", (EPOCH,)).get))
    yield from lines_of_work(connection)
