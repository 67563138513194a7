"""Rows in a store: small rows by key in any store, those of one module, and kept rows.

Kept rows are durable rows of one kind with a copy in memory, read from the copy, changed by compare-and-set in the
store. Approvals, grants, parked calls, access tokens and taught examples are such rows. A row that another process has
changed meanwhile is read again, and the change is decided again on the new row. If the store does not answer in time,
the change fails; the next reading shows whether the store has made it after all.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from spar.decoding import convert
from spar.errors import ConflictError, SparError, TransientError
from spar.facts import RowsChanged
from spar.protocols import Record, Records, Rows, Store
from spar.records.journal import RowChange, named

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


# -- small rows


class OneValueRows:
    """Rows in a store without rows: all rows of an owner are one value. Implements `spar.protocols.Rows`.

    A change reads that value and writes it again, so the changes of an owner are made one after the other, in their
    order, whichever parts make them.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._turns = store, _turns_of(store)

    async def rows(self, owner: str) -> Mapping[str, Any]:
        """Return the values of all rows of an owner, by key, after the changes that have begun. Raises: what the store
        raises."""
        async with self._turn(owner):
            return await self._load(owner)

    async def change(self, changes: Iterable[RowChange]) -> None:
        """Write these changes. Raises: what the store raises."""
        for owner, of_owner in groupby(changes, attrgetter("owner")):
            async with self._turn(owner):
                await self._store.save(owner, changed(await self._load(owner), of_owner))

    async def _load(self, owner: str) -> dict[str, Any]:
        return dict(await self._store.load(owner) or {})

    def _turn(self, owner: str) -> asyncio.Lock:
        """Return the lock of the value of this owner, as long as anybody holds it or waits for it."""
        return self._turns.setdefault(owner, asyncio.Lock())


#: Locks by store and owner, since several parts may use one store, such as a sensor and its replacement. Nobody keeps a
#: lock that is free: the next one may belong to another event loop.
_TURNS: WeakKeyDictionary[Store, WeakValueDictionary[str, asyncio.Lock]] = WeakKeyDictionary()


def _turns_of(store: Store) -> WeakValueDictionary[str, asyncio.Lock]:
    try:
        return _TURNS.setdefault(store, WeakValueDictionary())
    except TypeError:  # a store of a class without weak references or without a hash
        return WeakValueDictionary()


class OwnRows:
    """Rows of one module. Implements `spar.protocols.ModuleRows`.

    Args: owner: the name of the module; rows: the rows of the store; journal: returns the open journal, None if there
        is none; later: runs a write to a store without a journal.
    """

    def __init__(
        self,
        owner: str,
        rows: Rows,
        journal: Callable[[], Any],
        later: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._owner, self._rows, self._journal, self._later = owner, rows, journal, later

    def keep(self, key: str, value: Any, *, cycle_id: str = "") -> None:
        """Write a row, in the transaction of the cycle."""
        self._change((RowChange(self._owner, key, value),), cycle_id)

    def drop(self, key: str, *, cycle_id: str = "") -> None:
        """Delete a row, in the transaction of the cycle."""
        self._change((RowChange(self._owner, key, is_dropped=True),), cycle_id)

    def change(self, rows: Mapping[str, Any]) -> None:
        """Write these rows, all or none; None deletes one. Raises: as `keep`."""
        self._change(tuple(RowChange(self._owner, key, value, value is None) for key, value in rows.items()))

    async def list(self) -> Mapping[str, Any]:
        """Return all rows by key. Raises: what the store raises."""
        return await self._rows.rows(self._owner)

    async def safe(self) -> None:
        """Wait until all changes are on disk, as far as a journal can be written."""
        if (journal := self._journal()) is not None:
            with suppress(SparError):  # it is closing or cannot write now
                await journal.safe()

    def _change(self, changes: tuple[RowChange, ...], cycle_id: str = "") -> None:
        if (journal := self._journal()) is not None:
            journal.append(RowsChanged(changes=changes, cycle=cycle_id))
        else:
            self._later(self._rows.change(changes))


async def rows_in(store: Any, owner: str) -> Mapping[str, Any]:
    """Return the small rows of an owner in a store, by key; none without a store. Raises: what the store raises."""
    return {} if (rows := rows_of(store)) is None else await rows.rows(owner)


def rows_of(store: Any) -> Rows | None:
    """Return the rows of a store; None without a store."""
    return store if store is None or isinstance(store, Rows) else OneValueRows(store)


def changed(rows: dict[str, Any], changes: Iterable[RowChange]) -> dict[str, Any]:
    """Apply the changes to `rows` in place and return them."""
    for change in changes:
        if change.is_dropped:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.value
    return rows
