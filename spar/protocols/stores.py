"""Ports of stores: experiences, small values, rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from spar.records.journal import RowChange
from spar.types import CycleRecord, Experience


@runtime_checkable
class Rows(Protocol):
    """Small rows by owner and key; a store may offer them.

    State that grows is stored so, with one row for each item, because a single value is bounded and each change writes
    it whole.
    """

    async def rows(self, owner: str) -> Mapping[str, Any]:
        """Return the values of all rows of an owner, by key."""

    async def change(self, changes: Iterable[RowChange]) -> None:
        """Accept these changes, all or none, in this order.

        Raises: TooLargeError for a value of more than a megabyte; ValueError for one that is not JSON-able.
        """


class ModuleRows(Protocol):
    """Small durable rows of a module, for what it must know again after a restart.

    A row that is written for a cycle changes in the transaction with the cycle's decision or its end; a process that
    dies before that has not written it. `keep` returns at once; values are JSON-able and small.
    """

    def keep(self, key: str, value: Any, *, cycle_id: str = "") -> None:
        """Write a row. Raises: TooLargeError for more than a megabyte; ValueError for a value that is not JSON-able."""

    def drop(self, key: str, *, cycle_id: str = "") -> None:
        """Delete a row; nothing happens if there is none."""

    async def list(self) -> Mapping[str, Any]:
        """Return all rows by key. Raises: what the store raises."""


class Store(Protocol):
    """Store of experiences, records of cycles, and small state. No method blocks the loop.

    `store` and `record` accept and return at once or wait while a bounded queue is full; `flush` returns when
    everything accepted so far is written. `load` and `save` read and write JSON-able values by key.
    """

    async def store(self, experience: Experience) -> None: ...
    async def record(self, cycle: CycleRecord) -> None: ...
    async def recall(self, query: str, k: int = 5, **filters: Any) -> Sequence[Experience]: ...
    async def load(self, key: str) -> Any: ...
    async def save(self, key: str, value: Any) -> None: ...
    async def flush(self) -> None: ...


class Record(Struct, frozen=True):
    """Small durable row: `version` counts its changes from 1, `value` is JSON-able."""

    id: str
    version: int
    value: Any


@runtime_checkable
class Records(Protocol):
    """Small durable rows by kind and id, changed by compare-and-set; a store may offer them.

    Changes by `keep` and `drop` are on disk when these return, as far as the store's durability goes.
    """

    async def records(self, kind: str) -> Sequence[Record]:
        """Return all rows of a kind, by id."""

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        """Write a row and return its new version; `expect` is the version it must have now (0: it must not exist).

        Raises: ConflictError when it has another one.
        """

    async def drop(self, kind: str, id: str) -> bool:
        """Delete a row; return False if there was none."""
