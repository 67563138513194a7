"""Small rows in any store, and those of a module: state that grows, a row for each thing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any

from spar.journal import RowChange
from spar.protocols import Rows, Store


class OneValueRows:
    """Rows in a store that keeps values only: all of an owner are one value. Implements `spar.protocols.Rows`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def rows(self, owner: str) -> Mapping[str, Any]:
        """The values of all rows of an owner, by key. Raises: what the store raises."""
        return dict(await self._store.load(owner) or {})

    async def change(self, changes: Iterable[RowChange]) -> None:
        """Write the rows with these changes. Raises: what the store raises."""
        for owner, of_owner in groupby(changes, attrgetter("owner")):
            await self._store.save(owner, changed(dict(await self.rows(owner)), of_owner))


def rows_of(store: Any) -> Rows | None:
    """Where a store keeps rows; None without one."""
    return store if store is None or isinstance(store, Rows) else OneValueRows(store)


def changed(rows: dict[str, Any], changes: Iterable[RowChange]) -> dict[str, Any]:
    """The rows after these changes, which are made in place."""
    for change in changes:
        if change.is_dropped:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.value
    return rows
