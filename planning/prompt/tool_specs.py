"""Reader of tools in any form: name, schema, and the activity (the function) that carries out calls; pure.

A tool is a schema whose `properties._tool.const` names it, an entry of a mapping of names to schemas, an object with
`name` and `schema` (like the `tools` of an executor), or the name of a tool that was given before. Of several tools
with one name the last definition counts, at the last place.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from spar.checks import shorten
from spar.errors import ConfigError

#: Keys whose constant may be written as a text: `"_activity": "x"` for `"_activity": {"const": "x"}`.
_SAID = ("_activity", "_delegate", "_outputPath", "_outputMethod", "_instance")


class ToolSpec(Struct, frozen=True):
    """One tool. `activity` is the name of the function that carries out its calls, None where the tool does it itself,
    and "" where the model writes the result (latent)."""

    name: str
    schema: Mapping[str, Any]
    activity: str | None = ""

    @property
    def is_latent(self) -> bool:
        """Return whether the model writes the result: no function carries out the calls, and they are not delegated."""
        return self.activity == "" and not self.constant("_delegate")

    @property
    def properties(self) -> Mapping[str, Any]:
        return mapping(self.schema.get("properties"))

    def constant(self, key: str) -> str:
        """Return the text that the tool prescribes for a call's own key (`_…`), or ""."""
        return fixed(self.schema, key)


def fixed(schema: Mapping[str, Any], key: str) -> str:
    """Return the text that a schema prescribes for a property that begins with `_`, or ""."""
    value = mapping(schema.get("properties")).get(key)
    if value is None:
        value = schema.get(key)
    if isinstance(value, Mapping):
        value = value.get("const")
    return value if isinstance(value, str) else ""


def read_tool_specs(tools: Any, context: Iterable[Any], activities: Collection[str]) -> list[ToolSpec]:
    """Return the given tools and those in the tool messages of the context, each name once.

    Raises: TypeError for an object that is no tool; ValueError for a schema without a name, or an unknown name.
    """
    specs: dict[str, ToolSpec] = {}
    for source in (_schemas(tools), (message["tool"] for message in context if _is_tool(message))):
        for given in source:
            for spec in _read(given, activities, specs):
                specs.pop(spec.name, None)
                specs[spec.name] = spec
    return list(specs.values())


def _is_tool(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("type") == "tool" and "tool" in message


def _schemas(tools: Any) -> Iterable[Any]:
    if isinstance(tools, (str, Mapping)):
        return (tools,)
    if not isinstance(tools, Iterable):
        raise TypeError(f"tools are a list or a mapping of schemas, found {type(tools).__name__}")
    return tools


def _read(given: Any, activities: Collection[str], known: Mapping[str, ToolSpec]) -> Iterator[ToolSpec]:
    if isinstance(given, str):
        if given not in known:
            raise ValueError(f"no tool named {given!r} was given before; known: {', '.join(known) or 'none'}")
    elif isinstance(given, Mapping):
        name = fixed(given, "_tool")
        if name or _is_schema(given):
            yield _spec(name, given, activities)
        else:
            for key, entry in given.items():
                yield from _named(str(key), entry, activities)
    else:
        yield from _named("", given, activities)


def _named(key: str, entry: Any, activities: Collection[str]) -> Iterator[ToolSpec]:
    """Yield the tool of a schema, of an object with a schema, or of a function; `key` is its name if it has none."""
    if isinstance(entry, Mapping):
        yield _spec(fixed(entry, "_tool") or key, entry, activities)
        return
    schema, name = getattr(entry, "schema", None), getattr(entry, "name", None)
    why = ""
    # An executor makes the schema of a function; a builtin written in C may not reveal its parameters.
    if not isinstance(schema, Mapping) and callable(entry) and not inspect.isbuiltin(entry):
        try:
            (known,) = executor_type()([entry]).tools.values()
        except (ConfigError, ValueError) as error:
            why = f" ({error})"
        else:
            schema, name, entry = known.schema, known.name, known
    if not isinstance(schema, Mapping):
        what = getattr(entry, "__name__", None) or type(entry).__name__
        raise TypeError(
            f"{what!r} is no tool that has a schema: give schemas, or functions by way of an executor, "
            f"compose_schema(Executor([function]).tools){why}"
        )
    name = fixed(schema, "_tool") or (name if isinstance(name, str) else "") or key
    # An executor's tool may be a bare schema without code; then its `activity` is "" or its `target` is a mapping.
    runs_itself = getattr(entry, "activity", name) != "" and not isinstance(getattr(entry, "target", entry), Mapping)
    yield _spec(name, schema, activities, by_itself=runs_itself)


@cache
def executor_type() -> Any:
    """Return the class of the installed executor: `(tools, activities=…)`. Raises: ConfigError without one."""
    from importlib.metadata import entry_points  # takes 20 ms, which a planner by rules does not need

    matches = list(entry_points(group="spar.actors", name="executor"))
    if not matches:
        raise ConfigError("no actor named 'executor' is installed (group 'spar.actors'): give one, executor=…")
    return matches[0].load()


def _is_schema(given: Mapping[str, Any]) -> bool:
    """Return whether this is one schema and not a mapping of names to tools."""
    return isinstance(given.get("properties"), Mapping) or isinstance(given.get("type"), (str, list))


def _spec(name: str, schema: Mapping[str, Any], activities: Collection[str], *, by_itself: bool = False) -> ToolSpec:
    if not name:
        raise ValueError(f"a tool's schema names it by 'properties._tool.const', found {shorten(list(schema), 200)}")
    fixed_keys = {key: {"const": schema[key]} for key in _SAID if isinstance(schema.get(key), str)}
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise ValueError(f"tool {name!r}: its 'properties' are an object, found {type(properties).__name__}")
    plainly = {key: {"const": value} for key, value in properties.items() if key in _SAID and isinstance(value, str)}
    if fixed_keys or plainly:
        schema = {**schema, "properties": {**fixed_keys, **properties, **plainly}}
    activity: str | None = fixed(schema, "_activity")
    if not activity and "_activity" not in schema.get("properties", {}):
        activity = name if name in activities else None if by_itself else ""
    return ToolSpec(name, schema, activity)


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}
