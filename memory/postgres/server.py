"""Server: its URL, connections to it, and errors of it as sentences that name the host and never a password."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict

from memory.engine.connection import closed_on_error
from memory.postgres.connection import PostgresConnection, adapters
from spar.data.scrub import know
from spar.errors import ConfigError, SparError, TransientError

#: First version that can say what became of a transaction (`pg_xact_status` of 64 bits).
_LEAST_VERSION: Final = 130_000
_CONNECT_WITHIN: Final = 5  # seconds
#: Parameters of libpq: a server that does not answer any more is noticed within some ten seconds.
_PATIENCE: Final = {
    "connect_timeout": _CONNECT_WITHIN, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}  # fmt: skip
#: Settings of each connection. The server notices a vanished client within some ten seconds, which then holds no locks.
_SETTINGS: Final = (
    "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; "
    "SET client_min_messages = error; SET standard_conforming_strings = on"
)
#: Seconds after which the server ends the transaction of a writer that stands still.
_IDLE_WITHIN: Final = 1


class OnlyReadsError(ConfigError):
    """Error of a server that is a standby itself, and may become the primary."""


class Server(NamedTuple):
    """Database on a server: the arguments of a connection, and its name for people, without the password."""

    arguments: dict[str, Any]
    name: str
    password: str


def parsed(url: str, password: str | None = None) -> Server:
    """Return the database that a URL names. Raises: ConfigError without the URL in it: it may have a password."""
    known = "'postgresql://user@host:5432/database'; the password in: memory.password"
    if not url.startswith(("postgresql://", "postgres://")):
        raise ConfigError(f"memory.url is no URL of PostgreSQL; known: {known}", path=("url",))
    try:
        arguments: dict[str, Any] = dict(conninfo_to_dict(url))
    except psycopg.Error:  # its text has the whole URL
        raise ConfigError(f"memory.url cannot be read as a URL of PostgreSQL; known: {known}", path=("url",)) from None
    if password is not None:
        arguments["password"] = password
    secret = str(arguments.get("password") or "")
    if secret:
        know(secret)
    host = arguments.get("host") or arguments.get("hostaddr") or "local socket"
    user = f"{arguments['user']}@" if arguments.get("user") else ""
    port = f":{arguments['port']}" if arguments.get("port") else ""
    name = f"postgresql://{user}{host}{port}/{arguments.get('dbname') or arguments.get('user') or ''}"
    return Server(arguments, name, secret)


def connect(server: Server, *, is_writer: bool = False, durability: str = "power") -> PostgresConnection:
    """Return a connection that can be used. Raises: ConfigError, TransientError, psycopg.Error."""
    again = None if is_writer else partial(_connected, server)
    with closed_on_error(PostgresConnection(_connected(server), again)) as connection:
        _check_server(connection, server.name)
        connection.execute(_SETTINGS)
        if is_writer:
            connection.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_WITHIN}s'")
            if durability != "power":
                connection.execute("SET synchronous_commit = off")
    return connection


def _connected(server: Server) -> psycopg.Connection[Any]:
    name = f"spar {socket.gethostname()[:30]} {os.getpid()}"
    arguments: dict[str, Any] = {**_PATIENCE, "application_name": name, **server.arguments, "client_encoding": "UTF8"}
    return psycopg.connect(**arguments, autocommit=True, context=adapters())


def _check_server(connection: PostgresConnection, name: str) -> None:
    info = connection.raw.info
    if info.server_version < _LEAST_VERSION:
        version = info.parameter_status("server_version")
        raise ConfigError(
            f"{name} is PostgreSQL {version}; 13 is the least: upgrade the server, or let memory.url name another",
            path=("url",),
        )
    if (encoding := info.parameter_status("server_encoding")) != "UTF8":
        raise ConfigError(
            f"{name} has the encoding {encoding}, which cannot hold every text; make the database anew with: CREATE "
            "DATABASE … ENCODING 'UTF8' TEMPLATE template0",
            path=("url",),
        )


def demand_writable(connection: PostgresConnection, name: str) -> None:
    """Check that the server accepts writes. Raises: OnlyReadsError for a standby."""
    if connection.execute("SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'").get:
        raise OnlyReadsError(
            f"{name} is a standby that only reads: let memory.url name the primary, or promote this one", path=("url",)
        )


@contextmanager
def explained(server: Server) -> Iterator[None]:
    """Turn errors of the opening into sentences that name the server and say what to do."""
    try:
        yield
    except SparError:
        raise
    except psycopg.Error as error:
        raise _explained(server, error) from None


def _explained(server: Server, error: psycopg.Error) -> SparError:
    name, why, state = server.name, reason(error, server.password), error.sqlstate or ""
    if state.startswith("28") or "authentication failed" in why or "no password supplied" in why:
        return ConfigError(
            f"{name} refuses this user: {why}; see memory.password, or pg_hba.conf of the server", path=("password",)
        )
    if state == "3D000" or ("database" in why and "does not exist" in why):
        return ConfigError(f"{name}: {why}; make it with: createdb", path=("url",))
    if state == "42501":
        return ConfigError(
            f"{name}: {why}; let the user own the database, or: GRANT CREATE, USAGE ON SCHEMA public TO …",
            path=("url",),
        )
    if state.startswith("53"):
        return TransientError(f"{name} has no room: {why}; make room on its disk, or raise its limits")
    if state == "55P03":
        return TransientError(f"{name} is busy: {why}; start again when what reads it now has ended, as pg_dump")
    if state and not isinstance(error, psycopg.OperationalError):
        return ConfigError(f"{name} cannot be used: {why}", path=("url",))
    return TransientError(f"{name} cannot be reached: {why}; start the server, or see host and port in memory.url")


def reason(error: BaseException, password: str = "") -> str:
    """Return the text of an error in one line, without the password."""
    line = " ".join(str(error).split()) or type(error).__name__
    line = line.removeprefix("connection failed: ").partition(" Is the server running")[0]
    return (line.replace(password, "***") if password else line)[:300]
