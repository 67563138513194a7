"""Statements of records: small durable rows by kind and id, with a version, changed by compare-and-set.

They run in the writer's thread (`keep`, `drop`) or a reader's thread (`all_of`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from memory import events
from memory.codec import decode, encode
from spar.errors import ConflictError
from spar.protocols import Record

if TYPE_CHECKING:
    from memory.engine.connection import Connection

_KEEP = (
    "INSERT INTO record (kind, id, version, value) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (kind, id) DO UPDATE SET version = excluded.version, value = excluded.value"
)


def all_of(connection: Connection, kind: str) -> list[Record]:
    """Return the rows of a kind, ordered by id."""
    rows = connection.execute("SELECT id, version, value FROM record WHERE kind = ? ORDER BY id", (kind,))
    return [Record(str(id), int(str(version)), decode(str(value), object)) for id, version, value in rows]


def keep(connection: Connection, kind: str, id: str, text: str, expect: int | None, at: float) -> int:
    """Write a row. Return its new version.

    Each change also adds a fact with the new version and its checksum, so that a row that was altered or removed from
    outside is noticed. Args: expect: the version that the row must have, 0 for no row, None for any.
    Raises: ConflictError when the row has another version.
    """
    stored = connection.execute("SELECT version FROM record WHERE kind = ? AND id = ?", (kind, id)).get
    version = int(str(stored)) if stored is not None else 0
    if expect is not None and expect != version:
        has = f"has version {version}" if version else "does not exist"
        raise ConflictError(f"{kind} {id!r} {has}, expected {f'version {expect}' if expect else 'that it does not'}")
    connection.execute(_KEEP, (kind, id, version + 1, text))
    _note(connection, at, kind, id, {"version": version + 1, "crc": crc32(text.encode())})
    return version + 1


def drop(connection: Connection, kind: str, id: str, at: float) -> bool:
    """Delete a row. Return whether there was one."""
    connection.execute("DELETE FROM record WHERE kind = ? AND id = ?", (kind, id))
    is_gone = connection.changes() > 0
    if is_gone:
        _note(connection, at, kind, id, {"version": 0})
    return is_gone


def _note(connection: Connection, at: float, kind: str, id: str, body: dict[str, int]) -> None:
    events.append(connection, [(at, "", id, f"record.{kind}", encode(body))])
