"""A tool that is only a schema: its name, its parameters, and what its `_` properties say about calling it.

A tool comes in three shapes, alone or as the `tool` of a message: a schema whose `properties._tool.const` is its name,
an object from names to schemas, or the name of a tool that is known elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from acting.tooling.parameters import Parameters
from spar.checks import shorten
from spar.data.json_schema import Output, alone
from spar.data.patterns import Pattern
from spar.errors import ConfigError
from spar.protocols.tools import ToolTerms

# The properties that state a tool's terms, each as `{"const": …}`.
_TERMS = {
    "_effect": "effect",
    "_timeout": "timeout",
    "_retries": "retries",
    "_approval": "approval",
    "_detach": "detach",
    "_concurrency": "concurrency",
    "_rate": "rate",
    "_resources": "resources",
    "_order": "order",
    "_onError": "on_error",
    "_safeWithUntrusted": "safe_with_untrusted",
    "_bringsUntrusted": "brings_untrusted",
}


class ToolSchema(Struct, frozen=True, eq=False):
    """A tool as its schema describes it.

    `activity` is the name of what carries it out: "" for none (latent), None when it is not said. `output` judges
    results. `output_path`, `output_method`, `instance`, `delegate` and `scopes` are prescribed for each call;
    `output_path_pattern` and `may_scope` bound what a call may choose. `terms` are as stated, not checked.
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

    @property
    def schema(self) -> dict[str, Any]:
        return self.parameters.schema

    @classmethod
    def of(cls, name: str, schema: Mapping[str, Any]) -> ToolSchema:
        """Read it. Raises: ConfigError naming the tool, the place and what was found."""
        parameters = Parameters.of_schema(name, schema)
        found = schema.get("properties", {})
        stated = {ours: _const(found.get(theirs)) for theirs, ours in _TERMS.items()}
        terms = {ours: value for ours, value in stated.items() if value is not None}
        if isinstance(terms.get("resources"), list):
            terms["resources"] = tuple(terms["resources"])
        path = found.get("_outputPath")
        scopes = found.get("_scopes")
        choice = scopes.get("items") if isinstance(scopes, Mapping) else None
        return cls(
            name,
            parameters,
            replace(ToolTerms(name=name), **terms),
            _text(name, found, "_activity"),
            Output(name, alone(schema, found["_output"])) if "_output" in found else None,
            _text(name, found, "_outputPath"),
            _pattern(name, path.get("pattern")) if isinstance(path, Mapping) else None,
            _text(name, found, "_outputMethod"),
            _text(name, found, "_instance"),
            _text(name, found, "_delegate"),
            _texts(name, "_scopes", _const(scopes)),
            _texts(name, "_scopes.items.enum", choice.get("enum") if isinstance(choice, Mapping) else None),
        )


def named_schemas(item: Any) -> list[tuple[str, dict[str, Any] | None]]:
    """The tools that an item stands for, each with its schema; None for a name that is known elsewhere.

    Raises: ConfigError for what is no tool in any of its shapes.
    """
    if isinstance(item, Mapping) and item.get("type") == "tool" and "tool" in item:
        item = item["tool"]
    if isinstance(item, str) and item:
        return [(item, None)]
    if isinstance(item, Mapping):
        if name := _name(item):
            return [(name, dict(item))]
        if item and not _SCHEMA_WORDS & item.keys() and all(isinstance(each, Mapping) for each in item.values()):
            return [_named(key, each) for key, each in item.items()]
    raise ConfigError(
        f"a tool is a schema whose properties._tool.const is its name, an object from names to schemas, or a name; "
        f"found {shorten(item)}"
    )


_SCHEMA_WORDS = {"properties", "type", "required", "additionalProperties", "$schema", "$ref", "$defs"}


def _named(key: Any, schema: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """One entry of an object of schemas; its own name stands above its key."""
    name = _name(schema) or key
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a tool needs a name, found {shorten(key)}")
    properties = schema.get("properties", {})
    if isinstance(properties, Mapping) and "_tool" not in properties:
        return name, {**schema, "properties": {"_tool": {"const": name}, **properties}}
    return name, dict(schema)


def _name(schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties")
    found = _const(properties.get("_tool")) if isinstance(properties, Mapping) else None
    return found if isinstance(found, str) else ""


def _const(schema: Any) -> Any:
    """The one value that a schema allows, or None."""
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return schema["const"]
    values = schema.get("enum")
    return values[0] if isinstance(values, list) and len(values) == 1 else None


def _text(tool: str, properties: Mapping[str, Any], key: str) -> str | None:
    found = _const(properties.get(key))
    if found is not None and not isinstance(found, str):
        raise ConfigError(f"tool {tool!r}: properties.{key}.const must be text, found {shorten(found)}")
    return found


def _pattern(tool: str, found: Any) -> Pattern | None:
    if found is None:
        return None
    where = f"tool {tool!r}: properties._outputPath.pattern"
    if not isinstance(found, str):
        raise ConfigError(f"{where} must be a regular expression as text, found {shorten(found)}")
    try:
        return Pattern(found)
    except ValueError as error:
        raise ConfigError(f"{where} {shorten(found)} cannot be used: {error}") from None


def _texts(tool: str, key: str, found: Any) -> tuple[str, ...] | None:
    if found is None:
        return None
    if not isinstance(found, (list, tuple)) or not all(isinstance(each, str) for each in found):
        raise ConfigError(f"tool {tool!r}: properties.{key} must name kinds, found {shorten(found)}")
    return tuple(found)
