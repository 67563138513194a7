"""Text of a TOML file: the line of each table, key and array element, and what is wrong with its syntax."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import count
from typing import Any

from spar.errors import KeyPath

BARE = re.compile(r"[A-Za-z0-9_-]+")
#: A multi-line string may have up to two quotes before its closing three.
_STRING = r"""(?>"{3}(?:\\.|[^\\])*?"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^\\"])*"|'[^']*')"""
_KEY = rf"[ \t]*(?:{_STRING}|{BARE.pattern})(?:[ \t]*\.[ \t]*(?:{_STRING}|{BARE.pattern}))*[ \t]*"
_HEADER = re.compile(rf"(\[\[?)({_KEY})\]+")
#: Before an equals sign nothing but a key stands.
_TOKEN = re.compile(
    rf"(?P<blank>(?:\s|#[^\n]*)+)|(?P<key>{_KEY})=|[\[\]{{}},]|{_STRING}|[^\[\]{{}},#\"'\n]+", re.DOTALL
)
_POSITION = re.compile(r" \(at line (\d+), column (\d+)\)$")
#: Beginnings of the messages of `tomllib` about a table or a key that stands twice.
_TWICE = ("Cannot declare", "Cannot overwrite", "Cannot mutate")


def locate(text: str, path: KeyPath) -> int | None:
    """Return the line (from 1) of a value, or of the nearest table around it; None if the text has neither."""
    lines = line_numbers(text)
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), None)


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
    lines: dict[KeyPath, int] = {}
    for path, line in _places(text.removeprefix("\ufeff")):
        lines.setdefault(path, line)
    return lines


def _places(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Yield the path and the line of each key and array element, in their order."""
    line, at, sizes = 1, 0, dict[KeyPath, int]()
    table: KeyPath = ()
    value: KeyPath = ()  # the path of the value that begins at the next token; () where none does
    around: list[tuple[KeyPath, Iterator[int] | None]] = []  # the open inline tables, and arrays with their indexes

    def named(path: KeyPath, key: str) -> Iterator[KeyPath]:
        names: Any = tomllib.loads(f"{key} = 0")
        while isinstance(names, dict):
            if path in sizes:  # above the last key, the name of an array of tables means its latest element
                path = (*path, sizes[path])
            ((name, names),) = names.items()
            path = (*path, name)
            yield path

    while match := _TOKEN.match(text, at):
        token = match[0]
        if match["key"]:
            for value in named(around[-1][0] if around else table, match["key"]):
                yield value, line
        elif token == "[" and not value:
            if not (match := _HEADER.match(text, at)):
                return
            for table in named((), match[2]):
                yield table, line
            if match[1] == "[[":
                sizes[table] = sizes.get(table, -1) + 1
                table = (*table, sizes[table])
                yield table, line
        elif token == "," and around:
            path, indexes = around[-1]
            value = () if indexes is None else (*path, next(indexes))
        elif token in ("]", "}") and around:
            around.pop()
            value = ()
        elif not match["blank"]:
            if value and isinstance(value[-1], int):
                yield value, line
            if token in ("[", "{"):
                around.append((value, count(1) if token == "[" else None))
            value = (*value, 0) if token == "[" else ()
        line += token.count("\n")
        at = match.end()


def syntax_error(text: str, message: str, dotted: Callable[[KeyPath], str]) -> str:
    """Return the place of an error in a text, and what is wrong there: `12:5: invalid value; …`.

    Args: message: the message of `tomllib`; dotted: writes a path as people do.
    """
    if match := _POSITION.search(message):
        message, line, column = message[: match.start()], int(match[1]), int(match[2])
    else:
        message, line, column = message.removesuffix(" (at end of document)"), len(text.splitlines()) or 1, 0
    if message.startswith(_TWICE):
        key, first = _written_twice("".join(text.splitlines(keepends=True)[:line]))
        message = f"{dotted(key)} stands in line {first} already; write it once"
    elif message == "Invalid value" and column:
        written = text.split("\n")[line - 1]
        message += _hint(written[: column - 1].rstrip(), written[column - 1 :].partition("#")[0].strip())
    return f"{line}{f':{column}' if column else ''}: {message[:1].lower()}{message[1:]}"


def _written_twice(text: str) -> tuple[KeyPath, int]:
    """Return the path, or the table above it, that the end of a text writes for the second time, and its first
    line."""
    lines: dict[KeyPath, int] = {}
    path: KeyPath = ()
    line = 0
    for path, line in _places(text.removeprefix("\ufeff")):
        lines.setdefault(path, line)
    while len(path) > 1 and lines[path] == line:
        path = path[:-1]
    return path, lines[path]


def _hint(before: str, value: str) -> str:
    """Return what to write instead of a value that cannot be read; "" if that is not known."""
    lead = f"{before} "
    if not before.endswith("=") or "{" in before:  # one of several values in a line
        lead, value = "", min((value.partition(end)[0].strip() for end in ",]}"), key=len)
    elif not value:
        return f"; nothing stands behind the equals sign, write for example: {lead}1"
    if value in ("True", "False"):
        return f"; write it small: {lead}{value.lower()}"
    if value in ("None", "null", "nil"):
        return "; TOML knows no such value: leave it out"
    return f"; text stands in quotes: {lead}{json.dumps(value, ensure_ascii=False)}" if value else ""
