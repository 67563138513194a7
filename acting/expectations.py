"""What a call states about its result: finished and verified are different.

`_expect` on a call is its postcondition. An object of JSON Schema's words is a schema that the result must satisfy;
any other value must be found in the result: equal, or, of an object, each of its entries so.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from acting.json_schema import Output
from spar.paths import shorten
from spar.plain import MAX_OUTPUT, is_bounded

_WORDS: Final = frozenset({
    "$defs", "$id", "$ref", "$schema", "additionalProperties", "allOf", "anyOf", "const", "contains", "description",
    "dependentRequired", "dependentSchemas", "else", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "if",
    "items", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems",
    "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern", "patternProperties",
    "prefixItems", "properties", "propertyNames", "required", "then", "title", "type", "unevaluatedItems",
    "unevaluatedProperties", "uniqueItems",
})  # fmt: skip


def objection(expected: Any) -> str:
    """Why this cannot be expected of anything; "" if it can."""
    if not is_bounded(expected, MAX_OUTPUT):  # compared with results: it has to have an end
        return f"'_expect' is neither a JSON Schema nor a value that can be used: {shorten(expected)}"
    try:
        if _is_schema(expected):
            _checker(msgspec.json.encode(expected))
        else:
            msgspec.json.encode(expected)
    except Exception as error:
        return f"'_expect' is neither a JSON Schema nor a value that can be used: {error}"
    return ""


def unmet(expected: Any, found: Any) -> str:
    """In what way the result is not what was expected; "" if it is."""
    if _is_schema(expected):
        return _checker(msgspec.json.encode(expected)).check(found) or ""
    return _missing(expected, found, "")


def _is_schema(expected: Any) -> bool:
    return isinstance(expected, Mapping) and bool(expected) and expected.keys() <= _WORDS


def _missing(expected: Any, found: Any, where: str) -> str:
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key, value in expected.items():
            if key not in found:
                return f"{where}{key!r} is not there"
            if wrong := _missing(value, found[key], f"{where}{key}."):
                return wrong
        return ""
    same = expected == found and isinstance(expected, bool) is isinstance(found, bool)  # true is not 1
    return "" if same else f"{where.rstrip('.') or 'it'} is {shorten(found)}, not {shorten(expected)}"


@lru_cache(256)
def _checker(encoded: bytes) -> Output:
    return Output("_expect", msgspec.json.decode(encoded))
