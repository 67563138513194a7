"""Parsing of JSON that models write, the same for both ways in which they answer. Pure.

`parse_strict` refuses duplicate keys, NaN and numbers that are too large. It accepts raw line breaks inside
strings: models write them, and their meaning is clear. `Signs` finds the ends of strings in JSON that arrives in
pieces.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from math import isfinite
from typing import Any


def parse_strict(text: str) -> Any:
    """Return the value. Raises: ValueError with the problem, also for a duplicate key."""
    return _STRICT.decode(text)


def parse_lenient(text: str) -> Any:
    """Return the value; of a duplicate key the last one counts. Raises: ValueError for a text that is not JSON."""
    return _LENIENT.decode(text)


class Signs:
    """Finder of the syntax characters of JSON that arrives in pieces. It skips the content of strings."""

    __slots__ = ("_is_escaped", "is_inside")

    def __init__(self) -> None:
        self.is_inside = self._is_escaped = False

    def next(self, piece: str, at: int, outside: re.Pattern[str]) -> tuple[str, int]:
        """Return the next sign and the position after it: the end of a string, or a match of `outside`; "" for none."""
        if not self.is_inside:
            match = outside.search(piece, at)
            if match is None:
                return "", len(piece)
            self.is_inside = match[0] == '"'
            return match[0], match.end()
        if self._is_escaped and at < len(piece):
            self._is_escaped, at = False, at + 1
        inside = _INSIDE.match(piece, at)
        end = inside.end() if inside is not None else at
        self._is_escaped = piece[end : end + 1] == "\\"
        self.is_inside = piece[end : end + 1] != '"'
        return ("" if self.is_inside else '"'), min(end + 1, len(piece))


#: Any number of characters inside a string; a backslash and the next character belong together.
_INSIDE = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"the number {text[:50]} is too large")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        duplicate = next(name for name, times in counts.items() if times > 1)
        raise ValueError(f"the key {duplicate[:50]!r} is there twice")
    return members


_STRICT = json.JSONDecoder(strict=False, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
_LENIENT = json.JSONDecoder(strict=False)
