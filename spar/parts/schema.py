"""JSON schema of `config.toml` for editors: the settings, and the options of each part that can be named.

The settings leave the options of parts and the rules open, because the parts check these themselves. The schema has
them too, so that an editor completes the two tables that people write most.
"""

from __future__ import annotations

from typing import Any

from pydantic import PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, PydanticOmit

from spar.config.tables.settings import Settings
from spar.errors import ConfigError
from spar.parts.factory import GIVEN, MODULES
from spar.parts.registry import Registry, Signature
from spar.ports.any_part import has
from spar.ports.planners import OptionalPlanner

#: Tables of parts, each with its group.
CONFIGURED: dict[str, str] = {**MODULES, "sensors": "spar.sensors", "tools": "spar.tools", "channels": "spar.channels"}


class OfFile(GenerateJsonSchema):
    """Generator of schemas that leaves out types that no file can hold, such as a callable."""

    def handle_invalid_for_json_schema(self, schema: CoreSchema, error_info: str) -> JsonSchemaValue:
        raise PydanticOmit


def schema(registry: Registry) -> dict[str, Any]:
    """Return the JSON schema of `config.toml` with the options of each part that can be loaded."""
    judges: dict[tuple[str, str], TypeAdapter[Any]] = {("", ""): TypeAdapter(Settings)}
    rules: dict[str, Any] = {}
    for section, group in CONFIGURED.items():
        for name in registry.names(group):
            try:
                part = registry.resolve(group, name)
                if has(part, OptionalPlanner.rule_schema):
                    rules = part.rule_schema()
                if isinstance(part, type):
                    judge = Signature(part, name).judge(GIVEN.get(group, ()))
                    judge.json_schema(schema_generator=OfFile)
                    judges[section, name] = judge
            except (ConfigError, PydanticUserError):  # a part of another package whose options have no schema
                continue
    inputs = [(key, "validation", judge) for key, judge in judges.items()]
    schemas, shared = TypeAdapter.json_schemas(inputs, schema_generator=OfFile)  # type: ignore[arg-type]
    root = schemas.pop((("", ""), "validation"))
    for ((section, name), _), options in schemas.items():
        table = root["properties"][section]
        table = table.get("items", table)
        use = table["properties"]["use"]  # a table without it uses the default
        used = {"properties": {"use": {"const": name}}, "required": ["use"] * (use.get("default") != name)}
        table.setdefault("allOf", []).append({"if": used, "then": {"properties": {"options": options}}})
    definitions = shared.get("$defs", {}) | rules.pop("$defs", {})
    root["properties"]["rules"]["items"] |= rules
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **root, "$defs": definitions}
