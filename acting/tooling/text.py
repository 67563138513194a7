"""Schemas and texts of built-in tools: builds a schema, checks a text parameter. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def object_schema(
    name: str, description: str, parameters: Mapping[str, Mapping[str, Any]], *required: str
) -> dict[str, Any]:
    """Return a tool's JSON schema: its name as the constant of `_tool`, then its parameters."""
    return {
        "type": "object",
        "description": description,
        "properties": {"_tool": {"const": name}, **{key: dict(value) for key, value in parameters.items()}},
        "required": ["_tool", *required],
    }


def text_of(name: str, value: object, *, limit: int, empty: bool = False) -> str:
    """Return the value of parameter `name` if it is a text within the limit.

    Raises: ValueError when it is not a text, empty (unless `empty`), or longer than `limit` characters.
    """
    if not isinstance(value, str):
        raise ValueError(f"{name!r} must be text, found {type(value).__name__}")
    if not value and not empty:
        raise ValueError(f"{name!r} must not be empty")
    if len(value) > limit:
        raise ValueError(f"{name!r} must have at most {limit} characters, found {len(value)}")
    return value
