"""What one sensor has handed over and no cycle has taken yet.

Pushed from any thread or returned by a poll, checked, signed with the sensor's name and kept in one bounded buffer,
together with the cursor that belongs to it. It decides nothing: `Keeper` opens and closes it, `Sense` empties it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from spar.errors import ContractError
from spar.protocols import SensorSpec
from spar.types import Perception, replace

NOTHING: Any = object()  # a cursor may be anything, None too


class Inlet:
    """The buffer of one sensor; `inlet(perception)` is what the sensor knows as `push`.

    A push into a full or closed one is refused and counted. `waiting` tells the sensor how much of its own nobody has
    sensed yet. A cursor is held back until everything handed over before it has been taken by a cycle.

    Args: limit: how many perceptions may wait; arrived: called after a push, from its thread; lied: called with
    whatever was pushed that is no perception, from its thread.
    """

    def __init__(
        self, spec: SensorSpec, limit: int, arrived: Callable[[], None], lied: Callable[[object], None]
    ) -> None:
        self._spec, self._limit, self._arrived, self._lied = spec, limit, arrived, lied
        self._items: deque[Perception] = deque()
        self._lock = threading.Lock()
        self._fresh: Any = NOTHING
        self._fresh_after = 0
        self.cursor: Any = None  # the latest, for opening the sensor again
        self.unsaved: Any = NOTHING  # the one whose perceptions a cycle has taken
        self.is_open = False
        self.handed_over = self.taken = self.refused = 0

    def __call__(self, perception: Perception) -> bool:
        if not isinstance(perception, Perception):
            self._lied(perception)
            return False
        with self._lock:
            if not self.is_open or len(self._items) >= self._limit:
                self.refused += 1
                return False
            self._items.append(self._signed(perception))
            self.handed_over += 1
        self._arrived()
        return True

    @property
    def waiting(self) -> int:
        return len(self._items)

    @property
    def has_news(self) -> bool:
        return bool(self._items) or self._fresh is not NOTHING

    def checkpoint(self, cursor: Any) -> None:
        """What the sensor knows as `checkpoint`."""
        with self._lock:
            self.cursor = self._fresh = cursor
            self._fresh_after = self.handed_over

    def accept(self, product: object) -> None:
        """Take what a poll returned; a cursor that the poll set comes after it.

        Raises: ContractError for what is no perception, OverflowError for what finds no room; the rest was taken.
        """
        items, wrong = _perceptions_of(product)
        with self._lock:
            room = max(self._limit - len(self._items), 0)
            self._items.extend(self._signed(item) for item in items[:room])
            self.handed_over += min(room, len(items))
            self._fresh_after = self.handed_over
            self.refused += max(len(items) - room, 0)
        name = self._spec.name
        if wrong:
            raise ContractError(f"sensor {name!r} must return a list of Perception from poll, found {wrong}")
        if len(items) > room:
            raise OverflowError(
                f"sensor {name!r} returned {len(items)} perceptions, room was for {room}; the rest is lost"
            )

    def take(self, at_most: int, *, is_polling: bool) -> list[Perception]:
        """The oldest that wait. While a poll runs, a cursor stays: its perceptions may not be here yet."""
        with self._lock:
            items = [self._items.popleft() for _ in range(min(at_most, len(self._items)))]
            self.taken += len(items)
            if self._fresh is not NOTHING and not is_polling and self._fresh_after <= self.taken:
                self.unsaved, self._fresh = self._fresh, NOTHING
        return items

    def _signed(self, perception: Perception) -> Perception:
        changes: dict[str, str] = {}
        if perception.source in ("", "manual"):
            changes["source"] = self._spec.name
        if perception.session == "main" and self._spec.session != "main":
            changes["session"] = self._spec.session
        return replace(perception, **changes) if changes else perception


def described(value: object) -> str:
    """A value for an error message: its type and the beginning of its repr."""
    try:
        shown = f"{value!r:.60}"
    except Exception:  # a broken __repr__ must not hide the lie
        shown = "?"
    return f"{type(value).__name__} ({shown})"


def _perceptions_of(product: object) -> tuple[list[Perception], str]:
    """What a poll returned as perceptions, and what of it is none, described."""
    if product is None:
        return [], ""
    if isinstance(product, Perception):
        return [product], ""
    if isinstance(product, (str, bytes, bytearray)) or not isinstance(product, Sequence):
        return [], described(product)
    items = [item for item in product if isinstance(item, Perception)]
    strange = [item for item in product if not isinstance(item, Perception)]
    return items, f"{described(strange[0])} in it" if strange else ""
