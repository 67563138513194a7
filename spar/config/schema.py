"""JSON schema of `config.toml` for editors: the settings, and the options of each part that can be named.

The schema of the settings leaves the options of parts and the rules open, because the parts check these themselves.
This module adds them, so that an editor completes the two tables that people write most.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, PydanticOmit

from spar.config.load import schema as settings_schema
from spar.config.registry import Registry, Signature
from spar.errors import ConfigError
from spar.ports.optional.any_part import offers
from spar.ports.optional.plan import StatesRules

#: Places where parts are configured: the definition in the schema, the group, and the arguments of the composition
#: root.
CONFIGURED: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("SensePart", "spar.senses", frozenset({"sensors", "pipeline"})),
    ("SensorPart", "spar.sensors", frozenset()),
    ("PlanPart", "spar.planners", frozenset({"rules", "tools"})),
    ("ActPart", "spar.actors", frozenset({"tools", "settings", "approval_timeout"})),
    ("ToolPart", "spar.tools", frozenset()),
    ("ReflectPart", "spar.reflectors", frozenset()),
    ("ChannelPart", "spar.channels", frozenset()),
)


def schema(registry: Registry) -> dict[str, Any]:
    """Return the JSON schema of `config.toml` with the options of each part that can be loaded."""
    root = settings_schema()
    definitions = root["$defs"]
    for definition, group, given in CONFIGURED:
        default = definitions[definition]["properties"]["use"].get("default")
        choices = [
            {"if": _is_used(name, is_default=name == default), "then": {"properties": {"options": options}}}
            for name, options in _options(registry, group, given, definitions)
        ]
        if choices:
            definitions[definition]["allOf"] = choices
    for name in registry.names("spar.planners"):
        planner = _resolve(registry, "spar.planners", name)
        if offers(planner, StatesRules):
            root["properties"]["rules"]["items"] = _adopt(planner.rule_schema(), "Rule", definitions)
    return root


class OfFile(GenerateJsonSchema):
    """Generator of schemas that leaves out types that no file can hold, such as a callable."""

    def handle_invalid_for_json_schema(self, schema: CoreSchema, error_info: str) -> JsonSchemaValue:
        raise PydanticOmit


def _options(
    registry: Registry, group: str, given: frozenset[str], definitions: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in registry.names(group):
        part = _resolve(registry, group, name)
        if not isinstance(part, type):
            continue
        try:
            options = Signature(part, name).judge(given).json_schema(schema_generator=OfFile)
        except (ConfigError, PydanticUserError):  # a part of another package whose options have no schema
            continue
        yield name, _adopt(options, f"{group}.{name}", definitions)


def _resolve(registry: Registry, group: str, name: str) -> Any:
    try:
        return registry.resolve(group, name)
    except ConfigError:
        return None


def _is_used(name: str, *, is_default: bool) -> dict[str, Any]:
    """Return the condition that a table uses a part; a table without `use` uses the default."""
    used: dict[str, Any] = {"properties": {"use": {"const": name}}}
    return used if is_default else {**used, "required": ["use"]}


def _adopt(schema: dict[str, Any], prefix: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """Move the definitions of a schema to `definitions`, under names that cannot collide, and return the schema."""
    text = json.dumps(schema)  # inside a text each quotation mark has a backslash before it
    adopted: dict[str, Any] = json.loads(text.replace('"$ref": "#/$defs/', f'"$ref": "#/$defs/{prefix}.'))
    definitions.update({f"{prefix}.{name}": item for name, item in adopted.pop("$defs", {}).items()})
    return adopted
