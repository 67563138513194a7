"""Opening of the file: the only place that knows the driver's settings.

`locate` reads the URL; `prepare` makes the file ready for its one writer; `open_writer` and `open_reader` return
connections. Errors of the driver become sentences that name the file. Only one connection writes and moves the
write-ahead log into the file, readers cannot write, and nothing is mapped into memory: this keeps the log safe.

Each opening for writing increases the file's epoch by one. A process of an earlier epoch must not write any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from memory.engine.connection import closed_on_error
from memory.engine.own_keys import EPOCH, FENCE, FLUSHED, Prepared, next_epoch, prepared
from memory.sqlite import schema, seals, wal, wal_watermark
from spar.errors import ConfigError, DamagedError, TransientError

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.sqlite.connection import SqliteConnection

Durability = Literal["power", "process", "off"]
#: SQLite's setting by what committed rows survive: a power cut, the death of the process, neither.
SYNCHRONOUS: dict[str, str] = {"power": "FULL", "process": "NORMAL", "off": "OFF"}
IN_MEMORY = ":memory:"
_BUSY_MS = 500  # then the writer reports a failure and tries again
_READER_BUSY_MS = 2_000
_SMALL = 16 << 20  # most bytes of a file whose pages are all checked at its opening: some ten milliseconds


def locate(url: str, start: str | None) -> str:
    """Return the path that a URL names.

    The forms are `sqlite:///relative` (to `start`, else to the working directory), `sqlite:////absolute` and
    `sqlite://:memory:`. Raises: ConfigError for another form.
    """
    if url == f"sqlite://{IN_MEMORY}":
        return IN_MEMORY
    head, scheme, name = url.partition("sqlite:///")
    if head or not scheme or not name.strip("/") or "\0" in url or name == IN_MEMORY or "?" in name:
        raise ConfigError(
            f"memory.url cannot be {url!r}; known: 'sqlite:///relative/path', 'sqlite:////absolute/path', 'sqlite://:memory:'",
            path=("url",),
        )
    # Two names of one file must give one path, since the lock file is named after it.
    return os.path.realpath(Path(start or ".") / name)


def prepare(path: str, durability: str) -> Prepared:
    """Open the only writing connection to a file, which is created or checked and migrated to the present format.

    Raises: DamagedError, ConfigError, TransientError; a file that cannot be used is left unchanged.
    """
    claimed, salts, promise = 0, b"", None
    if path != IN_MEMORY:
        with explained(path):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            claimed, salts = wal.committed_frames(path), wal.salts(path)
        if Path(path).stat().st_size:
            promise = wal_watermark.read(path)
            _roll_back(path)
            inspect(path)
            _check_pages(path)
        else:  # a new file; a mark of an earlier one is not about it
            with explained(path):
                wal_watermark.remove(path)
    with explained(path), closed_on_error(open_writer(path, durability)) as connection:
        readable = wal.frames(connection)
        schema.migrate(connection)
        missing = promise.missing(number_of(connection, FLUSHED), claimed, salts) if promise is not None else 0
        damage = []
        if claimed > readable >= 0:
            damage.append(
                f"the write-ahead log of {path!r} can be read up to page {readable} of {claimed} only: the disk "
                "damaged it, or the power failed while it was written; what was written last is missing"
            )
        elif missing:
            damage.append(
                f"the write-ahead log of {path!r} lacks up to {missing} pages that were safe on the disk: it was cut "
                "off, or lost, or the file was replaced by an older one; what was written last is missing, the rest is "
                "gone on with, see: spar memory verify, spar memory restore"
            )
        return prepared(connection, repr(path), *_next_epoch(connection), damage)


def _roll_back(path: str) -> None:
    """Undo the first transaction of a file if it was cut off before there was a write-ahead log.

    A connection that only reads cannot do this.
    """
    import apsw

    if Path(f"{path}-journal").exists():
        with explained(path):
            connection = apsw.Connection(path)
            try:
                connection.execute("SELECT 1 FROM sqlite_schema").fetchall()
            finally:
                connection.close()


def _check_pages(path: str) -> None:
    if sum(sizes(path)) > _SMALL:
        return  # the pages of a large file are checked in the copy that is made once a day
    with explained(path), reading(path) as connection:
        problems = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    if problems != ["ok"]:
        raise _damaged_error(path, "; ".join(problems)[:300])


def _next_epoch(connection: SqliteConnection) -> tuple[int, int]:
    """Increase the epoch by one and reserve fences. Return the epoch, and the number above which its fences begin."""
    connection.execute("BEGIN IMMEDIATE")
    sealing = seals.Seals(connection)
    try:
        claimed = next_epoch(connection, max(0, epoch_of(connection)), number_of(connection, FENCE))
        sealing.write()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return claimed


def epoch_of(connection: Connection) -> int:
    """Return the number of openings for writing; -1 if it cannot be read."""
    return number_of(connection, EPOCH)


def number_of(connection: Connection, key: str) -> int:
    """Return the number under one of the memory's own keys; 0 if there is none, -1 if it cannot be read."""
    # As bytes: a damaged value may be no text.
    text = connection.execute(f"SELECT CAST(value AS BLOB) FROM state WHERE key = '{key}'").get
    if text is None:
        return 0
    return int(text) if isinstance(text, bytes) and text.isdigit() else -1


