"""Copies of the file while it is in use, and how one is put back.

A copy is what one moment saw: it is read in one transaction, in small steps that hold up nobody, checked, flushed and
only then given its name; a copy that was there before is replaced in one step or not at all. `restore` never
overwrites: the present file is set aside under a name of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from memory.care.lock import Lock
from memory.sqlite import database, hash_chain, schema, wal_watermark
from memory.sqlite.disk_reserve import free_bytes
from spar.errors import ConfigError, SparError
from spar.failpoints import crashpoint
from spar.types import Fault

if TYPE_CHECKING:
    from apsw import Connection

#: Appended to the name of the database: the copy that is made by itself.
SNAPSHOT = ".snapshot"
#: The file that is being put in place; it is whole once it has this name.
RESTORING = ".restoring"
#: Seconds between two copies that are made by themselves, and before the first.
EVERY, FIRST = 86_400.0, 3_600.0
#: The format from which on there are facts.
WITH_FACTS = 3
_STEP = 256  # pages: a megabyte
_SPARE = 64 << 20  # bytes that a copy must leave free


class BackupFile(Struct, frozen=True):
    """A copy: where, how large in bytes, when, and the number of its last fact."""

    path: str
    bytes: int
    at: float
    last_fact: int


def back_up(
    path: str, target: str, *, stopped: Callable[[], bool] = lambda: False, facts: int | None = None
) -> BackupFile:
    """Copy the database at `path`, which may be in use, to `target`.

    Args: stopped: asked between steps; facts: how many of the newest facts are checked, None for all.
    Raises: SparError when the copy is not whole, or it was stopped; ConfigError; apsw.Error, OSError.
    """
    database.inspect(path)  # one of an older format, too: it is copied before it is brought to the present one
    target = os.path.realpath(target)
    if target.startswith(os.path.realpath(path)) and target != f"{path}{SNAPSHOT}":
        raise ConfigError(f"{target!r} is a file of the memory itself; give the copy another name")
    if Path(target).exists() and Path(target).stat().st_size:
        database.inspect(target)  # what is replaced must be an older copy
    at, unfinished = time.time(), f"{target}.{os.getpid()}.tmp"
    try:
        with database.reading(path) as source:
            _copy(source, unfinished, stopped)
        last_fact = examine(unfinished, facts=facts)
        os.utime(unfinished, (at, at))  # it says what was so at that moment
        _flush(unfinished)
        Path(unfinished).replace(target)
    finally:
        with suppress(OSError):
            Path(unfinished).unlink()
    _flush_folder(target)
    return BackupFile(target, Path(target).stat().st_size, at, last_fact)


def examine(path: str, *, facts: int | None = None) -> int:
    """See that a copy is whole and can be used here; returns the number of its last fact.

    Raises: SparError saying what is wrong; ConfigError for a file that is no memory, or of a newer format.
    """
    database.inspect(path)
    with database.explained(path), database.reading(path) as connection:
        found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
        if found != ["ok"]:
            raise SparError(f"{path!r} is damaged: {'; '.join(found)[:300]}")
        if schema.version(connection) < WITH_FACTS:
            return 0
        if broken := hash_chain.check(connection, last=facts):
            raise SparError(f"{path!r} is damaged: {broken}")
        return hash_chain.newest(connection)


def restore(source: str, path: str, *, word: str = "replaced") -> str | None:
    """Put a copy in the place of the database at `path`; returns under which name the present one was set aside.

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
    """Put a copy that was examined in place, with the lock held. What a crash interrupts `finish` completes."""
    unfinished = f"{path}{RESTORING}.tmp"
    if free_bytes(path) < (needed := Path(source).stat().st_size):
        raise ConfigError(f"there is no room beside {path!r} for a copy of {needed} bytes; make some")
    try:
        with database.reading(source) as connection:
            _copy(connection, unfinished, lambda: False)
        _flush(unfinished)
        Path(unfinished).replace(f"{path}{RESTORING}")
    finally:
        with suppress(OSError):
            Path(unfinished).unlink()
    _flush_folder(path)
    return finish(path, word)


def finish(path: str, word: str = "replaced") -> str | None:
    """Complete what `put_in_place` began: a log must never meet a file that it does not belong to.

    Returns under which name a file was set aside, None when there was nothing to do. Raises: OSError.
    """
    whole = Path(f"{path}{RESTORING}")
    if not whole.exists():
        return None
    aside = set_aside(path, word)
    whole.replace(path)
    _flush_folder(path)
    return aside


def set_aside(path: str, word: str) -> str | None:
    """Rename a database and its log, never over another file; the new name, or None when there is no such file.

    The old name goes last: a log that stood there alone would be taken for that of the next file. The mark goes first:
    it promises nothing of any other file. Raises: OSError.
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
    _flush_folder(path)
    return aside if Path(aside).exists() else None


class DailyBackup:
    """The copy that is made by itself, once a day, by a thread of its own.

    `told` is called in that thread with a Fault when there is none to be had.
    """

    def __init__(self, path: str, *, every: float = EVERY) -> None:
        self._path, self._every = path, every
        self.report: Callable[[Fault], None] = lambda fault: None
        self._began = time.time()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.last_error: str | None = None

    def is_due(self, now: float) -> bool:
        """Return whether the last copy is a day old, or there is none yet and this an hour, and there is news since."""
        made = _changed_at(f"{self._path}{SNAPSHOT}")
        changed = max(_changed_at(self._path), _changed_at(f"{self._path}-wal"))
        age, after = (now - made, self._every) if made else (now - self._began, FIRST)
        return changed > made and not -after < age < after  # a clock may have been set back

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
        """Give up a copy that is under way."""
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
        connection.execute("PRAGMA synchronous = OFF")  # it is flushed once, when it is whole
        # In one transaction: else every change by the writer would begin the copy anew, under load for ever.
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
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, which can be carried away
    finally:
        connection.close()


def _flush(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _flush_folder(path: str) -> None:
    _flush(str(Path(path).parent))


def _changed_at(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0
