"""Ports of stores: experiences, small values, rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from spar.records.journal import RowChange
from spar.types import CycleRecord, Experience


@runtime_checkable
class Rows(Protocol):
    """Small rows by owner and key; a store may offer them. State that grows is kept so, a row for each thing, because
    one value is bounded and is written whole with each change."""

    async def rows(self, owner: str) -> Mapping[str, Any]:
        """The values of all rows of an owner, by key."""
        ...

    async def change(self, changes: Iterable[RowChange]) -> None:
        """Accept these changes, all or none, in this order.

        Raises: TooLargeError for a value of more than a megabyte; ValueError for one that is not JSON-able.
        """
        ...


class ModuleRows(Protocol):
    """The small durable rows of a module, for what it must know again after a restart.

    A row that is kept for a cycle changes in the transaction that says what the cycle is going to do, or how it ended:
    a process that dies before that has not kept it. `keep` returns at once; values are JSON-able and small.
    """

    def keep(self, key: str, value: Any, *, cycle_id: str = "") -> None:
        """Write a row. Raises: TooLargeError for one of more than a megabyte; ValueError for what is not JSON-able."""
        ...

    def drop(self, key: str, *, cycle_id: str = "") -> None:
        """Delete a row; nothing happens if there is none."""
        ...

    async def list(self) -> Mapping[str, Any]:
        """All rows by key. Raises: what the store raises."""
        ...


class Store(Protocol):
    """Keeps experiences, the tape of cycles, and small state. Nothing here blocks the loop.

    `store` and `record` accept and return at once or wait while a bounded queue is full; `flush` returns when
    everything accepted so far is written. `load`/`save` keep JSON-able values by key.
    """

    async def store(self, experience: Experience) -> None: ...
    async def record(self, cycle: CycleRecord) -> None: ...
    async def recall(self, query: str, k: int = 5, **filters: Any) -> Sequence[Experience]: ...
    async def load(self, key: str) -> Any: ...
    async def save(self, key: str, value: Any) -> None: ...
    async def flush(self) -> None: ...


class Record(Struct, frozen=True):
    """A small durable row: `version` counts its changes from 1, `value` is JSON-able."""

    id: str
    version: int
    value: Any


@runtime_checkable
class Records(Protocol):
    """Small durable rows by kind and id, changed by compare-and-set; a store may offer them.

    What `keep` and `drop` have done is on disk, as far as the store's durability goes, when they return.
    """

    async def records(self, kind: str) -> Sequence[Record]:
        """All rows of a kind, by id."""
        ...

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        """Write a row and return its new version; `expect` is the version it must have now (0: it must not exist).

        Raises: ConflictError when it has another one.
        """
        ...

    async def drop(self, kind: str, id: str) -> bool:
        """Delete a row; False if there was none."""
        ...
