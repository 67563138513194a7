"""Small rows in any store, and those of one module: state that grows, with one row for each item."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from spar.errors import SparError
from spar.facts import RowsChanged
from spar.protocols import Rows, Store
from spar.records.journal import RowChange


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
