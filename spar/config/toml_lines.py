"""Lines of a TOML text: the line of each table, key and array element."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from spar.errors import KeyPath

BARE = re.compile(r"[A-Za-z0-9_-]+")
#: A multi-line string may have up to two quotes before its closing three.
_STRING = re.compile(r'"{3}(?:\\.|[^\\])*?"{3,5}|' r"'{3}.*?'{3,5}|" r'"(?:\\.|[^\\"])*"|' r"'[^']*'", re.DOTALL)
_SPACE, _EQUALS, _BLANK = re.compile(r"[ \t]*"), re.compile(r"=[ \t]*"), re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\n]*")
_BRACKETS = re.compile(r"[\[\]]{1,2}")


def locate(text: str, path: KeyPath) -> int | None:
    """Return the line (from 1) of a value, or of the nearest table around it; None if the text has neither."""
    lines = line_numbers(text)
    for length in range(len(path), 0, -1):
        if (line := lines.get(path[:length])) is not None:
            return line
    return None


def rename_key(text: str, path: KeyPath, name: str) -> str:
    """Return a TOML text in which the key at a path has another name; all else stays as it is written.

    Raises: ValueError with the reason: the new name is set beside it, or the key is written in a way that is not known.
    """
    old = tomllib.loads(text)
    table: Any = old
    for key in path[:-1]:
        table = table[key]
    if name in table:
        raise ValueError(f"{name} is set beside it; delete one of them")
    lines = text.split("\n")
    place = line_numbers(text)[path] - 1
    pattern = re.compile(rf"(?<![\w-])([\"']?){re.escape(str(path[-1]))}\1(?=\s*[.=])")
    lines[place] = pattern.sub(name, lines[place], count=1)
    renamed = "\n".join(lines)
    table[name] = table.pop(path[-1])
    if tomllib.loads(renamed) != old:
        raise ValueError(f"it is written in a way that cannot be changed here; rename it to {name} by hand")
    return renamed


@lru_cache(maxsize=2)
def line_numbers(text: str) -> Mapping[KeyPath, int]:
    """Return the line of every table, key and array element of a TOML text that `tomllib` accepts."""
    return _Walk(text.removeprefix("\ufeff")).lines


def written_twice(text: str) -> tuple[KeyPath, int]:
    """Return the path, or the table above it, that the end of a TOML text writes for the second time, and its
    first line."""
    walk = _Walk(text.removeprefix("\ufeff"))
    path, line = walk.last
    while len(path) > 1 and walk.lines.get(path, line) == line:
        path = path[:-1]
    return path, walk.lines[path]


class _Walk:
    """Pass over a valid TOML text that records where each path begins."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self._sizes: dict[KeyPath, int] = {}
        self.lines: dict[KeyPath, int] = {}
        self.last: tuple[KeyPath, int] = (), 0  # the path that was read last, and its line
        table: KeyPath = ()
        while character := self._next():
            if character == "[":
                table = self._header()
            else:
                self._pair(table)

    def _take(self, pattern: re.Pattern[str]) -> str:
        """Return the text that matches here and move behind it; "" and no move without a match."""
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]

    def _next(self) -> str:
        """Move to the next significant character and return it; "" at the end of the text."""
        self._take(_BLANK)
        return self._text[self._at : self._at + 1]

    @property
    def _line(self) -> int:
        return bisect_left(self._breaks, self._at) + 1

    def _header(self) -> KeyPath:
        line, is_array = self._line, self._take(_BRACKETS) == "[["
        path = self._key(())
        self._take(_BRACKETS)
        if is_array:
            self._sizes[path] = self._sizes.get(path, 0) + 1
            path = (*path, self._sizes[path] - 1)
            self.lines[path] = line
        return path

    def _pair(self, table: KeyPath) -> None:
        path = self._key(table)
        self._take(_EQUALS)
        self._value(path)

    def _key(self, path: KeyPath) -> KeyPath:
        """Read a dotted key below a path, and return the path of what it names."""
        line = self._line
        while True:
            self._take(_SPACE)
            quoted = self._take(_STRING)
            path = (*path, str(tomllib.loads(f"k = {quoted}")["k"]) if quoted else self._take(BARE))
            self.lines.setdefault(path, line)
            self._take(_SPACE)
            if not self._text.startswith(".", self._at):
                self.last = path, line
                return path
            self._at += 1
            if path in self._sizes:  # above the last key, the name of an array of tables means its latest element
                path = (*path, self._sizes[path] - 1)

    def _value(self, path: KeyPath) -> None:
        first = self._text[self._at]
        if first not in "[{":
            self._take(_STRING) or self._take(_SCALAR)
            return
        self._at += 1
        index = 0
        while self._next() not in ("]", "}"):
            if first == "[":
                self.lines[(*path, index)] = self._line
                self._value((*path, index))
                index += 1
            else:
                self._pair(path)
            if self._next() == ",":
                self._at += 1
        self._at += 1
