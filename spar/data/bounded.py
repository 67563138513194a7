"""Dictionaries of bounded size, which drop the entry that was set longest ago.

A `SharedDict` drops an entry of the owner with the most entries, so that no owner can push out the entries of others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec import Struct, field

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """Dictionary of at most `most` entries, in the order in which they were last set; a new entry drops the oldest."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.most:
            self.popitem(last=False)


class SharedDict(Struct, Generic[K, V], eq=False):
    """Entries of several owners, at most `most` in all.

    One entry too many drops the oldest entry of the owner with the most. Every operation takes the same time, however
    many owners and entries there are.
    """

    most: int
    _of: dict[str, OrderedDict[K, V]] = field(default_factory=dict)
    _by_size: dict[int, dict[str, None]] = field(default_factory=dict)
    _largest: int = 0
    _count: int = 0

    def __len__(self) -> int:
        return self._count

    def get(self, owner: str, key: K) -> V | None:
        """Return a value; None if there is none."""
        entries = self._of.get(owner)
        return None if entries is None else entries.get(key)

    def put(self, owner: str, key: K, value: V) -> V | None:
        """Set a value as the newest of its owner; return the value that was dropped for it, or None."""
        entries = self._of.setdefault(owner, OrderedDict())
        before = len(entries)
        entries[key] = value
        entries.move_to_end(key)
        self._note_size(owner, before, len(entries))
        if self._count <= self.most:
            return None
        greatest = next(iter(self._by_size[self._largest]))
        oldest = next(iter(self._of[greatest]))
        return self.pop(greatest, oldest)

    def pop(self, owner: str, key: K) -> V | None:
        """Remove and return a value; None if there is none."""
        entries = self._of.get(owner)
        if entries is None or key not in entries:
            return None
        before = len(entries)
        value = entries.pop(key)
        self._note_size(owner, before, before - 1)
        if not entries:
            del self._of[owner]
        return value

    def use(self, owner: str, key: K) -> None:
        """Make an entry the newest of its owner, if it exists."""
        entries = self._of.get(owner)
        if entries is not None and key in entries:
            entries.move_to_end(key)

    def values(self) -> Iterator[V]:
        """Yield the values, owner by owner, the oldest of each owner first."""
        for entries in self._of.values():
            yield from entries.values()

    def shed(self) -> list[V]:
        """Remove the older half of each owner's entries and return their values."""
        removed: list[V] = []
        for owner, entries in list(self._of.items()):
            for key in list(entries)[: len(entries) // 2]:
                removed.append(entries[key])
                self.pop(owner, key)
        return removed

    def _note_size(self, owner: str, before: int, now: int) -> None:
        """Record the new number of an owner's entries, which differs from the old one by at most one."""
        if before == now:
            return
        self._count += now - before
        if before:
            owners = self._by_size[before]
            del owners[owner]
            if not owners:
                del self._by_size[before]
        if now:
            self._by_size.setdefault(now, {})[owner] = None
        self._largest = now if now > self._largest or self._largest not in self._by_size else self._largest
