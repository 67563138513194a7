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

from memory.codec.encoding import encode

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
    return _Once().of(plain)


class _Once:
    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._count = 0

    def of(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) >= _LONG:
            return self._reference(f'"{value}') or value
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if not isinstance(value, dict):
            return value
        if SAME in value:
            raise ValueError(f"an object has the key {SAME!r}")
        text = encode(value, limit=1 << 62)
        return self._reference(text) or {key: self.of(item) for key, item in value.items()}

    def _reference(self, text: str) -> dict[str, int] | None:
        """Return a reference to an earlier part; None for a new or a short one, which is counted."""
        if len(text) >= _LONG and text in self._numbers:
            return {SAME: self._numbers[text]}
        self._numbers[text] = self._count
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
