"""Connections that only read, beside the writer; each is used by one thread at a time.

A read is one short transaction, so it sees one state of the data and delays no checkpoint for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from json import JSONDecodeError
from typing import Any, Protocol, TypeVar

from memory.codec.columns import AlteredError
from memory.engine.connection import Connection
from memory.engine.writer import first_line
from spar.errors import DamagedRowError, SparError, TransientError
from spar.threads import Threads

R = TypeVar("R")


class ReadingConnection(Connection, Protocol):
    """Connection that only reads. Its transactions see one state of the data."""

    def begin(self) -> None:
        """Begin a transaction."""

    def end(self) -> None:
        """End the transaction. If that fails, the connection must be closed."""

    def interrupt(self) -> object:
        """End the present statement with an error. Safe from any thread."""


class Readers:
    """Read-only connections to one database, opened when needed; at most as many as `threads` runs at once.

    Args: path: the database as errors name it; connect: opens a connection; failure: errors of the database.
    """

    def __init__(
        self, path: str, connect: Callable[[], ReadingConnection], threads: Threads, failure: type[Exception]
    ) -> None:
        self._path, self._connect, self._threads, self._failure = path, connect, threads, failure
        self._lock = threading.Lock()
        self._idle: list[ReadingConnection] = []
        self._busy: set[ReadingConnection] = set()
        self._is_closed = False

    def read(self, work: Callable[[Connection], R]) -> Coroutine[Any, Any, R]:
        """Run `work` in a thread, within one transaction, and return its result.

        Raises: TransientError when the file cannot be read now; DamagedRowError; SparError after the closing; the
        errors of `work`.
        """
        return self._threads.run(self._run, work)

    def close(self) -> None:
        """Close the idle connections and interrupt the busy ones. Safe from any thread and more than once."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for connection in self._busy:
                connection.interrupt()
        for connection in idle:
            connection.close()

    def _run(self, work: Callable[[Connection], R]) -> R:
        try:
            connection = self._take()
            is_usable = False
            try:
                connection.begin()
                try:
                    return work(connection)
                finally:
                    connection.end()
                    is_usable = True
            finally:
                self._give_back(connection, is_usable=is_usable)
        except self._failure as error:
            if self._is_closed:
                raise SparError("the memory was closed while it was read") from None
            raise TransientError(f"cannot read {self._path!r}: {first_line(error)}") from error
        except (UnicodeDecodeError, JSONDecodeError, AlteredError) as error:  # rows are ASCII JSON with a checksum
            raise DamagedRowError(
                f"a row of {self._path!r} is damaged ({error}); spar memory verify says which"
            ) from error

    def _take(self) -> ReadingConnection:
        with self._lock:
            if self._is_closed:
                raise SparError("the memory is closed")
            connection = self._idle.pop() if self._idle else self._connect()
            self._busy.add(connection)
            return connection

    def _give_back(self, connection: ReadingConnection, *, is_usable: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if is_usable and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()
