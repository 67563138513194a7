"""Small rows in any store, those of one module, and counts in them: state that grows, with one row for each item."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

from spar.clock import Clock, SystemClock, Timer
from spar.facts import RowsChanged
from spar.protocols import ModuleRows, Rows, Store
from spar.records.journal import RowChange

#: Seconds until counts are written.
WRITTEN_AFTER = 1.0


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

    @asynccontextmanager
    async def _turn(self, owner: str) -> AsyncIterator[None]:
        """Wait until the others that use the value of this owner are done."""
        turn = self._turns.setdefault(owner, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:  # the next lock may belong to another event loop
                self._turns.pop(owner, None)


class _Turn:
    """Lock of one value, and how many hold it or wait for it."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock, self.users = asyncio.Lock(), 0


#: Locks by store and owner, since several parts may use one store, such as a sensor and its replacement.
_TURNS: WeakKeyDictionary[Store, dict[str, _Turn]] = WeakKeyDictionary()


def _turns_of(store: Store) -> dict[str, _Turn]:
    try:
        return _TURNS.setdefault(store, {})
    except TypeError:  # a store of a class without weak references or without a hash
        return {}


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
            journal.append(RowsChanged(changes=(change,), cycle=cycle_id))
        else:
            self._later(self._rows.change((change,)))


class CountRows:
    """Counts of things by their names, those of earlier processes included, in the rows of a module.

    They are written a second after they have changed. What is new is added to the rows, since a module that this one
    replaces may still count.
    Args: quantities: the names of the counts of each thing.
    """

    def __init__(self, names: Iterable[str], quantities: Sequence[str]) -> None:
        self._quantities = quantities
        self._new: dict[str, Counter[str]] = {name: Counter() for name in names}
        self._last_at: dict[str, float] = {}  # in seconds since 1970
        self._stored: Mapping[str, Mapping[str, Any]] = {}
        self._rows: ModuleRows | None = None
        self._clock: Clock = SystemClock()
        self._timer: Timer | None = None
        self._writing: asyncio.Task[None] | None = None

    def attach(self, rows: ModuleRows | None, clock: Clock) -> None:
        """Keep them in these rows."""
        self._rows, self._clock = rows, clock

    def of(self, name: str) -> Counter[str]:
        """Return the new counts of a thing, which are about to change."""
        if self._timer is None and self._rows is not None:
            self._timer = self._clock.call_at(self._clock.monotonic() + WRITTEN_AFTER, self._write_later)
        return self._new[name]

    def happened(self, name: str, at: datetime) -> None:
        """Note when something last happened to a thing."""
        self._last_at[name] = at.timestamp()

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Return the counts of each thing, when it last happened, and since when it is counted (None: not known)."""
        rows = {name: self._merged(self._stored.get(name), name) for name in self._new}
        return {name: {**row, **{what: _time(row.get(what)) for what in ("last_at", "since")}}
                for name, row in rows.items()}  # fmt: skip

    async def write(self) -> None:
        """Write what is new, and read what others have written. Raises: what the memory raises."""
        if self._rows is None:
            return
        stored = {name: row for name, row in (await self._rows.list()).items() if isinstance(row, Mapping)}
        now, is_first = self._clock.now().timestamp(), not self._stored
        for name, counts in self._new.items():
            if counts or (is_first and name not in stored):
                stored[name] = {"since": now, **self._merged(stored.get(name), name)}
                self._rows.keep(name, stored[name])
                counts.clear()
        others = stored.keys() - self._new.keys()
        for name in others if is_first else ():  # later on they are of the module that replaces this one
            self._rows.drop(name)
        self._stored = stored

    async def close(self) -> None:
        """Write what is new, and nothing later. Raises: what the memory raises."""
        for later in (self._timer, self._writing):
            if later is not None:
                later.cancel()
        self._timer = self._writing = None
        await self.write()

    def _write_later(self) -> None:
        self._timer = None
        self._writing = asyncio.get_running_loop().create_task(self._written(), name="counts")

    async def _written(self) -> None:
        with suppress(Exception):  # it is tried again with the next count
            await self.write()

    def _merged(self, row: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
        """Return a row with the new counts of its rule."""
        before, new = row or {}, self._new[name]
        counts = {what: before.get(what, 0) + new[what] for what in self._quantities}
        return {**before, **counts, **({"last_at": self._last_at[name]} if name in self._last_at else {})}


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


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
