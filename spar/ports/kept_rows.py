"""Kept rows: durable rows of one kind with a copy in memory, read from the copy, changed by compare-and-set in the
store. Approvals, grants, parked calls, access tokens and taught examples are such rows.

A row that another process has changed meanwhile is read again, and the change is decided again on the new row. If the
store does not answer in time, the change fails; the next reading shows whether the store has made it after all.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import msgspec

from spar.decoding import convert
from spar.errors import ConflictError, TransientError
from spar.protocols import Record, Records
from spar.records.journal import named

WITHIN: Final = 10.0  # seconds that a store may take for a row; one that takes longer cannot be relied on now
_TRIES = 100  # of a compare-and-set: each was lost to somebody whose change was kept


T = TypeVar("T")
R = TypeVar("R")


class InMemory:
    """`spar.protocols.Records` for those that have no store: gone with the process."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Record] = {}

    async def records(self, kind: str) -> Sequence[Record]:
        return sorted((row for (k, _), row in self._rows.items() if k == kind), key=lambda row: row.id)

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        row = self._rows.get((kind, id))
        version = row.version if row is not None else 0
        if expect is not None and expect != version:
            raise ConflictError(f"{kind} {id!r} has version {version}, expected {expect}")
        self._rows[kind, id] = Record(id, version + 1, value)
        return version + 1

    async def drop(self, kind: str, id: str) -> bool:
        return self._rows.pop((kind, id), None) is not None


class KeptRows(Generic[T]):
    """The rows of a kind that `is_ours`, by their ids; `values` holds them as they were last known.

    Args: on_unreadable: told of a row of another version of spar, which is left as it is, by its id with the error;
        key: returns the id of a row.
    """

    def __init__(self, kind: str, type: type[T], is_ours: Callable[[T], bool] = lambda row: True,
                 on_unreadable: Callable[[str, Exception], object] = lambda id, error: None,
                 key: Callable[[T], str] = attrgetter("id")) -> None:  # fmt: skip
        self._kind, self._type, self._is_ours, self._on_unreadable, self._key = kind, type, is_ours, on_unreadable, key
        self.store: Records = InMemory()
        self._versions: dict[str, int] = {}
        self.values: dict[str, T] = {}
        #: Told of a row that turns out to be another one in the store than was known.
        self.on_found: Callable[[T], object] = lambda row: None

    async def open(self, store: Records) -> None:
        """Read the rows. Raises: TransientError when the store cannot be read now."""
        self.store = store
        self.values, self._versions = {}, {}
        await self.refresh()

    async def add(self, row: T) -> None:
        """Store a new row. Raises: TransientError; ValueError when it is larger than the store takes."""
        id = self._key(row)
        self._versions[id] = await self._write(row, 0)
        self.values[id] = row

    async def change(self, id: str, to: Callable[[T], T]) -> T:
        """Replace a row by `to(row)`. `to` is called again if another process has changed the row meanwhile.

        Raises: what `to` raises; LookupError for a row that is gone; TransientError; ValueError.
        """
        for _ in range(_TRIES):
            version, row = self._versions.get(id), self.values.get(id)
            if row is None or version is None:
                raise LookupError(f"no {self._kind} {id!r}")
            new = to(row)
            try:
                now = await self._write(new, version)
            except ConflictError:
                if self._versions.get(id) == version:
                    await self.refresh()
                continue
            self.values[id], self._versions[id] = new, now
            return new
        raise TransientError(f"{self._kind} {id!r} is being changed by others all the time")

    async def drop(self, id: str) -> None:
        """Delete a row. Raises: TransientError."""
        await in_time(self.store.drop(self._kind, id))
        self.values.pop(id, None)
        self._versions.pop(id, None)

    def named(self, id: str) -> T:
        """Return the row with this id, or with the only id that begins so. Raises: LookupError."""
        row: T = named(self.values.values(), id, self._kind)
        return row

    def new_id(self, prefix: str) -> str:
        """Return a new id that nobody can guess and whose beginning people can type."""
        while (id := f"{prefix}{secrets.token_hex(6)}") in self.values:
            pass
        return id

    async def _write(self, row: T, expect: int) -> int:
        return await in_time(self.store.keep(self._kind, self._key(row), msgspec.to_builtins(row), expect=expect))

    async def refresh(self) -> None:
        """Read all rows of the store, except those that were changed here meanwhile. Raises: TransientError."""
        before = dict(self._versions)
        records: Iterable[Record] = await in_time(self.store.records(self._kind))
        there = set()
        for record in records:
            there.add(record.id)
            try:
                row = convert(record.value, self._type)
            except (msgspec.ValidationError, TypeError) as error:
                self._on_unreadable(record.id, error)
                continue
            if self._is_ours(row) and self._versions.get(record.id) == before.get(record.id):
                known = self.values.get(record.id)
                self.values[record.id], self._versions[record.id] = row, record.version
                if known is not None and known != row:
                    self.on_found(row)
        for id, version in before.items():
            if id not in there and self._versions.get(id) == version:
                del self.values[id], self._versions[id]


async def in_time(work: Awaitable[R]) -> R:
    """Return a store's answer. Raises: TransientError when it takes too long, and the errors of the store."""
    try:
        async with asyncio.timeout(WITHIN):
            return await work
    except TimeoutError as error:
        raise TransientError(f"the store did not answer within {WITHIN:g} s") from error
