"""What becomes of a final output: its references are replaced by what they name, and it is judged by its schema.

An executor does both for the parameters and results of calls; here it does so for an output, as the result of a call
of a tool that returns what it is given. So an output is read and judged by the very rules that calls are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from spar.data.paths import TooLargeError, marked
from spar.errors import ConfigError
from spar.types import Call

_TOOL = "output"
_LARGEST = 64 << 20  # bytes; an output is not cut, that is for who shows it


@cache
def executor_type() -> Any:
    """The executor of the box, found by its name: `(tools, activities=…)`. Raises: ConfigError without one."""
    from importlib.metadata import entry_points  # 20 ms that who only plans by rules does without

    found = list(entry_points(group="spar.actors", name="executor"))
    if not found:
        raise ConfigError("no actor named 'executor' is installed (group 'spar.actors'): give one, executor=…")
    return found[0].load()


def closed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of an output as it is sent: unless it says otherwise, no property fits that it does not name."""
    is_combined = any(key in schema for key in ("$ref", "allOf", "anyOf", "oneOf", "if", "not"))
    if is_combined or not isinstance(schema.get("properties"), Mapping) or "additionalProperties" in schema:
        return schema
    return {**schema, "additionalProperties": False}


class Judge:
    """Judges outputs by a schema. Raises: ConfigError for a schema that cannot be used."""

    def __init__(self, schema: Mapping[str, Any] | None) -> None:
        self._schema = schema if schema is None else closed(schema)
        # Without a schema it is needed only for an output that holds references, and most hold none.
        self._executor = self._made() if schema is not None else None

    def _made(self) -> Any:
        own: dict[str, Any] = {"_tool": {"const": _TOOL}, "_effect": {"const": "read"}, "value": {}}
        if self._schema is not None:
            own["_output"] = self._schema
        tool = {"type": "object", "properties": own, "required": ["value"]}
        return executor_type()([tool], activities={_TOOL: _returned}, settings={"largest_result": _LARGEST})

    async def judged(self, output: Any, context: Iterable[Mapping[str, Any]]) -> tuple[Any, str]:
        """The output with its references resolved, and what is wrong with it ("" if nothing is)."""
        try:
            if self._schema is None and not marked(output):
                return output, ""
        except TooLargeError as error:
            return None, f"the output cannot be used: {error}"
        self._executor = self._executor or self._made()
        result = await self._executor.run([Call(_TOOL, {"value": output})], context=context)
        (found,) = result.results
        if found.status == "ok":
            return found.output, ""
        why = found.fault.message if found.fault is not None else found.status
        return None, why.removeprefix(f"tool {_TOOL!r} returned what its '_output' does not allow: ")


async def _returned(call: Call, tool: Any, context: Any) -> Any:
    return call.params["value"]
