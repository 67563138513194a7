"""Connections that only read, beside the writer; each is used by one thread at a time.

A read is one short transaction, so it sees one state of the file and delays no checkpoint for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, TypeVar

from memory.codec.columns import AlteredError
from spar.errors import DamagedRowError, SparError, TransientError
from spar.threads import Threads

if TYPE_CHECKING:
    from apsw import Connection

R = TypeVar("R")


class Readers:
    """Read-only connections to one file, opened when needed; at most as many as `threads` runs at once."""

    def __init__(self, path: str, connect: Callable[[str], Connection], threads: Threads) -> None:
        self._path, self._connect, self._threads = path, connect, threads
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
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
        import apsw

        try:
            connection = self._take()
            try:
                connection.execute("BEGIN")
                return work(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")
                self._give_back(connection)
        except apsw.Error as error:
            if self._is_closed:
                raise SparError("the memory was closed while it was read") from None
            raise TransientError(f"cannot read {self._path!r}: {error}") from error
        except (UnicodeDecodeError, JSONDecodeError, AlteredError) as error:  # rows are ASCII JSON with a checksum
            raise DamagedRowError(
                f"a row of {self._path!r} is damaged ({error}); spar memory verify says which"
            ) from error

    def _take(self) -> Connection:
        with self._lock:
            if self._is_closed:
                raise SparError("the memory is closed")
            connection = self._idle.pop() if self._idle else self._connect(self._path)
            self._busy.add(connection)
            return connection

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()
