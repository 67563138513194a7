"""Dictionaries that forget: of bounded size, the entry that was set longest ago goes first.

A `SharedDict` takes that entry from the owner who has most, so that nobody's flood pushes out what another one has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """Dictionary of at most `most` entries, in the order in which they were last set; setting drops the oldest."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.most:
            self.popitem(last=False)


class SharedDict(Generic[K, V]):
    """Entries of several owners, at most `most` in all; one too many is taken from the owner who has most, the oldest
    one first. Every operation takes the same time, however many owners and entries there are."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._of: dict[str, OrderedDict[K, V]] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        self._largest = self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, owner: str, key: K) -> V | None:
        """Return a value; None where there is none."""
        own = self._of.get(owner)
        return None if own is None else own.get(key)

    def put(self, owner: str, key: K, value: V) -> V | None:
        """Set a value, as the newest of its owner; returns the one that had to go for it."""
        own = self._of.setdefault(owner, OrderedDict())
        before = len(own)
        own[key] = value
        own.move_to_end(key)
        self._sized(owner, before, len(own))
        if self._count <= self.most:
            return None
        greatest = next(iter(self._by_size[self._largest]))
        oldest = next(iter(self._of[greatest]))
        return self.pop(greatest, oldest)

    def pop(self, owner: str, key: K) -> V | None:
        """Take out a value; None where there is none."""
        own = self._of.get(owner)
        if own is None or key not in own:
            return None
        before = len(own)
        value = own.pop(key)
        self._sized(owner, before, before - 1)
        if not own:
            del self._of[owner]
        return value

    def use(self, owner: str, key: K) -> None:
        """Make an entry the newest of its owner, if there is one."""
        own = self._of.get(owner)
        if own is not None and key in own:
            own.move_to_end(key)

    def values(self) -> Iterator[V]:
        """Return the values, owner by owner, the oldest of each first."""
        for own in self._of.values():
            yield from own.values()

    def shed(self) -> list[V]:
        """Forget the older half of each owner; returns what that was."""
        gone: list[V] = []
        for owner, own in list(self._of.items()):
            for key in list(own)[: len(own) // 2]:
                gone.append(own[key])
                self.pop(owner, key)
        return gone

    def _sized(self, owner: str, before: int, now: int) -> None:
        """Note how many entries an owner has now: one more, one less, or as many as before."""
        if before == now:
            return
        self._count += now - before
        if before:
            same = self._by_size[before]
            del same[owner]
            if not same:
                del self._by_size[before]
        if now:
            self._by_size.setdefault(now, {})[owner] = None
        self._largest = now if now > self._largest or self._largest not in self._by_size else self._largest
