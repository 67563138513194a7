"""JSON of models, by one rule for both ways in which they answer: where its strings end, and what of it is taken.

It is taken strictly: no key twice, no NaN, no number too large. Raw line breaks inside strings are taken: models write
them, and what they mean is clear. Pure.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from math import isfinite
from typing import Any


def strict(text: str) -> Any:
    """Return the value. Raises: ValueError saying what is wrong, also for a key that stands there twice."""
    return _STRICT.decode(text)


def lenient(text: str) -> Any:
    """Return the value, of a key that stands there twice the last one. Raises: ValueError for what is no JSON."""
    return _LENIENT.decode(text)


class Signs:
    """Finds the signs of JSON that comes in pieces; what stands inside of strings is none."""

    __slots__ = ("_is_escaped", "is_inside")

    def __init__(self) -> None:
        self.is_inside = self._is_escaped = False

    def next(self, piece: str, at: int, outside: re.Pattern[str]) -> tuple[str, int]:
        """Return the next sign, the end of a string or one of `outside`, and where it ends; "" where there is none."""
        if not self.is_inside:
            found = outside.search(piece, at)
            if found is None:
                return "", len(piece)
            self.is_inside = found[0] == '"'
            return found[0], found.end()
        if self._is_escaped and at < len(piece):
            self._is_escaped, at = False, at + 1
        inside = _INSIDE.match(piece, at)
        end = inside.end() if inside is not None else at
        self._is_escaped = piece[end : end + 1] == "\\"
        self.is_inside = piece[end : end + 1] != '"'
        return ("" if self.is_inside else '"'), min(end + 1, len(piece))


#: Any number of signs of a string's inside; a backslash takes the next sign with it.
_INSIDE = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"the number {text[:50]} is too large")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, times in counts.items() if times > 1)
        raise ValueError(f"the key {twice[:50]!r} is there twice")
    return found


_STRICT = json.JSONDecoder(strict=False, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
_LENIENT = json.JSONDecoder(strict=False)
