"""Repair of a damaged file at the start: sets it aside and puts the last good copy in its place.

The damaged file is never written to nor deleted: it stays under a new name, so that people can recover more from it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from memory.care import backup
from memory.care.lock import Lock
from memory.engine import hash_chain
from memory.engine.own_keys import Prepared
from memory.sqlite import database
from memory.sqlite.database import IN_MEMORY, explained
from memory.sqlite.disk_reserve import SUFFIX, DiskReserve
from spar.errors import ConfigError, DamagedError, SparError
from spar.types import Fault, replace

#: Treatment of a damaged file: the last copy is put in its place, or the start is refused.
OnDamage = Literal["restore", "refuse"]
_TRACES = (backup.SNAPSHOT, SUFFIX, ".hand")
_HEAD = 1 << 16  # first bytes of a file, which show whether it is a memory


def prepare(path: str, durability: str, lock: Lock, *, on_damage: OnDamage, ballast: DiskReserve) -> Prepared:
    """Take the lock and call `database.prepare`, after repairing the file if necessary.

    Raises: ConfigError, TransientError; the lock is then free and a file that cannot be used is left unchanged.
    """
    if path == IN_MEMORY:
        return database.prepare(path, durability)
    with explained(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        with explained(path):
            backup.finish(path)
        try:
            _refuse_emptied(path)
            return _prepare_with_room(path, durability, ballast)
        except DamagedError as error:
            if on_damage == "refuse" or not is_ours(path):
                raise
            fault = _replace(path, str(error))
            prepared = _prepare_with_room(path, durability, ballast)
            return replace(prepared, faults=(fault, *prepared.faults))
    except BaseException:
        lock.release()
        raise


def is_ours(path: str) -> bool:
    """Return whether a file that cannot be opened was once a memory, by its head or the files beside it."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return head[68:72] == b"spar" or b"CREATE TABLE experience" in head or _has_traces(path)


def _has_traces(path: str) -> bool:
    return any(Path(f"{path}{suffix}").exists() for suffix in _TRACES)


def _refuse_emptied(path: str) -> None:
    """Refuse an empty file with other files of a memory beside it; else it is a new one. Raises: DamagedError."""
    if Path(path).exists() and not Path(path).stat().st_size and _has_traces(path):
        raise DamagedError(f"{path!r} is empty, but was not; put a copy in its place, or delete it", path=("url",))


def _prepare_with_room(path: str, durability: str, ballast: DiskReserve) -> Prepared:
    try:
        return database.prepare(path, durability)
    except ConfigError as error:
        if not (error.__cause__ and ballast.is_full(error.__cause__) and ballast.give_up()):
            raise
    return database.prepare(path, durability)


def _replace(path: str, why: str) -> Fault:
    """Set the damaged file aside and put the last good copy in its place. Return a fault that says so."""
    copy, copied_at, last_fact = f"{path}{backup.SNAPSHOT}", 0.0, 0
    try:
        last_fact, copied_at = backup.examine(copy), Path(copy).stat().st_mtime
    except (SparError, OSError) as error:
        outcome = f"there is no copy that could be put in its place ({error}), so it begins anew"
        aside = backup.set_aside(path, "damaged")
    else:
        aside = backup.put_in_place(copy, path, "damaged")
        when = datetime.fromtimestamp(copied_at, UTC).isoformat(timespec="seconds")
        outcome = f"the copy of {when} was put in its place, what came after that is missing"
        if aside is not None and (newest := _newest_fact(aside)) is not None:
            outcome += f" ({max(0, newest - last_fact)} facts)"
    sentence = f"{path!r} was damaged and is set aside as {aside!r}; {outcome}; the damage: {why}"
    return Fault(
        "damaged", sentence, "memory", retryable=False, detail={"aside": aside, "copied_at": copied_at or None}
    )


def _newest_fact(path: str) -> int | None:
    import apsw

    with suppress(apsw.Error), database.reading(path) as connection:
        return hash_chain.newest(connection)
    return None
