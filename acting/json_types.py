"""A JSON schema as a Python type that pydantic can validate, for tools that bring a schema instead of a signature.

It knows what schemas of tools use: types, bounds, enums, alternatives, arrays, nested objects. A keyword that it
does not know constrains nothing (`$ref`, `not`, …): the tool itself still sees the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, Union

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

_PLAIN: dict[str, Any] = {
    "string": str, "integer": int, "number": int | float, "boolean": bool, "null": None, "array": list[Any],
    "object": dict[str, Any],
}  # fmt: skip
# JSON schema's bound → pydantic's, by the type that it applies to.
_BOUNDS: dict[str, dict[str, str]] = {
    "string": {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"},
    "array": {"minItems": "min_length", "maxItems": "max_length"},
    "number": {
        "minimum": "ge",
        "maximum": "le",
        "exclusiveMinimum": "gt",
        "exclusiveMaximum": "lt",
        "multipleOf": "multiple_of",
    },
}
_BOUNDS["integer"] = _BOUNDS["number"]


def type_of(schema: Any) -> Any:
    """The type of the values that `schema` allows."""
    if not isinstance(schema, Mapping):
        return Any
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return Union[tuple(type_of(each) for each in schema[key])]  # noqa: UP007 - the members are only known here
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values and all(isinstance(each, (str, int, bool, type(None))) for each in values):
        return Literal[tuple(values)]
    kind = schema.get("type")
    if isinstance(kind, list) and kind:
        return Union[tuple(type_of({**schema, "type": each}) for each in kind)]  # noqa: UP007
    if not isinstance(kind, str) or kind not in _PLAIN:
        return Any
    found = _PLAIN[kind]
    if kind == "array" and "items" in schema:
        found = list[type_of(schema["items"])]  # type: ignore[misc]
    elif kind == "object" and isinstance(schema.get("properties"), Mapping):
        found = object_type(schema, extra=schema.get("additionalProperties", True))
    bounds = {ours: schema[theirs] for theirs, ours in _BOUNDS.get(kind, {}).items() if schema.get(theirs) is not None}
    return Annotated[found, Field(**bounds)] if bounds else found


def object_type(schema: Mapping[str, Any], *, extra: Any) -> Any:
    """A typed dict of the schema's properties (those that begin with _ are not parameters)."""
    required = schema.get("required", ())
    fields = {
        name: type_of(each) if name in required else NotRequired[type_of(each)]
        for name, each in schema.get("properties", {}).items()
        if not name.startswith("_")
    }
    return typed_dict(fields, extra=bool(extra))


def typed_dict(fields: Mapping[str, Any], *, extra: bool) -> Any:
    """A TypedDict of these fields; any name will do, unlike a model's. `extra` allows more than the fields."""
    make: Any = TypedDict  # named only here: its fields are not known to whoever reads the source
    made = make("Parameters", dict(fields))
    made.__pydantic_config__ = ConfigDict(extra="allow" if extra else "forbid")
    return made
