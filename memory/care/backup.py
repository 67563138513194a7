"""Copies of the file while it is in use, and the restoring of a copy.

A copy is the state of one moment: it is read in one transaction, in small steps that delay nobody, checked, flushed and
then renamed; an earlier copy is replaced in one step or not at all. `restore` never overwrites: it renames the present
file.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from memory.care.lock import Lock
from memory.engine import hash_chain
from memory.sqlite import database, schema, wal_watermark
from memory.sqlite.disk_reserve import free_bytes
from spar.errors import ConfigError, SparError
from spar.failpoints import crashpoint
from spar.ports.store import CareCopy
from spar.types import Fault

if TYPE_CHECKING:
    from apsw import Connection

#: Appended to the name of the database: the automatic copy.
SNAPSHOT = ".snapshot"
#: Appended to the name of the database: a copy that is being put in place, complete once it has this name.
RESTORING = ".restoring"
#: Seconds between two automatic copies, and before the first.
EVERY, FIRST = 86_400.0, 3_600.0
#: First format with facts.
WITH_FACTS = 3
_STEP = 256  # pages: a megabyte
_SPARE = 64 << 20  # bytes that a copy must leave free


def back_up(
    path: str, target: str, *, stopped: Callable[[], bool] = lambda: False, facts: int | None = None
) -> CareCopy:
    """Copy the database at `path`, which may be in use, to `target`.

    Args: stopped: called between steps, returns whether to stop; facts: number of the newest facts to check, None for
        all.
    Raises: SparError when the copy is not whole, or was stopped; ConfigError; apsw.Error, OSError.
    """
    database.inspect(path)  # also accepts an older format, which people copy before the migration
    target = os.path.realpath(target)
    if target.startswith(os.path.realpath(path)) and target != f"{path}{SNAPSHOT}":
        raise ConfigError(f"{target!r} is a file of the memory itself; give the copy another name")
    if Path(target).exists() and Path(target).stat().st_size:
        database.inspect(target)  # only an older copy may be replaced
    at, unfinished = time.time(), f"{target}.{os.getpid()}.tmp"
    try:
        with database.reading(path) as source:
            _copy(source, unfinished, stopped)
        last_fact = examine(unfinished, facts=facts)
        os.utime(unfinished, (at, at))  # the time of the state that the copy has
        flush(unfinished)
        Path(unfinished).replace(target)
    finally:
        with suppress(OSError):
            Path(unfinished).unlink()
    flush_folder(target)
    return CareCopy(target, Path(target).stat().st_size, at, last_fact)


def examine(path: str, *, facts: int | None = None) -> int:
    """Check that a copy is whole and can be used here. Return the number of its last fact.

    Raises: SparError saying what is wrong; ConfigError for a file that is no memory, or of a newer format.
    """
    database.inspect(path)
    with database.explained(path), database.reading(path) as connection:
        problems = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
        if problems != ["ok"]:
            raise SparError(f"{path!r} is damaged: {'; '.join(problems)[:300]}")
        if schema.version(connection) < WITH_FACTS:
            return 0
        if broken := hash_chain.check(connection, last=facts):
            raise SparError(f"{path!r} is damaged: {broken}")
        return hash_chain.newest(connection)


def restore(source: str, path: str, *, word: str = "replaced") -> str | None:
    """Put a copy in the place of the database at `path`. Return the name under which that was set aside, or None.

    Raises: ConfigError while a process uses the database, or when the copy cannot be used; SparError when it is
    damaged; OSError. The present file is then as it was.
    """
    examine(source)
    lock = Lock(path)
    with database.explained(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        return put_in_place(source, path, word)
    finally:
        lock.release()


def put_in_place(source: str, path: str, word: str) -> str | None:
    """Put an examined copy in place; the caller holds the lock. After a crash `finish` completes it."""
    unfinished = f"{path}{RESTORING}.tmp"
    if free_bytes(path) < (needed := Path(source).stat().st_size):
        raise ConfigError(f"there is no room beside {path!r} for a copy of {needed} bytes; make some")
    try:
        with database.reading(source) as connection:
            _copy(connection, unfinished, lambda: False)
        flush(unfinished)
        Path(unfinished).replace(f"{path}{RESTORING}")
    finally:
        with suppress(OSError):
            Path(unfinished).unlink()
    flush_folder(path)
    return finish(path, word)


def finish(path: str, word: str = "replaced") -> str | None:
    """Complete a `put_in_place` that has begun, so that no write-ahead log stays beside another file than its own.

    Return the name under which a file was set aside, None if there was none. Raises: OSError.
    """
    whole = Path(f"{path}{RESTORING}")
    if not whole.exists():
        return None
    aside = set_aside(path, word)
    whole.replace(path)
    flush_folder(path)
    return aside


def set_aside(path: str, word: str) -> str | None:
    """Rename a database and its log, never over another file. Return the new name, None if there is no such file.

    The old name is removed last: SQLite would take a log that is alone for that of the next file. The mark of the log's
    length is removed first, since it is about no other file. Raises: OSError.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = (f"{path}.{word}-{stamp}{f'-{number}' if number else ''}" for number in range(1_000))
    aside = next(name for name in names if not any(map(os.path.lexists, (name, f"{name}-wal"))))
    wal_watermark.remove(path)
    try:
        os.link(path, aside)  # both names, until its log has followed
    except FileNotFoundError:
        pass
    except OSError:  # a file system without links
        Path(path).rename(aside)
    with suppress(FileNotFoundError):
        Path(f"{path}-wal").rename(f"{aside}-wal")
    for name in (path, f"{path}-shm"):
        with suppress(FileNotFoundError):
            Path(name).unlink()
    flush_folder(path)
    return aside if Path(aside).exists() else None


