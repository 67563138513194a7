"""Bounds of values, and encodable text."""

from __future__ import annotations

from typing import Any, Final

from spar.checks import SCALARS
from spar.data.paths import MAX_DEPTH

#: Sizes up to which a value is small, so that it needs no bounding.
_FEW, SHORT = 16, 256  # entries of an object, characters of a key or bits of an integer


LARGE: Final = 1 << SHORT


def text(value: str) -> str:
    """Return the text with lone surrogates replaced, so that it can be encoded."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


def is_flat(value: dict[Any, Any]) -> bool:
    """Return whether this is a small object of small scalars, which is stored as it is."""
    return len(value) <= _FEW and all(map(_is_name, value)) and all(map(_is_short, value.values()))


def is_bounded(value: Any, cap: int) -> bool:
    """Return whether a value consists of JSON's own types, with at most `cap` values and few enough levels to
    encode."""
    level, count = [item for item in (value,) if type(item) not in SCALARS], 0
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            kind = type(container)
            if kind is dict:
                if not _TEXT.issuperset(map(type, container)):
                    return False
                container = container.values()
            elif kind is not list and kind is not tuple:
                return False
            count += 1 + len(container)  # each takes at least one character
            if count > cap:
                return False
            if not SCALARS.issuperset(map(type, container)):
                below += [item for item in container if type(item) not in SCALARS]
        if not below:
            return True
        level = below
    return False


_TEXT: Final = frozenset({str})


def _is_name(key: Any) -> bool:
    return type(key) is str and len(key) <= SHORT and key.isascii()


def _is_short(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return len(value) <= SHORT and value.isascii()
    return value is None or kind is bool or (kind is int and -LARGE < value < LARGE)
