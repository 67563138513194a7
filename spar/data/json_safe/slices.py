"""Whole copies of large values in slices, between which a caller can let others have their turn.

A value is taken apart where it is too large for one slice: its items are divided in halves until each part is small
enough, or a single item whose own items are divided. The parts are copied as `whole` copies them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from spar.data.json_safe.copier import AGAIN, NotJsonError
from spar.data.json_safe.copies import CONTAINERS, MOST_QUICK, copied, measured
from spar.data.paths import MAX_DEPTH, ValueTooLargeError

#: Weight of a slice (see `weigh`): some two milliseconds.
SLICE: Final = 4_096

#: A copy in slices: it yields after each and returns the copy.
Copying = Generator[None, None, Any]


def weigh(value: Any, most: int) -> int:
    """Return how many values a value consists of, and 64 characters count as one; `most` if there are more."""
    count, parts = 0, [value]
    for part in parts:  # the list grows during the loop
        kind = type(part)
        if kind is str:
            count += len(part) >> 6
        elif kind is dict or kind is list or kind is tuple:
            count += len(part)
            if count < most:
                parts += part
                if kind is dict:
                    parts += part.values()
        if count >= most:
            return most
    return count


def is_large(value: Any) -> bool:
    """Return whether a value is an object or list of more than one slice."""
    return type(value) in CONTAINERS and weigh(value, SLICE) >= SLICE


def whole_in_slices(value: Any, limit: int, size: int = SLICE) -> Copying:
    """Return the copy that `whole` returns, and yield after each slice of about the weight `size`.

    Raises: as `whole`.
    """
    return _Slices(value, limit, size).copy(value, 0)


def copied_in_slices(value: Any, size: int = SLICE) -> Copying:
    """Return the copy that `copied` returns, and yield after each slice of about the weight `size`."""
    kind = type(value)
    if kind not in CONTAINERS or weigh(value, size) < size:
        return copied(value)
    copy: Any = {} if kind is dict else []
    for part in _parts(list(value.items() if kind is dict else value), size):
        if kind is dict:
            key, item = part[0]
            copy |= copied(dict(part)) if len(part) > 1 else {key: (yield from copied_in_slices(item, size))}
        else:
            copy += copied(part) if len(part) > 1 else [(yield from copied_in_slices(part[0], size))]
        yield
    return copy


class _Slices:
    """One copy, with the bytes that are left for it."""

    def __init__(self, value: Any, limit: int, size: int) -> None:
        self._value, self._limit, self._room, self._size = value, limit, limit, size
        self._met: set[int] = set()  # the ids of large containers; `value` holds them
        self._totals: dict[int, int] = {}  # how many values they consist of, once one was met again

    def copy(self, value: Any, depth: int) -> Copying:
        kind = type(value)
        if kind not in CONTAINERS or weigh(value, self._size) < self._size:
            return self._copied([value], depth - 1)[0]
        if depth > MAX_DEPTH:
            raise ValueTooLargeError("nested too deeply")
        if id(value) in self._met and not self._totals:
            yield from self._refuse_repetition()
        self._met.add(id(value))
        self._spend(2)
        if kind is not dict:
            copy: list[Any] = []
            for part in _parts(list(value), self._size):
                copy += self._copied(part, depth) if len(part) > 1 else [(yield from self.copy(part[0], depth + 1))]
                yield
            return copy
        named: dict[str, Any] = {}
        for part in _parts(list(value.items()), self._size):
            if len(part) > 1:
                some = self._copied(dict(part), depth)
            else:
                [(key, item)] = part
                some = dict.fromkeys(self._copied({key: None}, depth), (yield from self.copy(item, depth + 1)))
            if not named.keys().isdisjoint(some):
                raise NotJsonError("found an object with two keys of one text")
            named |= some
            yield
        return named

    def _refuse_repetition(self) -> Generator[None]:
        """Refuse a value that holds the same containers again and again, as `whole` does."""
        total, distinct = yield from self._count(self._value)
        if total > min(self._limit, MOST_QUICK) and total - distinct > AGAIN:
            raise ValueTooLargeError("the same containers again and again")

    def _count(self, value: Any) -> Generator[None, None, tuple[int, int]]:
        """Return how many values a large container consists of, and how many are not in containers met before."""
        if id(value) in self._totals:
            return self._totals[id(value)], 0
        self._totals[id(value)] = MOST_QUICK  # a container within itself has no end
        total = distinct = len(value)
        work = 0
        for item in value.values() if type(value) is dict else value:
            work += 1
            if type(item) in CONTAINERS:
                weight = weigh(item, self._size)
                counts = (yield from self._count(item)) if weight >= self._size else (weight, weight)
                total, distinct, work = total + counts[0], distinct + counts[1], work + weight
            if work >= self._size:
                work = 0
                yield
        self._totals[id(value)] = total
        return total, distinct

    def _copied(self, part: Any, depth: int) -> Any:
        """Return a copy of a part of a container that is `depth` levels deep in the value."""
        for _ in range(depth):
            part = [part]
        part, size = measured(part, self._limit)
        self._spend(size - 2 * depth)
        for _ in range(depth):
            (part,) = part
        return part

    def _spend(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise ValueTooLargeError(f"more than {self._limit} bytes as JSON")


def _parts(items: list[Any], size: int) -> Generator[list[Any]]:
    """Divide the items into runs of less than the weight `size`, or of one item."""
    if len(items) == 1 or weigh(items, size) < size:
        yield items
    else:
        middle = len(items) // 2
        yield from _parts(items[:middle], size)
        yield from _parts(items[middle:], size)
