"""Output of a program as lines, as JSON values or as one text, within bounds; pure.

Omitted text is counted and mentioned, bytes that are not UTF-8 become `\\xNN`, and a line that is not JSON is a text.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, field

from spar.data.json_safe import is_bounded
from spar.data.text import bounded

Form = Literal["lines", "json", "whole"]

#: Bound of the characters of a subject, key or severity from JSON.
_LONGEST_NAME: Final = 500


class Item(Struct, frozen=True):
    """One item of an output: its content, its attributes, and a digest that equal items share."""

    content: Any
    digest: str
    key: str | None = None
    subject: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


def items_of(output: bytes, form: Form, *, longest: int, most: int) -> tuple[list[Item], int]:
    """Return the items of an output, and the number of further lines beyond `most`.

    Args: longest: characters of each item. Empty lines are left out.
    """
    if form == "whole":
        return ([_text(output, longest)] if output.strip() else []), 0
    lines = [line for line in output.split(b"\n") if line.strip()]
    read = _value if form == "json" else _text
    return [read(line, longest) for line in lines[:most]], max(len(lines) - most, 0)


def last_line(stream: bytes) -> str:
    """Return the last line that is not blank, with bytes that are not UTF-8 as `\\xNN`; "" for none."""
    line = next((line for line in reversed(stream[-4096:].split(b"\n")) if line.strip()), b"")
    return line.decode("utf-8", "backslashreplace").strip()


def _digest_of(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=12).hexdigest()


def _text(raw: bytes, longest: int) -> Item:
    attributes: dict[str, Any] = {}
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text, attributes["binary"] = raw.decode("utf-8", "backslashreplace"), True
    text, left_out = bounded(text.rstrip(), longest)
    attributes |= {"left_out": left_out} if left_out else {}
    return Item(text, _digest_of(raw.rstrip()), attributes=attributes)


def _value(line: bytes, longest: int) -> Item:
    """Return the item of a line of JSON; `text subject key severity value` of an object are read."""
    try:
        value = msgspec.json.decode(line)
        problem = "" if len(line) <= longest and is_bounded(value, longest) else "JSON that is too large or too deep"
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        problem = "no JSON"
    if problem:
        text_item = _text(line, longest)
        return msgspec.structs.replace(text_item, attributes={**text_item.attributes, "problem": problem})
    table = value if isinstance(value, dict) else {"value": value}
    attributes: dict[str, Any] = {}
    number = table.get("value")
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        attributes["value"] = number
    if isinstance(severity := table.get("severity"), str):
        attributes["severity"] = severity[:_LONGEST_NAME]
    content = value
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        content, attributes["payload"] = value["text"], value
    return Item(content, _digest_of(line.strip()), _name(table, "key"), _name(table, "subject"), attributes)


def _name(table: dict[str, Any], name: str) -> str | None:
    value = table.get(name)
    return value[:_LONGEST_NAME] if isinstance(value, str) and value else None