def inspect(path: str, *, read_only: bool = False) -> None:
    """Check that a file can be used, without changing it. Raises: ConfigError, TransientError."""
    if not Path(path).exists():
        raise ConfigError(f"there is no memory at {path!r} yet; the first 'spar run' makes it", path=("url",))
    with explained(path), reading(path) as connection:
        schema.check(connection, path, read_only=read_only)


def open_writer(path: str, durability: str) -> SqliteConnection:
    """Return a connection that writes. It makes no checkpoints by itself. Raises: apsw.Error."""
    import apsw

    from memory.sqlite.connection import SqliteConnection

    with closed_on_error(SqliteConnection(path)) as connection:
        connection.set_busy_timeout(_BUSY_MS)
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only for a new file, which can then shrink later
        mode = connection.execute("PRAGMA journal_mode = WAL").get
        if mode != "wal" and path != IN_MEMORY:  # the disk failed at that moment; SQLite raises no error
            raise apsw.IOError(f"the write-ahead log could not be begun, the mode stays {mode}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
        _guard(connection)
    return connection


def open_reader(path: str) -> SqliteConnection:
    """Return a connection that cannot write. Others may write meanwhile. Raises: apsw.Error."""
    import apsw

    from memory.sqlite.connection import SqliteConnection

    with closed_on_error(SqliteConnection(path, flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        connection.set_busy_timeout(_READER_BUSY_MS)
        _guard(connection)
    return connection


@contextmanager
def reading(path: str) -> Iterator[SqliteConnection]:
    """Open a connection that cannot write, and close it at the end. Raises: apsw.Error."""
    connection = open_reader(path)
    try:
        yield connection
    finally:
        connection.close()


def _guard(connection: Connection) -> None:
    # A file may come from elsewhere: its schema must not run foreign functions, and its pages are checked.
    connection.execute("PRAGMA mmap_size = 0; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON")


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn errors of the opening into errors that name the file and say what to do."""
    import apsw

    try:
        yield
    except apsw.NotADBError:
        raise DamagedError(
            f"{path!r} is not a database; it is left unchanged: move it away, or let memory.url name another file",
            path=("url",),
        ) from None
    except apsw.CorruptError as error:
        raise _damaged_error(path, str(error)) from None
    except (apsw.BusyError, apsw.LockedError) as error:
        raise TransientError(f"{path!r} is locked by another program ({error}); close that and try again") from None
    except (apsw.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        folder = str(Path(path).parent)
        raise ConfigError(
            f"{path!r} cannot be opened: {reason}; see that {folder!r} exists, can be written and has room",
            path=("url",),
        ) from error


def _damaged_error(path: str, why: str) -> DamagedError:
    return DamagedError(
        f"{path!r} is damaged ({why}); it is left unchanged: put a copy in its place (spar memory restore), or move it "
        "away",
        path=("url",),
    )


def sizes(path: str) -> tuple[int, int]:
    """Return the bytes of the file and of its write-ahead log; 0 for a missing one. Safe from any thread."""

    def size(name: str) -> int:
        try:
            return Path(name).stat().st_size
        except OSError:
            return 0

    return (0, 0) if path == IN_MEMORY else (size(path), size(f"{path}-wal"))
