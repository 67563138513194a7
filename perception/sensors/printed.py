"""The output of a program as lines, as JSON values or as one text, within bounds. Pure.

What is left out is counted and said, bytes that are not UTF-8 stand as `\\xNN`, a line that is no JSON is a text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, field

from spar.data.json_safe import is_bounded

Form = Literal["lines", "json", "whole"]

#: Characters of what JSON says of subject, key and severity.
_LONGEST_NAME: Final = 500


class Item(Struct, frozen=True):
    """One thing that a program said: what it is, what is known of it, and a digest that equal things share."""

    content: Any
    digest: str
    key: str | None = None
    subject: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


def items_of(output: bytes, form: Form, *, longest: int, most: int) -> tuple[list[Item], int]:
    """Return the things that an output says, and how many more lines there are than `most`.

    Args: longest: characters of each. Empty lines say nothing.
    """
    if form == "whole":
        return ([_text(output, longest)] if output.strip() else []), 0
    lines = [line for line in output.split(b"\n") if line.strip()]
    read = _value if form == "json" else _text
    return [read(line, longest) for line in lines[:most]], max(len(lines) - most, 0)


def digest_of(raw: bytes) -> str:
    """Return what tells one output from another."""
    return hashlib.blake2b(raw, digest_size=12).hexdigest()


def last_line(stream: bytes) -> str:
    """Return the last line that says something, with what is not UTF-8 as `\\xNN`; "" for none."""
    return next(_reversed_lines(stream[-4096:]), b"").decode("utf-8", "backslashreplace").strip()


def _reversed_lines(stream: bytes) -> Iterator[bytes]:
    return (line for line in reversed(stream.split(b"\n")) if line.strip())


def _text(raw: bytes, longest: int) -> Item:
    attributes: dict[str, Any] = {}
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text, attributes["binary"] = raw.decode("utf-8", "backslashreplace"), True
    text = text.rstrip()
    if left_out := max(len(text) - longest, 0):
        text, attributes["left_out"] = f"{text[:longest]} … {left_out} more characters left out", left_out
    return Item(text, digest_of(raw.rstrip()), attributes=attributes)


def _value(line: bytes, longest: int) -> Item:
    """Return what a line of JSON says; of an object `text subject key severity value` are read."""
    try:
        value = msgspec.json.decode(line)
        problem = "" if len(line) <= longest and is_bounded(value, longest) else "JSON that is too large or too deep"
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        problem = "no JSON"
    if problem:
        odd = _text(line, longest)
        return msgspec.structs.replace(odd, attributes={**odd.attributes, "problem": problem})
    found = value if isinstance(value, dict) else {"value": value}
    attributes: dict[str, Any] = {}
    number = found.get("value")
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        attributes["value"] = number
    if isinstance(severity := found.get("severity"), str):
        attributes["severity"] = severity[:_LONGEST_NAME]
    content = value
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        content, attributes["payload"] = value["text"], value
    return Item(content, digest_of(line.strip()), _name(found, "key"), _name(found, "subject"), attributes)


def _name(found: dict[str, Any], name: str) -> str | None:
    value = found.get(name)
    return value[:_LONGEST_NAME] if isinstance(value, str) and value else None
