"""What a very small model is held to: schemas that it cannot run away in, and the calls in what it says.

A model of 135 million parameters knows no tool calls and fails by strings that never end. So its tools become one
schema of an answer, `{"calls": [{"name", "arguments"}]}`, in which every string, list and whole number is bounded;
llama.cpp lets it say nothing else, and what it says is cut into OpenAI's deltas of tool calls while it grows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Schema = dict[str, Any]

STRING, ITEMS, DEPTH, INTEGER = 60, 2, 6, 9999
TEXT: Schema = {"type": "string", "maxLength": STRING}
ARGUMENTS = 4  # brackets around a call's arguments, their own included
KEPT = ("enum", "const", "required", "minimum", "maximum", "minItems")


def bounded(schema: Any, defs: Mapping[str, Any] | None = None, depth: int = 0) -> Schema:
    """The same schema, smaller: references put in place, strings and lists short, objects without what is optional."""
    if not isinstance(schema, Mapping) or depth > DEPTH:
        return TEXT
    defs = schema.get("$defs", {}) if defs is None else defs

    def within(inner: Any) -> Schema:
        return bounded(inner, defs, depth + 1)

    if "$ref" in schema:
        return within(_there(schema, defs))
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            ways = [_there(each, defs) for each in schema[choice]]
            free = [each for each in ways if "pattern" not in each]  # a pattern is beyond it, where there is a choice
            return {"anyOf": [within(each) for each in free or ways]}
    if "enum" in schema or "const" in schema:
        return {key: schema[key] for key in ("enum", "const") if key in schema}
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        plain = [each for each in kind if {"object": "properties", "array": "items"}.get(each, "type") in schema]
        return {"anyOf": [within({**schema, "type": each}) for each in plain or kind]}
    kept = {key: schema[key] for key in KEPT if key in schema}
    if kind == "object":
        required = kept.get("required", ())
        properties = {name: within(each) for name, each in schema.get("properties", {}).items() if name in required}
        return {"type": kind, "properties": properties, "required": [*properties], "additionalProperties": False}
    if kind == "array":
        most = min(schema.get("maxItems", ITEMS), ITEMS)
        return {**kept, "type": kind, "items": within(schema.get("items", TEXT)), "maxItems": most}
    if kind == "string":
        return {"type": kind, "maxLength": min(schema.get("maxLength", STRING), STRING)}
    if kind == "integer":
        return {"maximum": INTEGER, **kept, "type": kind}
    return {**kept, "type": kind}


def _there(schema: Any, defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference refers to."""
    if not isinstance(schema, Mapping):
        return {}
    reference = schema.get("$ref")
    return defs.get(reference.rpartition("/")[2], {}) if isinstance(reference, str) else schema


def calls_schema(functions: Sequence[Mapping[str, Any]], most: int) -> Schema:
    """The answer that calls so many of these functions."""
    each = [
        {
            "type": "object",
            "properties": {
                "name": {"const": function["name"]},
                "arguments": bounded(function.get("parameters") or {"type": "object"}),
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for function in functions
    ]
    calls = {"type": "array", "items": {"anyOf": each}, "minItems": 1, "maxItems": most}
    return {"type": "object", "properties": {"calls": calls}, "required": ["calls"], "additionalProperties": False}


class CallReader:
    """Reads such an answer as it grows: a call's number and name once, then its arguments piece by piece."""

    def __init__(self) -> None:
        self._number, self._depth = -1, 0
        self._is_string = self._is_escaped = False
        self._head = ""  # of a call, before its arguments

    def read(self, text: str) -> Iterator[tuple[int, str | None, str]]:
        """Yields: the call's number, its name when it is new, the next piece of its arguments."""
        piece = ""
        for character in text:
            before = self._depth
            self._step(character)
            if before < ARGUMENTS <= self._depth:
                self._number += 1
                yield self._number, json.loads(self._head + "null}")["name"], ""
            if ARGUMENTS in (before, self._depth) or self._depth > ARGUMENTS:
                piece += character
            else:
                self._head = self._head + character if self._depth == ARGUMENTS - 1 else ""
            if piece and self._depth < ARGUMENTS:
                yield self._number, None, piece
                piece = ""
        if piece:
            yield self._number, None, piece

    def _step(self, character: str) -> None:
        """How deep in brackets it is after this one, those in strings aside."""
        if self._is_escaped:
            self._is_escaped = False
        elif self._is_string:
            self._is_escaped = character == "\\"
            self._is_string = character != '"'
        elif character == '"':
            self._is_string = True
        else:
            self._depth += (character in "{[") - (character in "}]")
