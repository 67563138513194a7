"""Schemas and texts of tools: writes a schema down, checks text, makes foreign text visible. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# C0 and C1 controls, line separators, and the marks that reorder what a reader sees; tab and newline are harmless.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def object_schema(
    name: str, description: str, parameters: Mapping[str, Mapping[str, Any]], *required: str
) -> dict[str, Any]:
    """A tool's JSON schema: its name as the constant of `_tool`, then its parameters."""
    return {
        "type": "object",
        "description": description,
        "properties": {"_tool": {"const": name}, **{key: dict(value) for key, value in parameters.items()}},
        "required": ["_tool", *required],
    }


def visible(text: str) -> str:
    """The text with each character written out (`\\x1b`) that would act on a terminal, a log or a reader's eye.

    What comes out holds no lone surrogate, so it can be written anywhere. Lines stay lines, for a model or a log reads
    it; what people approve is escaped whole (`spar.data.text.visible`).
    """
    return _HIDDEN.sub(lambda found: ascii(found.group())[1:-1], text.replace("\r\n", "\n"))


def text_of(name: str, value: object, *, limit: int, empty: bool = False) -> str:
    """The value as the text that parameter `name` must be.

    Raises: ValueError when it is no text, empty (unless `empty`), or longer than `limit` characters.
    """
    if not isinstance(value, str):
        raise ValueError(f"{name!r} must be text, found {type(value).__name__}")
    if not value and not empty:
        raise ValueError(f"{name!r} must not be empty")
    if len(value) > limit:
        raise ValueError(f"{name!r} must have at most {limit} characters, found {len(value)}")
    return value
