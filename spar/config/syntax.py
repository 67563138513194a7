"""Sentences about the syntax of a configuration file: where it is wrong, and what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from spar.config.toml_lines import written_twice
from spar.errors import KeyPath

_POSITION = re.compile(r" \(at line (\d+), column (\d+)\)$")
#: Beginnings of the messages of `tomllib` about a table or a key that stands twice.
_TWICE = ("Cannot declare", "Cannot overwrite", "Cannot mutate")


def sentence(text: str, message: str, dotted: Callable[[KeyPath], str]) -> str:
    """Return the place of an error in a text, and what is wrong there: `12:5: invalid value; …`.

    Args: message: the message of `tomllib`; dotted: writes a path as people do.
    """
    if match := _POSITION.search(message):
        message, line = message[: match.start()], int(match[1])
        place = f"{line}:{match[2]}"
    else:
        message, line = message.removesuffix(" (at end of document)"), len(text.splitlines()) or 1
        place = str(line)
    if message.startswith(_TWICE):
        key, first = written_twice("".join(text.splitlines(keepends=True)[:line]))
        message = f"{dotted(key)} stands in line {first} already; write it once"
    return f"{place}: {message[:1].lower()}{message[1:]}{_hint(text, place, message)}"


def _hint(text: str, place: str, message: str) -> str:
    """Return what to write instead of a value that cannot be read; "" if that is not known."""
    line, _, column = place.partition(":")
    if message != "Invalid value" or not column:
        return ""
    written = text.split("\n")[int(line) - 1]
    before, value = written[: int(column) - 1].rstrip(), written[int(column) - 1 :].partition("#")[0].strip()
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
