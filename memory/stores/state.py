"""Small state of an open memory: values by key, small rows by owner, versioned records by kind.

Records are changed by compare-and-set: `keep_record` and `drop_record` run in the writer's thread, `all_records` in a
reader's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from zlib import crc32

from memory import audit, events, own_rows
from memory.codec import decode, encode, exactly, safe, sealed
from memory.engine.own_keys import OWN_KEYS, SAVE
from memory.engine.session import nothing
from memory.stores.open_memory import OpenMemory
from spar.errors import ConflictError
from spar.protocols import Record
from spar.records.audit import STATE
from spar.records.journal import RowChange

if TYPE_CHECKING:
    from memory.engine.connection import Connection


_KEEP = (
    "INSERT INTO record (kind, id, version, value) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (kind, id) DO UPDATE SET version = excluded.version, value = excluded.value"
)


def all_records(connection: Connection, kind: str) -> list[Record]:
    """Return the rows of a kind, ordered by id."""
    rows = connection.execute("SELECT id, version, value FROM record WHERE kind = ? ORDER BY id", (kind,))
    return [Record(str(id), int(str(version)), decode(str(value), object)) for id, version, value in rows]


def keep_record(connection: Connection, kind: str, id: str, text: str, expect: int | None, at: float) -> int:
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


def drop_record(connection: Connection, kind: str, id: str, at: float) -> bool:
    """Delete a row. Return whether there was one."""
    connection.execute("DELETE FROM record WHERE kind = ? AND id = ?", (kind, id))
    is_gone = connection.changes() > 0
    if is_gone:
        _note(connection, at, kind, id, {"version": 0})
    return is_gone


def _note(connection: Connection, at: float, kind: str, id: str, body: dict[str, int]) -> None:
    events.append(connection, [(at, "", id, f"record.{kind}", encode(body))])


class StateStore(OpenMemory):
    """Store of the small state of a memory."""

    async def save(self, key: str, value: Any) -> None:
        """Accept a small JSON-able value under a key; the next `load` returns it.

        Raises: TooLargeError for more than a megabyte; ValueError for a value that is not JSON-able.
        """
        name, text = _own(key), sealed(exactly(value, f"state {key!r:.100}"))

        def write(connection: Connection) -> None:
            connection.execute(SAVE, (name, text))

        self._file.demand_room()
        if (journal := self._journal) is not None:  # the journal's earlier rows must be written first
            journal.hand_over()
        probe = ("SELECT value FROM state WHERE key = ?", (name,))
        work = audit.audited(write, STATE + key.partition(":")[0], self._clock, probe)
        if work is write:
            await self._file.put(write, len(text))
        else:  # a person requested this: row and audit entry must be durable before the answer
            await self._file.commit(work, len(text))
        if journal is not None:
            journal.unsaved[name] = text

    async def load(self, key: str) -> Any:
        """Return the value that was last saved under a key; None if there is none."""
        name, file = _own(key), self._file
        if (journal := self._journal) is not None:
            journal.hand_over()
            if not file.pending:
                journal.unsaved.clear()
            if (unsaved := journal.unsaved.get(name)) is not None:
                return decode(unsaved, object)

        def read(connection: Connection) -> Any:
            text = connection.execute("SELECT value FROM state WHERE key = ?", (name,)).get
            return None if text is None else decode(str(text), object)

        return await file.read(read)

    async def rows(self, owner: str) -> dict[str, Any]:
        """Return the values of all small rows of an owner, by key; one that cannot be read is reported and left out."""
        if self._journal is not None:
            return await self._journal.views.rows(owner)
        missed: list[str] = []
        rows = await self._read(lambda connection: own_rows.all_of(connection, owner, missed))
        self._unreadable += len(missed)
        return rows

    async def change(self, changes: Iterable[RowChange]) -> None:
        """Accept changes of small rows, all or none; the next `rows` returns them.

        Raises: TooLargeError for a value of more than a megabyte; ValueError for a value that is not JSON-able.
        """
        self._file.demand_room()
        from spar.facts import RowsChanged  # which a look at the file does not need

        self.journal.append(RowsChanged(changes=tuple(changes)))

    async def records(self, kind: str) -> list[Record]:
        """Return all records of a kind, ordered by id."""
        return await self._read(lambda connection: all_records(connection, safe(kind)))

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        """Write a record. Return its new version when it is as safe as `durability` says.

        It is written in one transaction with the journal's earlier rows. Cancelling stops the waiting, not the writing.
        Args: expect: the version that the record must have now; 0: it must not exist; None: any.
        Raises: ConflictError when it has another version; ValueError when the value is not JSON-able or larger than a
            megabyte.
        """
        text, at = sealed(encode(value, exact=True)), self._clock.now().timestamp()
        self._file.demand_room()
        write_batch = self._journal.take_batch() if self._journal is not None else nothing

        def write(connection: Connection) -> int | ConflictError:
            try:
                return keep_record(connection, safe(kind), safe(id), text, expect, at)
            except ConflictError as error:  # returned and not raised, since the journal's rows must be committed
                return error
            finally:
                write_batch(connection)

        probe = "SELECT value FROM record WHERE kind = ? AND id = ?", (safe(kind), safe(id))
        outcome = await self._file.commit(audit.audited(write, kind, self._clock, probe), len(text))
        if isinstance(outcome, ConflictError):
            raise outcome
        return outcome

    async def drop(self, kind: str, id: str) -> bool:
        """Delete a record; as safe as `durability` says when this returns. Return whether there was one."""
        at = self._clock.now().timestamp()
        probe = "SELECT value FROM record WHERE kind = ? AND id = ?", (safe(kind), safe(id))

        def drop(connection: Connection) -> bool:
            return drop_record(connection, safe(kind), safe(id), at)

        return await self._file.commit(audit.audited(drop, kind, self._clock, probe))


def _own(key: str) -> str:
    """Return the key as text for a column. Raises: ValueError for a key that the memory itself uses."""
    if key in OWN_KEYS:
        raise ValueError(f"the key {key!r} is the memory's own; use another one")
    return safe(key)
