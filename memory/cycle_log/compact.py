"""Compact form of a record: fields that have their default are left out, and a part that is repeated stands once.

The record of a cycle of a model has a call in its action, its result, its lesson and its messages, and most fields of
each have their default. A repeated text or object is a reference to its first place, by its number among all texts and
objects, counted as they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import fields

#: Key of a reference to an earlier part.
SAME: Final = "$="
#: Characters of a text that is counted, and of the JSON of an object that is worth a reference.
_LONG: Final = 24
#: Makers of defaults that are the same each time.
_CONSTANT: Final = (list, dict, tuple, set, frozenset)


def without_defaults(value: Any) -> Any:
    """Return a value of structures as objects that lack the fields with their default."""
    if isinstance(value, Struct):
        plain = {}
        for name, default in _defaults(type(value)):
            item = getattr(value, name)
            if type(item) is not type(default) or item != default:
                plain[name] = without_defaults(item)
        return plain
    if isinstance(value, dict):
        return {key: without_defaults(item) for key, item in value.items()}
    return [without_defaults(item) for item in value] if isinstance(value, (list, tuple)) else value


@cache
def _defaults(kind: type[Struct]) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a structure with their defaults; one without a constant default has `NODEFAULT`."""
    rows = []
    for field in fields(kind):
        maker: Any = field.default_factory
        rows.append((field.name, maker() if maker in _CONSTANT else field.default))
    return tuple(rows)


def without_repetition(plain: Any) -> Any:
    """Return parsed JSON with references in the place of parts that stand earlier. Raises: ValueError for a value in
    which an object has the key of references."""
    return _Once(plain).of(plain)


class _Once:
    """Parts of one value, each with the number of its content, which equal parts share. Each is looked at twice, so
    that the work does not grow with the depth."""

    def __init__(self, plain: Any) -> None:
        self._contents: dict[Any, int] = {}
        self._objects: dict[int, tuple[int, int]] = {}  # content and about the characters, by the identity of an object
        self._places: dict[Any, int] = {}
        self._count = 0
        self._learn(plain)

    def _learn(self, value: Any) -> tuple[int, int]:
        """Return the number of a value's content, and about how many characters it has as JSON."""
        content: Any = type(value), repr(value) if isinstance(value, float) else value  # -0.0 is not 0.0
        if isinstance(value, dict):
            items = [(key, *self._learn(item)) for key, item in value.items()]
            content = dict, *[item[:2] for item in items]
            length = sum(len(key) + size + 4 for key, _, size in items)
        elif isinstance(value, list):
            learnt = [self._learn(item) for item in value]
            content, length = (list, *[number for number, _ in learnt]), sum(size + 1 for _, size in learnt)
        else:
            length = len(value) if isinstance(value, str) else 4
        number = self._contents.setdefault(content, len(self._contents))
        if isinstance(value, dict):
            self._objects[id(value)] = number, length
        return number, length

    def of(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) >= _LONG:
            return self._reference(value, len(value)) or value
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if not isinstance(value, dict):
            return value
        if SAME in value:
            raise ValueError(f"an object has the key {SAME!r}")
        return self._reference(*self._objects[id(value)]) or {key: self.of(item) for key, item in value.items()}

    def _reference(self, part: str | int, length: int) -> dict[str, int] | None:
        """Return a reference to an earlier part; None for a new or a short one, which is counted."""
        if length >= _LONG and part in self._places:
            return {SAME: self._places[part]}
        self._places[part] = self._count
        self._count += 1
        return None


def with_repetition(plain: Any) -> Any:
    """Return parsed JSON with its references replaced. Raises: IndexError for a reference to nothing."""
    parts = list[Any]()

    def of(value: Any) -> Any:
        if isinstance(value, str):
            if len(value) >= _LONG:
                parts.append(value)
            return value
        if isinstance(value, list):
            return [of(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        if value.keys() == {SAME}:
            return parts[value[SAME]]
        whole: dict[str, Any] = {}
        parts.append(whole)
        for key, item in value.items():
            whole[key] = of(item)
        return whole

    return of(plain)
