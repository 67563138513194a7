"""Where the file is and how it is opened: the only place that knows the driver's settings.

`locate` reads the URL; `open_writer` and `open_reader` give connections; errors of the driver become sentences
that name the file. One connection alone writes and checkpoints, readers cannot write at all and nothing is
mapped into memory: that is what keeps a WAL safe.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from memory import schema
from memory.lock import Lock
from spar.errors import ConfigError, TransientError

if TYPE_CHECKING:
    from apsw import Connection

Durability = Literal["power", "process", "off"]
#: What survives: a power cut, the death of the process, neither. In SQLite's words.
SYNCHRONOUS: dict[str, str] = {"power": "FULL", "process": "NORMAL", "off": "OFF"}
IN_MEMORY = ":memory:"
_BUSY_MS = 500  # the writer then counts it as a failure, tells, and tries again
_READER_BUSY_MS = 2_000


def locate(url: str, start: str | None) -> str:
    """The path that a URL names: `sqlite:///relative` (to `start`, else the working directory), `sqlite:////absolute`,
    `sqlite://:memory:`.

    Raises: ConfigError saying which forms there are.
    """
    if url == f"sqlite://{IN_MEMORY}":
        return IN_MEMORY
    head, found, name = url.partition("sqlite:///")
    if head or not found or not name.strip("/") or "\0" in url or name == IN_MEMORY or "?" in name:
        raise ConfigError(
            f"memory.url cannot be {url!r}; known: 'sqlite:///relative/path', 'sqlite:////absolute/path', 'sqlite://:memory:'",
            path=("url",),
        )
    # Two names of one file must lead to one lock.
    return os.path.realpath(Path(start or ".") / name)


def prepare(path: str, durability: str, lock: Lock) -> Connection:
    """The one writing connection, with the lock held, the file made, checked and brought to the present format.

    Raises: ConfigError, TransientError; the lock is then free and a file that cannot be used is left unchanged.
    """
    if path == IN_MEMORY:
        return _migrated(path, durability)
    with explained(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        with explained(path):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if Path(path).stat().st_size:
            inspect(path)
        return _migrated(path, durability)
    except BaseException:
        lock.release()
        raise


def _migrated(path: str, durability: str) -> Connection:
    with explained(path):
        connection = open_writer(path, durability)
        try:
            schema.migrate(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def inspect(path: str, *, read_only: bool = False) -> None:
    """Look whether a file can be used, without changing it. Raises: ConfigError, TransientError."""
    if not Path(path).exists():
        raise ConfigError(f"there is no memory at {path!r} yet; the first 'spar run' makes it", path=("url",))
    with explained(path):
        connection = open_reader(path)
        try:
            schema.check(connection, path, read_only=read_only)
        finally:
            connection.close()


def open_writer(path: str, durability: str) -> Connection:
    """A connection that writes; its checkpoints are its owner's affair. Raises: apsw.Error."""
    import apsw

    connection = apsw.Connection(path)
    try:
        connection.set_busy_timeout(_BUSY_MS)
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has effect in a new file only: it can shrink later
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
        _guard(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: str) -> Connection:
    """A connection that cannot write; others may write meanwhile. Raises: apsw.Error."""
    import apsw

    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(_READER_BUSY_MS)
        _guard(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _guard(connection: Connection) -> None:
    # A file may come from elsewhere: its schema must not run what we did not write, its pages are checked.
    connection.execute("PRAGMA mmap_size = 0; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON")


@contextmanager
def explained(path: str) -> Iterator[None]:
    """What goes wrong while opening becomes a ConfigError that names the file and says what to do."""
    import apsw

    try:
        yield
    except apsw.NotADBError:
        raise ConfigError(
            f"{path!r} is not a database; it is left unchanged: move it away, or let memory.url name another file",
            path=("url",),
        ) from None
    except apsw.CorruptError as error:
        raise ConfigError(
            f"{path!r} is damaged ({error}); it is left unchanged: put a copy in its place, or move it away",
            path=("url",),
        ) from None
    except (apsw.BusyError, apsw.LockedError) as error:
        raise TransientError(f"{path!r} is locked by another program ({error}); close that and try again") from None
    except (apsw.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        folder = str(Path(path).parent)
        raise ConfigError(
            f"{path!r} cannot be opened: {reason}; see that {folder!r} exists, can be written and has room",
            path=("url",),
        ) from error


def is_storage(error: BaseException) -> bool:
    """Whether the disk or the file is to blame, so that the same work may succeed later."""
    import apsw

    return isinstance(
        error,
        (
            apsw.BusyError,
            apsw.LockedError,
            apsw.FullError,
            apsw.IOError,
            apsw.NoMemError,
            apsw.ReadOnlyError,
            apsw.CantOpenError,
            apsw.ProtocolError,
            apsw.PermissionsError,
            apsw.CorruptError,
            apsw.NotADBError,
            apsw.InterruptError,
            MemoryError,
            OSError,
        ),
    )


def sizes(path: str) -> tuple[int, int]:
    """Bytes of the file and of its write-ahead log, 0 where there is none. Safe from any thread; never raises."""

    def size(name: str) -> int:
        try:
            return Path(name).stat().st_size
        except OSError:
            return 0

    return (0, 0) if path == IN_MEMORY else (size(path), size(f"{path}-wal"))
