"""Any value as JSON that every reader takes: copied, clean, and if asked for no longer than so much; pure.

Contexts hold what tools, sensors and other programs said. Before a model reads it, lone surrogates become U+FFFD, nan
and infinity null, unknown objects their text; nesting and number of values are bounded, so a value that holds itself
has an end. Nothing here raises, whatever the value is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from enum import Enum
from itertools import islice
from math import isfinite
from typing import Any, Final

from planning.references import DAGGER

MAX_DEPTH: Final = 128
MAX_VALUES: Final = 250_000  # in one message; the executor's results are far smaller
TOO_DEEP: Final = "… nested too deeply …"

# What ends a line for some reader or other, and would stand in JSON as it is.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029]")
_SEGMENT = re.compile(r"[^\s.|&†]+")
_NO_TEXT: Final[Any] = (object.__str__, object.__repr__)
_KIND = re.compile(r"[^\W\d][\w-]*")

Path = tuple[str, ...]


def clean(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be encoded; surrogates that are a pair become the sign."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return str.__str__(text)


def to_json(value: Any) -> str:
    """One line of JSON, whatever the texts in it hold. The value must be `plain`."""
    text = json.dumps(value, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plain(value: Any, most: int = MAX_VALUES) -> Any:
    """A JSON-able copy of at most `most` values, nested at most 128 levels."""
    return _attempt(lambda: _Copier(most).copy(value, 0), value)


def shown(value: Any, path: Path, limit: int) -> Any:
    """A plain value as it is shown in at most about `limit` characters: what is long keeps its head and its tail.

    Between them stands how much is left out and the reference that gives the whole, where `path` (the kind and what
    leads into it) and the keys below can be written as one; an empty `path` for what cannot be referred to.
    """
    # Each round keeps less of each part; most values pass the first.
    for text, items in ((limit, limit), (limit // 4, 200), (limit // 16, 50), (200, 10), (80, 4)):
        try:
            short = _Shortener(min(text, limit), min(items, limit), 2 * limit).shorten(value, path)
        except _TooManyError:
            continue
        if len(to_json(short)) <= limit:
            return short
    return f"… {type(value).__name__} larger than {limit} characters left out{_whole(path)} …"


def head_and_tail(text: str, longest: int, path: Path = ()) -> str:
    """The text, its middle left out if it is longer than that."""
    if len(text) <= longest:
        return text
    half = longest // 2
    # A cut between two halves of what is one sign cannot happen: str counts signs.
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out{_whole(path)} …\n{text[len(text) - half :]}"


def reference(path: Path) -> str:
    """The path as a call would write it, or "" if it cannot be written."""
    if not path or not _KIND.fullmatch(path[0]) or not all(map(_SEGMENT.fullmatch, path[1:])) or len(path) > 64:
        return ""
    return DAGGER + ".".join(path)


def _whole(path: Path) -> str:
    written = reference(path)
    return f"; whole at {written}" if written else ""


class _TooManyError(Exception):
    pass


class _Shortener:
    """One attempt within `room` characters: strings of at most `longest`, lists and objects of at most `widest`."""

    __slots__ = ("longest", "room", "widest")

    def __init__(self, longest: int, widest: int, room: int) -> None:
        self.longest, self.widest, self.room = longest, max(widest, 2), room

    def shorten(self, value: Any, path: Path) -> Any:
        self._spend(min(len(value), self.longest) + 2 if type(value) is str else 1)
        if type(value) is str:
            return head_and_tail(value, self.longest, path)
        if type(value) is dict:
            return self._object(value, path)
        return self._array(value, path) if type(value) is list else value

    def _object(self, value: dict[str, Any], path: Path) -> dict[str, Any]:
        head, tail = self._halves(len(value))
        names = [*islice(value, head), *islice(value, len(value) - tail, None)]
        kept: dict[str, Any] = {}
        for number, name in enumerate(names):
            if number == head:
                kept["…"] = f"{len(value) - len(names)} entries left out{_whole(path)}"
            self._spend(min(len(name), self.longest))
            kept[head_and_tail(name, self.longest)] = self.shorten(value[name], (*path, name) if path else ())
        return kept

    def _array(self, value: list[Any], path: Path) -> list[Any]:
        head, tail = self._halves(len(value))
        kept: list[Any] = []
        for at in (*range(head), *range(len(value) - tail, len(value))):
            if at == len(value) - tail:
                kept.append(f"… {len(value) - head - tail} items left out{_whole(path)} …")
            kept.append(self.shorten(value[at], (*path, str(at)) if path else ()))
        return kept

    def _spend(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise _TooManyError

    def _halves(self, length: int) -> tuple[int, int]:
        """How many entries stay at the beginning and at the end."""
        half = self.widest // 2
        return (length, 0) if length <= self.widest else (half, half)


class _Copier:
    """One copy of at most `room` values."""

    __slots__ = ("room",)

    def __init__(self, room: int) -> None:
        self.room = room

    def copy(self, value: Any, depth: int) -> Any:
        self.room -= 1
        if self.room < 0:
            raise _TooManyError
        kind = type(value)
        if kind is str:
            return clean(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            # Longer ones are refused by Python itself when they are written.
            return value if value.bit_length() < 10_000 else f"… an integer of {value.bit_length()} bits …"
        if kind is float:
            return value if isfinite(value) else None
        if depth > MAX_DEPTH:
            return TOO_DEEP
        if kind is dict:
            return {
                clean(key) if type(key) is str else str(self.copy(key, depth + 1)): self.copy(item, depth + 1)
                for key, item in value.items()
            }
        if kind is list or kind is tuple:
            return [self.copy(item, depth + 1) for item in value]
        for known, convert in _CONVERSIONS:
            if isinstance(value, known):
                return self.copy(convert(value), depth + 1)
        # The text of an object that has none of its own is its address, another one in each process.
        is_bare = (kind.__str__, kind.__repr__) == _NO_TEXT
        return f"… a {kind.__name__} …" if is_bare else clean(str(value))


# Subclasses of what JSON knows, and what is nearly that; of anything else its text.
_CONVERSIONS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Enum, lambda value: value.value),
    (bool, bool),
    (int, int),
    (float, float),
    (str, lambda value: str.__str__(value)),
    ((datetime, date, time), lambda value: value.isoformat()),
    (Mapping, dict),
    ((list, tuple), list),
    (AbstractSet, lambda value: sorted(value, key=repr)),
)


def _attempt(copy: Callable[[], Any], value: Any) -> Any:
    try:
        return copy()
    except _TooManyError:
        return f"… a {type(value).__name__} of too many values left out …"
    except Exception as error:  # an object that cannot even be looked at: its iterator or its text raises
        return f"… a {type(value).__name__} that cannot be read: {type(error).__name__} …"
