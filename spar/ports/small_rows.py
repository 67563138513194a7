"""Small rows in any store, and those of one module: state that grows, with one row for each item."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any

from spar.protocols import Rows, Store
from spar.records.journal import RowChange


class OneValueRows:
    """Rows in a store without rows: all rows of an owner are one value. Implements `spar.protocols.Rows`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def rows(self, owner: str) -> Mapping[str, Any]:
        """Return the values of all rows of an owner, by key. Raises: what the store raises."""
        return dict(await self._store.load(owner) or {})

    async def change(self, changes: Iterable[RowChange]) -> None:
        """Write these changes. Raises: what the store raises."""
        for owner, of_owner in groupby(changes, attrgetter("owner")):
            await self._store.save(owner, changed(dict(await self.rows(owner)), of_owner))


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
        self._change(RowChange(self._owner, key, value), cycle_id)

    def drop(self, key: str, *, cycle_id: str = "") -> None:
        """Delete a row, in the transaction of the cycle."""
        self._change(RowChange(self._owner, key, is_dropped=True), cycle_id)

    async def list(self) -> Mapping[str, Any]:
        """Return all rows by key. Raises: what the store raises."""
        return await self._rows.rows(self._owner)

    def _change(self, change: RowChange, cycle_id: str) -> None:
        if (journal := self._journal()) is not None:
            journal.change((change,), cycle_id)
        else:
            self._later(self._rows.change((change,)))


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
