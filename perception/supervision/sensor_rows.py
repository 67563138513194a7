"""Small durable rows of one sensor: like its cursor, they are changed when a cycle has taken the perceptions before
them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perception.supervision.unconfirmed import Unconfirmed
from spar.errors import TooLargeError
from spar.ports.small_rows import changed
from spar.protocols import Rows
from spar.records.journal import RowChange

#: Bound of a row with its key.
MOST_BYTES = 1 << 16


class SensorRows:
    """Rows of a sensor. Implements `spar.protocols.SensorRows`.

    Args: owner: the owner of the rows in the store; store: where they are stored, None: only in memory; unconfirmed:
        holds a change back until a cycle has taken the perceptions that were handed over before it.
    """

    def __init__(self, owner: str, store: Rows | None, unconfirmed: Unconfirmed) -> None:
        self._owner, self._store, self._unconfirmed = owner, store, unconfirmed
        self._passing: dict[str, Any] = {}  # the rows where there is no store

    def keep(self, key: str, value: Any) -> None:
        """Write a row. It may be called from any thread.

        Raises: TooLargeError for a row of more than 64 KiB; TypeError, ValueError for a value that is not JSON-able.
        """
        if len(key) + len(json.dumps(value)) > MOST_BYTES:
            raise TooLargeError(
                f"row {key!r:.100} of {self._owner!r} is larger than {MOST_BYTES} bytes; keep less of it"
            )
        self._unconfirmed.hold(RowChange(self._owner, key, value))

    def drop(self, key: str) -> None:
        """Delete a row. It may be called from any thread."""
        self._unconfirmed.hold(RowChange(self._owner, key, is_dropped=True))

    async def list(self) -> Mapping[str, Any]:
        """Return all rows by key, with the changes that are not written yet. Raises: the errors of the store."""
        pending = self._unconfirmed.pending(self._owner)
        rows = self._passing if self._store is None else await self._store.rows(self._owner)
        return changed(dict(rows), pending)

    def unsaved(self) -> Sequence[RowChange]:
        """Return the changes to write now, in order, and forget them: the caller must write them. Without a store they
        are made in memory."""
        changes = self._unconfirmed.take(self._owner)
        if self._store is not None:
            return changes
        changed(self._passing, changes)
        return ()

    async def write(self, changes: Sequence[RowChange]) -> None:
        """Write changes that `unsaved` has returned. Raises: the errors of the store."""
        assert self._store is not None
        await self._store.change(changes)
