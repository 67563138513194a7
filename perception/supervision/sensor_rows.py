"""Small durable rows of one sensor: like its cursor, they are changed when a cycle has taken the perceptions before
them."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from spar.errors import TooLargeError
from spar.ports.small_rows import changed
from spar.protocols import Rows
from spar.records.journal import RowChange

#: Bound of a row with its key.
MOST_BYTES = 1 << 16


class SensorRows:
    """Rows of a sensor. A change is held back until a cycle has taken the perceptions that were handed over before it.

    Implements `spar.protocols.SensorRows`. A change has the number of the next perception; `release` frees the changes
    up to a number, and `unsaved` returns them to the caller that writes them.

    Args: owner: the owner of the rows in the store; store: where they are stored, None: only in memory.
    """

    def __init__(self, owner: str, store: Rows | None) -> None:
        self._owner, self._store = owner, store
        self._lock = threading.Lock()
        self._held: deque[tuple[int, RowChange]] = deque()
        self._released: list[RowChange] = []
        self._passing: dict[str, Any] = {}  # the rows where there is no store
        self._began: int | None = None  # the number at which the current poll began
        self.next = 0  # the number of the next perception

    def keep(self, key: str, value: Any) -> None:
        """Write a row. It may be called from any thread.

        Raises: TooLargeError for a row of more than 64 KiB; TypeError, ValueError for a value that is not JSON-able.
        """
        if len(key) + len(json.dumps(value)) > MOST_BYTES:
            raise TooLargeError(
                f"row {key!r:.100} of {self._owner!r} is larger than {MOST_BYTES} bytes; keep less of it"
            )
        self._hold(RowChange(self._owner, key, value))

    def drop(self, key: str) -> None:
        """Delete a row. It may be called from any thread."""
        self._hold(RowChange(self._owner, key, is_dropped=True))

    async def list(self) -> Mapping[str, Any]:
        """Return all rows by key, with the changes that are not written yet. Raises: the errors of the store."""
        with self._lock:
            pending = [*self._released, *(change for _, change in self._held)]
        rows = self._passing if self._store is None else await self._store.rows(self._owner)
        return changed(dict(rows), pending)

    @property
    def has_news(self) -> bool:
        """Return whether a change waits to be released or written."""
        return bool(self._held or self._released)

    def begin_poll(self) -> None:
        """Note that the following changes belong to the perceptions that the poll will return."""
        self._began = self.next

    def end_poll(self) -> None:
        """Note that the perceptions of the poll have been handed over."""
        with self._lock:
            if (began := self._began) is not None:
                self._held = deque((self.next if at >= began else at, change) for at, change in self._held)
            self._began = None

    def release(self, reached: int) -> None:
        """Note that all perceptions before this number have been taken or shed."""
        with self._lock:
            if self._began is not None:
                reached = min(
                    reached, self._began - 1
                )  # later changes belong to perceptions that the poll has not returned yet
            while self._held and self._held[0][0] <= reached:
                self._released.append(self._held.popleft()[1])

    def unsaved(self) -> Sequence[RowChange]:
        """Return the changes to write now, in order, and forget them: the caller must write them."""
        with self._lock:
            changes = self._latest()
            self._released = []
        if self._store is None:
            changed(self._passing, changes)
            return ()
        return changes

    async def save(self) -> None:
        """Write the released changes. Raises: the errors of the store; the changes are then written later."""
        if (changes := self.unsaved()) and self._store is not None:
            try:
                await self._store.change(changes)
            except BaseException:
                with self._lock:
                    self._released = [*changes, *self._released]
                raise

    def _latest(self) -> Sequence[RowChange]:
        """Return the last change of each row: the row of a followed file changes with each of its lines, and is
        written once."""
        latest = {change.key: change for change in self._released}
        return tuple(latest.values())

    def _hold(self, change: RowChange) -> None:
        with self._lock:
            self._held.append((self.next, change))
