"""Shortener of values for a model: one line of JSON, long parts without their middle; pure.

The values have to be plain JSON values. Nothing here raises.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any, Final

from spar.data.media import medium_of
from spar.data.paths import BadReferenceError, Path, parse, render

# Characters that end a line for some readers, and that JSON does not escape.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029]")
_encode = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes an encoder for each call


def to_json(value: Any) -> str:
    """Return a value as one line of JSON."""
    text = _encode(value)
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shown(value: Any, path: Path, limit: int) -> Any:
    """Return a value in at most about `limit` characters of JSON: long parts keep their head and their tail.

    Between these stands how much is left out, and the reference to the whole. `path` leads to the value (its kind, then
    keys); it is empty for a value that no reference can name.
    """
    # Each round keeps less of each part; most values fit in the first one.
    return _fitting(value, path, limit)[0]


def shown_json(value: Any, path: Path, limit: int) -> str:
    """Return the value of `shown` as JSON."""
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
    """Return a text; one that is longer than `longest` without its middle."""
    if len(text) <= longest:
        return text
    half = longest // 2
    # The cut cannot split a character: str counts whole code points.
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out{_whole(path)} …\n{text[len(text) - half :]}"


def reference(path: Path) -> str:
    """Return a path as a reference, or "" if it cannot be written as one."""
    written = render(path)
    try:
        return written if parse(written) == path else ""
    except BadReferenceError:
        return ""


def _whole(path: Path) -> str:
    written = reference(path)
    return f"; whole at {written}" if written else ""


#: Types of values that may be shortened.
_PARTED: Final = frozenset({str, dict, list})


class _TooManyError(Exception):
    pass


class _Shortener:
    """Attempt to shorten a value to `room` characters: texts to `longest` characters, lists and objects to `widest`
    entries."""

    __slots__ = ("longest", "room", "widest")

    def __init__(self, longest: int, widest: int, room: int) -> None:
        self.longest, self.widest, self.room = longest, max(widest, 2), room

    def shorten(self, value: Any, path: Path) -> Any:
        kind = type(value)
        may_be_medium = value[:5] == "data:" if kind is str else kind is dict and ("data" in value or "blob" in value)
        if may_be_medium and (medium := medium_of(value)) is not None:
            return f"{medium.name}{_whole(path)}"  # nobody reads base64
        if kind is dict:
            return self._object(value, path)
        if kind is list:
            return self._array(value, path)
        self._spend(min(len(value), self.longest) + 2 if kind is str else 1)
        return head_and_tail(value, self.longest, path) if kind is str else value

    def _object(self, value: dict[str, Any], path: Path) -> dict[str, Any]:
        head, tail = self._halves(len(value))
        names = [*islice(value, head), *islice(value, len(value) - tail, None)] if tail else value
        shortened: dict[str, Any] = {}
        longest, spent = self.longest, 1
        for number, name in enumerate(names):
            if number == head:
                shortened["…"] = f"{len(value) - len(names)} entries left out{_whole(path)}"
            item, key = value[name], name if len(name) <= longest else head_and_tail(name, longest)
            spent += min(len(name), longest)
            if type(item) is str and len(item) <= longest and item[:5] != "data:":  # the usual case
                spent += len(item) + 2
            elif type(item) in _PARTED:
                item = self.shorten(item, (*path, name) if path else ())
            else:
                spent += 1
            shortened[key] = item
        self._spend(spent)
        return shortened

    def _array(self, value: list[Any], path: Path) -> list[Any]:
        head, tail = self._halves(len(value))
        self._spend(1)
        shortened: list[Any] = []
        for at in (*range(head), *range(len(value) - tail, len(value))):
            if at == len(value) - tail:
                shortened.append(f"… {len(value) - head - tail} items left out{_whole(path)} …")
            shortened.append(self.shorten(value[at], (*path, str(at)) if path else ()))
        return shortened

    def _spend(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise _TooManyError

    def _halves(self, length: int) -> tuple[int, int]:
        """Return the numbers of entries that stay at the beginning and at the end."""
        half = self.widest // 2
        return (length, 0) if length <= self.widest else (half, half)