class DailyBackup:
    """Automatic copy, made once a day in a thread of its own.

    `report` is called in that thread with a Fault when no copy can be made.
    """

    def __init__(self, path: str, *, every: float = EVERY) -> None:
        self._path, self._every = path, every
        self.report: Callable[[Fault], None] = lambda fault: None
        self._began = time.time()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.last_error: str | None = None

    def is_due(self, now: float) -> bool:
        """Return whether the file has changed, and the last copy is a day old, or without one this object an hour."""
        copied_at = _changed_at(f"{self._path}{SNAPSHOT}")
        changed = max(_changed_at(self._path), _changed_at(f"{self._path}-wal"))
        age, after = (now - copied_at, self._every) if copied_at else (now - self._began, FIRST)
        return changed > copied_at and not -after < age < after  # a clock may have been set back

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin_if_due(self) -> None:
        """Begin a copy in the background, unless one is under way or none is due."""
        if self._stop.is_set() or self.is_busy or not self.is_due(time.time()):
            return
        self._thread = threading.Thread(target=self._make, name="memory-copy", daemon=True)
        self._thread.start()

    def stop(self, within: float = 2.0) -> None:
        """Abandon the current copy."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(within)

    def _make(self) -> None:
        target = f"{self._path}{SNAPSHOT}"
        try:
            needed = sum(database.sizes(self._path)) + _SPARE
            if (free := free_bytes(self._path)) < needed:
                raise SparError(f"{free} bytes are free, {needed} are needed")
            back_up(self._path, target, stopped=self._stop.is_set, facts=1_000)
            self.last_error = None
        except Exception as error:
            if self._stop.is_set():
                return
            sentence = f"no copy of {self._path!r} could be made, the last one is kept: {error}"
            if sentence != self.last_error:
                self.last_error = sentence
                self.report(Fault("io", sentence, "memory", detail={"type": type(error).__name__}))


def _copy(source: Connection, target: str, stopped: Callable[[], bool]) -> None:
    import apsw

    with suppress(OSError):
        Path(target).unlink()
    connection = apsw.Connection(target)
    try:
        Path(target).chmod(0o600)
        connection.execute("PRAGMA synchronous = OFF")  # the complete copy is flushed once
        # In one transaction: else each change by the writer would restart the copy, under load for ever.
        source.execute("BEGIN")
        source.execute("SELECT 1 FROM sqlite_schema").fetchall()
        try:
            with connection.backup("main", source, "main") as steps:
                while not steps.done:
                    if stopped():
                        raise SparError("the copy was given up because the memory is being closed")
                    steps.step(_STEP)
                    crashpoint("backup.step")
        finally:
            source.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()  # so that the copy is one file
    finally:
        connection.close()


def flush(path: str) -> None:
    """Flush a file or a folder to the disk. Raises: OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def flush_folder(path: str) -> None:
    """Flush the folder of a file. Raises: OSError."""
    flush(str(Path(path).parent))


def _changed_at(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0
