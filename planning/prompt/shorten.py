"""A value as a model is shown it: one line of JSON, what is long without its middle; pure.

What is shown was made `plain` before. Nothing here raises, whatever it says.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

from spar.data.media import medium_of
from spar.data.paths import BadReferenceError, Path, parse, render

# What ends a line for some reader or other, and would stand in JSON as it is.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029]")
_encode = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes an encoder for each call


def to_json(value: Any) -> str:
    """One line of JSON, whatever the texts in it hold."""
    text = _encode(value)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shown(value: Any, path: Path, limit: int) -> Any:
    """A value as it is shown in at most about `limit` characters: what is long keeps its head and its tail.

    Between them stands how much is left out and the reference that gives the whole, where `path` (the kind and what
    leads into it) and the keys below can be written as one; an empty `path` for what cannot be referred to.
    """
    # Each round keeps less of each part; most values pass the first.
    return _fitting(value, path, limit)[0]


def shown_json(value: Any, path: Path, limit: int) -> str:
    """Return `shown` as JSON: to see that it fits, it was written already."""
    return _fitting(value, path, limit)[1]


def _fitting(value: Any, path: Path, limit: int) -> tuple[Any, str]:
    for text, items in ((limit, limit), (limit // 4, 200), (limit // 16, 50), (200, 10), (80, 4)):
        try:
            short = _Shortener(min(text, limit), min(items, limit), 2 * limit).shorten(value, path)
        except _TooManyError:
            continue
        if len(written := to_json(short)) <= limit:
            return short, written
    left_out = f"… {type(value).__name__} larger than {limit} characters left out{_whole(path)} …"
    return left_out, to_json(left_out)


def head_and_tail(text: str, longest: int, path: Path = ()) -> str:
    """The text, its middle left out if it is longer than that."""
    if len(text) <= longest:
        return text
    half = longest // 2
    # A cut between two halves of what is one sign cannot happen: str counts signs.
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out{_whole(path)} …\n{text[len(text) - half :]}"


def reference(path: Path) -> str:
    """The path as a call would write it, or "" if it cannot be written."""
    written = render(path)
    try:
        return written if parse(written) == path else ""
    except BadReferenceError:
        return ""


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
        if (type(value) is str or type(value) is dict) and (medium := medium_of(value)) is not None:
            return f"{medium.name}{_whole(path)}"  # nobody reads base64
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
        """Return the numbers of entries that stay at the beginning and at the end."""
        half = self.widest // 2
        return (length, 0) if length <= self.widest else (half, half)
