"""The JSON schema of `config.toml` for editors: the settings, and for each part that can be named what it takes.

The settings leave the options of parts and the rules open, because their own parts check them. Here they are filled
in: an editor then completes the two tables that people write most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import PydanticUserError

from spar.config.load import schema as settings_schema
from spar.config.registry import Registry
from spar.config.signature import Signature
from spar.errors import ConfigError
from spar.ports.optional import StatesRules, offers

#: Where parts are configured: the definition in the schema, the group, and what the composition root gives them.
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
    made = settings_schema()
    definitions = made["$defs"]
    for definition, group, given in CONFIGURED:
        default = definitions[definition]["properties"]["use"].get("default")
        choices = [
            {"if": _is_used(name, is_default=name == default), "then": {"properties": {"options": options}}}
            for name, options in _options(registry, group, given, definitions)
        ]
        if choices:
            definitions[definition]["allOf"] = choices
    for name in registry.names("spar.planners"):
        planner = _loaded(registry, "spar.planners", name)
        if offers(planner, StatesRules):
            made["properties"]["rules"]["items"] = _adopted(planner.rule_schema(), "Rule", definitions)
    return made


def _options(
    registry: Registry, group: str, given: frozenset[str], definitions: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in registry.names(group):
        part = _loaded(registry, group, name)
        if not isinstance(part, type):
            continue
        try:
            options = Signature.of(part, name, ()).schema(given)
        except (ConfigError, PydanticUserError):  # a part of somebody else's whose options have no schema
            continue
        yield name, _adopted(options, f"{group}.{name}", definitions)


def _loaded(registry: Registry, group: str, name: str) -> Any:
    try:
        return registry.resolve(group, name)
    except ConfigError:
        return None


def _is_used(name: str, *, is_default: bool) -> dict[str, Any]:
    """Return the condition that a table uses a part; one that says nothing uses the default."""
    used: dict[str, Any] = {"properties": {"use": {"const": name}}}
    return used if is_default else {**used, "required": ["use"]}


def _adopted(schema: dict[str, Any], prefix: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose own definitions stand among the others, under names that cannot collide."""
    own = schema.pop("$defs", {})
    definitions.update({f"{prefix}.{name}": _renamed(each, prefix) for name, each in own.items()})
    moved: dict[str, Any] = _renamed(schema, prefix)
    return moved


def _renamed(value: Any, prefix: str) -> Any:
    if isinstance(value, dict):
        return {
            key: f"#/$defs/{prefix}.{each.removeprefix('#/$defs/')}" if key == "$ref" else _renamed(each, prefix)
            for key, each in value.items()
        }
    return [_renamed(each, prefix) for each in value] if isinstance(value, list) else value
