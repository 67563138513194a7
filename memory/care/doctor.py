"""Care of a memory's file from outside: the work of `spar memory backup`, `restore`, `verify` and `doctor`.

All functions block. They may be called while a service uses the file, except `restore`, which is then refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from memory.care import backup, lock, losses
from memory.care import integrity as verify
from memory.engine import hash_chain
from memory.sqlite import database, disk_reserve, schema
from memory.sqlite.database import IN_MEMORY
from spar.errors import ConfigError, SparError
from spar.fs.lock import holder as holder_of
from spar.ports.store import CareCopy, CareLine, CareReport

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Two connections could damage the log of an earlier one: sqlite.org/wal.html#walresetbug.
SAFE_SQLITE = (3, 51, 3)
_MIB = 1 << 20
_LITTLE, _TOO_LITTLE = 1 << 30, 64 * _MIB  # bytes of free disk
_LONG_LOG = 64 * _MIB
_OLD_COPY = 3 * 86_400.0
_AHEAD = 60.0  # seconds by which the newest fact may be in the future


class Doctor:
    """Care of the file at `path`, whose disk reserve has `ballast_size` bytes.

    All methods raise ConfigError for a memory without a file.
    """

    def __init__(self, path: str, ballast_size: int = disk_reserve.SIZE) -> None:
        self.path, self._ballast_size = path, ballast_size

    def back_up(self, target: str) -> CareCopy:
        """Copy the file as it is committed now, and check the whole copy. Raises: SparError, OSError."""
        return backup.back_up(self._file(), target)

    def restore(self, source: str) -> str | None:
        """Replace the file by a copy. Return the new name of the replaced file. Raises: SparError, OSError."""
        return backup.restore(source, self._file())

    def verify(self) -> CareReport:
        """Check every page and every row. Raises: ConfigError, TransientError."""
        return verify.verify(self._file())

    def acknowledge(self) -> int:
        """Mark all losses as acknowledged. Return the number of new ones. Raises: OSError."""
        return len(losses.acknowledge(self._file()))

    def examine(self) -> list[CareLine]:
        """Examine the file and the files beside it, quickly. Problems are lines, never errors."""
        path = self._file()
        lines = [_sqlite(), _holder(path), _disk(path), *_losses(path)]
        if not Path(path).exists():
            return [*lines, CareLine("memory", "ok", f"there is none at {path} yet; the first run makes it")]
        lines += [_sizes(path), _ballast(path, self._ballast_size), _copy(path), *_set_aside(path)]
        try:
            database.inspect(path)
            with database.explained(path), database.reading(path) as connection:
                lines += [_older(connection)] if schema.is_older(connection) else _inside(connection)
        except ConfigError as error:  # the file is of a newer version or another program, but not damaged
            lines.append(CareLine("memory", "bad", str(error), ""))
        except SparError as error:
            lines.append(CareLine("memory", "bad", str(error), "spar memory restore FILE"))
        return lines

    def _file(self) -> str:
        if self.path == IN_MEMORY:
            raise ConfigError("this memory is in no file (memory.url): there is nothing to look after")
        return self.path


def _older(connection: Connection) -> CareLine:
    state = f"the older format {schema.version(connection)}, as an earlier version left it"
    return CareLine("memory", "warn", state, "spar memory backup, then spar run: it brings it to the present one")


def _sqlite() -> CareLine:
    import apsw

    version, source = apsw.sqlite_lib_version(), apsw.sqlite3_sourceid()
    is_safe = tuple(int(part) for part in version.split(".")[:3]) >= SAFE_SQLITE
    label = f"{version} ({source[:10]}, {source.split(' ')[-1][:10]})"
    advice = "" if is_safe else f"install an apsw that brings {'.'.join(map(str, SAFE_SQLITE))} or later"
    return CareLine("sqlite", "ok" if is_safe else "bad", label, advice)


def _holder(path: str) -> CareLine:
    try:
        holder = holder_of(lock.lock_path(path))
    except OSError as error:
        return CareLine("memory lock", "warn", f"cannot be read: {error.strerror}", "ask as the user of the service")
    return CareLine("memory lock", "ok", "free" if holder is None else f"held by process {holder or 'unknown'}")


def _disk(path: str) -> CareLine:
    folder = Path(path).parent
    while not folder.exists():
        folder = folder.parent
    free = disk_reserve.free_bytes(f"{folder}/x")
    state: Literal["ok", "warn", "bad"] = "bad" if free < _TOO_LITTLE else "warn" if free < _LITTLE else "ok"
    return CareLine(
        "disk", state, f"{free // _MIB} MiB free", "" if state == "ok" else f"make room on the disk of {folder}"
    )


def _sizes(path: str) -> CareLine:
    size, log = database.sizes(path)
    label = f"{size // 1024} KiB, log {log // 1024} KiB"
    if log > _LONG_LOG:
        return CareLine("size", "warn", label, "a reader holds up the log: close what else reads the file")
    return CareLine("size", "ok", label)


def _ballast(path: str, size: int) -> CareLine:
    held = disk_reserve.DiskReserve(path, size).held
    if size and not held:
        return CareLine("ballast", "warn", "none", "it is made soon after the start, when there is room")
    return CareLine("ballast", "ok", f"{held // 1024} KiB")


def _copy(path: str) -> CareLine:
    copy = Path(f"{path}{backup.SNAPSHOT}")
    if not copy.exists():
        return CareLine("copy", "ok", "none yet; one is made an hour after the start, then every day")
    age = time.time() - copy.stat().st_mtime
    label = f"{age / 3600:.1f} hours old, {copy.stat().st_size // 1024} KiB"
    if age > _OLD_COPY and Path(path).stat().st_mtime > copy.stat().st_mtime + _OLD_COPY:
        return CareLine("copy", "warn", label, "see in the log why none was made, or: spar memory backup")
    return CareLine("copy", "ok", label)


def _losses(path: str) -> Iterator[CareLine]:
    for loss in losses.unseen(path):
        when = loss.at.isoformat(timespec="seconds")
        yield CareLine("loss", "bad", f"{when}: {loss.what}", "when you have seen to it: spar doctor --acknowledge")


def _set_aside(path: str) -> Iterator[CareLine]:
    damaged = sorted(Path(path).parent.glob(f"{Path(path).name}.damaged-*"))
    if names := [file.name for file in damaged if not file.name.endswith(("-wal", "-shm"))]:
        yield CareLine("set aside", "warn", ", ".join(names), "look at what is missing, then move them away")


def _inside(connection: Connection) -> Iterator[CareLine]:
    yield CareLine("format", "ok", str(schema.version(connection)))
    epoch = database.epoch_of(connection)
    yield CareLine("epoch", "ok" if epoch > 0 else "bad", str(epoch), "" if epoch > 0 else "spar memory verify")
    yield from lines_of_work(connection)


def lines_of_work(connection: Connection) -> Iterator[CareLine]:
    """Return lines about the newest facts, the clock, and the work that waits."""
    broken = hash_chain.check(connection, last=hash_chain.TAIL)
    newest = hash_chain.newest(connection)
    yield CareLine(
        "facts", "bad" if broken else "ok", str(broken or f"{newest} told"), "spar memory verify" if broken else ""
    )
    at = connection.execute("SELECT at FROM fact ORDER BY seq DESC LIMIT 1").get
    yield _clock(float(at) if isinstance(at, (int, float)) else None, time.time())
    for name, query, advice in (
        ("open cycles", "SELECT count(*) FROM open_cycle", ""),
        ("waiting", "SELECT count(*) FROM item WHERE state = 'waiting'", ""),
        ("in doubt", "SELECT count(*) FROM doubt WHERE answer IS NULL", "spar calls list, then: spar calls resolve"),
        ("transcripts", "SELECT count(*) FROM transcript", ""),
        ("dead letters", "SELECT count(*) FROM item WHERE state = 'dead'", "spar dead list"),
    ):
        count = int(str(connection.execute(query).get))
        yield CareLine(name, "warn" if count and advice else "ok", str(count), advice if count else "")


def _clock(newest: float | None, now: float) -> CareLine:
    if newest is not None and newest > now + _AHEAD:
        when = datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds")
        return CareLine(
            "clock", "bad", f"the last fact is of {when}, which is still to come", "set the clock of this machine"
        )
    return CareLine("clock", "ok", datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"))
