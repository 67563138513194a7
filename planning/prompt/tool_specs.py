"""Tools in any of their shapes, read as name, schema and the activity that carries a call out; pure.

A tool is a schema whose `properties._tool.const` names it, an entry of a mapping of names to schemas, an object with
`name` and `schema` (what an executor's `tools` hold), or the name of one that was given before. Of several tools with
one name the last counts and takes the last place.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from spar.checks import shorten
from spar.errors import ConfigError

#: A text in the place of a schema's constant.
_SAID = ("_activity", "_delegate", "_outputPath", "_outputMethod", "_instance")


class ToolSpec(Struct, frozen=True):
    """One tool: `activity` is the name of what carries its calls out, None where the tool does it itself, "" where the
    model thinks the result up (latent)."""

    name: str
    schema: Mapping[str, Any]
    activity: str | None = ""

    @property
    def is_latent(self) -> bool:
        """Return whether the model fills in the result: nobody carries it out, and it is not always delegated."""
        return self.activity == "" and not self.constant("_delegate")

    @property
    def properties(self) -> Mapping[str, Any]:
        return mapping(self.schema.get("properties"))

    def constant(self, key: str) -> str:
        """The text that the tool fixes for a key of the call's own, or ""."""
        return fixed(self.schema, key)


def fixed(schema: Mapping[str, Any], key: str) -> str:
    """The text that a schema fixes for a property that begins with `_`, or ""."""
    found = mapping(schema.get("properties")).get(key)
    if found is None:
        found = schema.get(key)
    if isinstance(found, Mapping):
        found = found.get("const")
    return found if isinstance(found, str) else ""


def read_tool_specs(tools: Any, context: Iterable[Any], activities: Collection[str]) -> list[ToolSpec]:
    """The tools given and those of the context's tool messages, each name once.

    Raises: TypeError for what is no tool; ValueError for a schema without a name, or a name that nothing stands for.
    """
    specs: dict[str, ToolSpec] = {}
    for source in (_each(tools), (message["tool"] for message in context if _is_tool(message))):
        for given in source:
            for spec in _read(given, activities, specs):
                specs.pop(spec.name, None)
                specs[spec.name] = spec
    return list(specs.values())


def _is_tool(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("type") == "tool" and "tool" in message


def _each(tools: Any) -> Iterable[Any]:
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
    """A schema or an object with one, under the name that it has itself or else under `key`."""
    if isinstance(entry, Mapping):
        yield _spec(fixed(entry, "_tool") or key, entry, activities)
        return
    schema, name = getattr(entry, "schema", None), getattr(entry, "name", None)
    why = ""
    # An executor knows what calls of a function look like, unless it is one of C that says nothing of its parameters.
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
    # What an executor was given as a bare schema is no code, whatever object it is kept in; it says so by its activity.
    runs_itself = getattr(entry, "activity", name) != "" and not isinstance(getattr(entry, "target", entry), Mapping)
    yield _spec(name, schema, activities, by_itself=runs_itself)


@cache
def executor_type() -> Any:
    """Return the executor of the box, found by its name: `(tools, activities=…)`. Raises: ConfigError without one."""
    from importlib.metadata import entry_points  # 20 ms that a planner by rules does without

    found = list(entry_points(group="spar.actors", name="executor"))
    if not found:
        raise ConfigError("no actor named 'executor' is installed (group 'spar.actors'): give one, executor=…")
    return found[0].load()


def _is_schema(given: Mapping[str, Any]) -> bool:
    """Return whether this is one schema and not a mapping of names to tools."""
    return isinstance(given.get("properties"), Mapping) or isinstance(given.get("type"), (str, list))


def _spec(name: str, schema: Mapping[str, Any], activities: Collection[str], *, by_itself: bool = False) -> ToolSpec:
    if not name:
        raise ValueError(f"a tool's schema names it by 'properties._tool.const', found {shorten(list(schema), 200)}")
    said = {key: {"const": schema[key]} for key in _SAID if isinstance(schema.get(key), str)}
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise ValueError(f"tool {name!r}: its 'properties' are an object, found {type(properties).__name__}")
    plainly = {key: {"const": value} for key, value in properties.items() if key in _SAID and isinstance(value, str)}
    if said or plainly:
        schema = {**schema, "properties": {**said, **properties, **plainly}}
    activity: str | None = fixed(schema, "_activity")
    if not activity and "_activity" not in schema.get("properties", {}):
        activity = name if name in activities else None if by_itself else ""
    return ToolSpec(name, schema, activity)


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}
