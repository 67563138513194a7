"""A tool that is only a schema: its name, its parameters, and the terms in its properties that begin with `_`.

Tools are given in three forms, alone or as the `tool` of a message: a schema whose `properties._tool.const` is its
name, an object from names to schemas, or only the name of a tool that is registered elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from acting.tooling.parameters import Parameters
from spar.checks import shorten
from spar.data.json_schema import Output, alone
from spar.data.paths import BadReferenceError
from spar.data.patterns import Pattern
from spar.errors import ConfigError
from spar.protocols.tools import ToolTerms
from spar.types import Call

# The properties that state a tool's terms, each as `{"const": …}`; the term `on_error` is stated as `_onError`.
_TERMS = {
    "_" + re.sub("_(.)", lambda match: match[1].upper(), term): term
    for term in ToolTerms.__struct_fields__
    if term != "name"
}
_WIRE = {"output_path": "'_outputPath'", "output_method": "'_outputMethod'", "instance": "'_instance'"}


class BadCallError(ValueError):
    """Error of an item of a plan that cannot be executed as a call."""


class ToolSchema(Struct, frozen=True, eq=False):
    """A tool as its schema describes it.

    `activity` is the name of the handler that carries it out: "" for none (latent), None when the schema names none.
    `output` is the schema of results. `output_path`, `output_method`, `instance`, `delegate` and `scopes` are
    prescribed for each call; `output_path_pattern` and `may_scope` limit the values that a call may choose. `terms` are
    as the schema states them, not checked.
    """

    name: str
    parameters: Parameters
    terms: ToolTerms
    activity: str | None = None
    output: Output | None = None
    output_path: str | None = None
    output_path_pattern: Pattern | None = None
    output_method: str | None = None
    instance: str | None = None
    delegate: str | None = None
    scopes: tuple[str, ...] | None = None
    may_scope: tuple[str, ...] | None = None

    def fill_in(self, call: Call) -> Call:
        """Return a call with the values that the tool prescribes: the output path, the output method (how a value is
        combined with the present one), the instance, and the *scopes*: the kinds of messages that the activity sees.

        A value that the call leaves out is filled in. Raises: BadCallError for a different one; BadReferenceError.
        """
        name = f"tool {call.tool!r}"
        fixed: dict[str, Any] = {}
        for field, theirs, unsaid in (
            ("output_path", self.output_path, None),
            ("output_method", self.output_method, "set"),
            ("instance", self.instance, None),
        ):
            value = getattr(call, field)
            if theirs is None or value == theirs:
                continue
            if value != unsaid:
                raise BadCallError(f"{name} prescribes {theirs!r} as its {_WIRE[field]}, found {shorten(value)}")
            fixed[field] = theirs
        pattern = self.output_path_pattern
        if pattern is not None and call.output_path is not None and pattern.search(call.output_path) is None:
            raise BadReferenceError(f"'_outputPath' of {name} must match {shorten(pattern.text)}, "
                                    f"found {shorten(call.output_path)}")  # fmt: skip
        meta = dict(call.meta)
        if self.delegate is not None and meta.setdefault("_delegate", self.delegate) != self.delegate:
            raise BadCallError(f"{name} is delegated to {self.delegate!r}, not to {shorten(meta['_delegate'])}")
        scopes = meta.get("_scopes")
        if self.scopes is not None and list(meta.setdefault("_scopes", list(self.scopes))) != list(self.scopes):
            raise BadCallError(f"{name} prescribes the scopes {list(self.scopes)}, found {shorten(scopes)}")
        may_scope = self.may_scope
        if may_scope is not None and scopes and (more := [scope for scope in scopes if scope not in may_scope]):
            known = ", ".join(may_scope) or "none"
            raise BadCallError(f"{name} may not see {shorten(more[0])}; it may see: {known}")
        return replace(call, **fixed, meta=meta) if fixed or meta != call.meta else call

    @classmethod
    def of(cls, name: str, schema: Mapping[str, Any]) -> ToolSchema:
        """Read a schema. Raises: ConfigError naming the tool, the place and what was found."""
        parameters = Parameters.of_schema(name, schema)
        properties = schema.get("properties", {})
        stated = {ours: _const(properties.get(theirs)) for theirs, ours in _TERMS.items()}
        terms = {ours: value for ours, value in stated.items() if value is not None}
        if isinstance(terms.get("resources"), list):
            terms["resources"] = tuple(terms["resources"])
        path = properties.get("_outputPath")
        scopes = properties.get("_scopes")
        choice = scopes.get("items") if isinstance(scopes, Mapping) else None
        return cls(
            name,
            parameters,
            replace(ToolTerms(name=name), **terms),
            _text(name, properties, "_activity"),
            Output(name, alone(schema, properties["_output"])) if "_output" in properties else None,
            _text(name, properties, "_outputPath"),
            _pattern(name, path.get("pattern")) if isinstance(path, Mapping) else None,
            _text(name, properties, "_outputMethod"),
            _text(name, properties, "_instance"),
            _text(name, properties, "_delegate"),
            _texts(name, "_scopes", _const(scopes)),
            _texts(name, "_scopes.items.enum", choice.get("enum") if isinstance(choice, Mapping) else None),
        )


def named_schemas(item: Any) -> list[tuple[str, dict[str, Any] | None]]:
    """Return the names of the tools in an item, with their schemas; None as schema where there is only a name.

    Raises: ConfigError for an item in none of the three forms.
    """
    if isinstance(item, Mapping) and item.get("type") == "tool" and "tool" in item:
        item = item["tool"]
    if isinstance(item, str) and item:
        return [(item, None)]
    if isinstance(item, Mapping):
        if name := _name(item):
            return [(name, dict(item))]
        if item and not _SCHEMA_WORDS & item.keys() and all(isinstance(schema, Mapping) for schema in item.values()):
            return [_named(key, schema) for key, schema in item.items()]
    raise ConfigError(
        f"a tool is a schema whose properties._tool.const is its name, an object from names to schemas, or a name; "
        f"found {shorten(item)}"
    )


_SCHEMA_WORDS = {"properties", "type", "required", "additionalProperties", "$schema", "$ref", "$defs"}


def _named(key: Any, schema: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return name and schema of one entry of an object of schemas; the name in the schema goes before the key."""
    name = _name(schema) or key
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a tool needs a name, found {shorten(key)}")
    properties = schema.get("properties", {})
    if isinstance(properties, Mapping) and "_tool" not in properties:
        return name, {**schema, "properties": {"_tool": {"const": name}, **properties}}
    return name, dict(schema)


def _name(schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties")
    name = _const(properties.get("_tool")) if isinstance(properties, Mapping) else None
    return name if isinstance(name, str) else ""


def _const(schema: Any) -> Any:
    """Return the only value that a schema allows, or None."""
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return schema["const"]
    values = schema.get("enum")
    return values[0] if isinstance(values, list) and len(values) == 1 else None


def _text(tool: str, properties: Mapping[str, Any], key: str) -> str | None:
    value = _const(properties.get(key))
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"tool {tool!r}: properties.{key}.const must be text, found {shorten(value)}")
    return value


def _pattern(tool: str, value: Any) -> Pattern | None:
    if value is None:
        return None
    where = f"tool {tool!r}: properties._outputPath.pattern"
    if not isinstance(value, str):
        raise ConfigError(f"{where} must be a regular expression as text, found {shorten(value)}")
    try:
        return Pattern(value)
    except ValueError as error:
        raise ConfigError(f"{where} {shorten(value)} cannot be used: {error}") from None


def _texts(tool: str, key: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"tool {tool!r}: properties.{key} must name kinds, found {shorten(value)}")
    return tuple(value)


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
