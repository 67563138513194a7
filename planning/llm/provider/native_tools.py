"""Native tools: functions made from the schema of a request, and calls made from the fragments that come back.

Each alternative of the schema's `calls` becomes a function; the tool's own parameters and the keys of a call that the
instructions explain (`_id`, `_after`, `_outputPath`) are the function's parameters. The schema of the output becomes a
function, too. Fragments of function calls become calls on the wire, each once its arguments are complete, in the order
in which the model began them.

Arguments that are no JSON object become a call with `_bad`, a sentence with which the executor refuses it and which the
next request shows to the model. JSON with a key twice or with NaN is refused like this. The executor checks the values.
This module does no input or output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

from planning.output_check import close_schema
from planning.ports import ProvidedCall
from planning.prompt.schema import BEFORE, BEHIND
from planning.prompt.schema_merge import REFERENCE
from planning.strict_json import Signs, parse_strict

#: The function that gives the output, where that has a schema.
ANSWER: Final = "answer"
#: A name of a function that every provider accepts.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
#: Keywords that providers do not accept at the top of a function's schema; the executor checks the tool's own schema.
_NOT_AT_THE_TOP = frozenset({"allOf", "anyOf", "oneOf", "not", "enum", "const", "if", "then", "else",
                             "dependentRequired", "dependentSchemas", "description"})  # fmt: skip
_DEFS = "#/$defs/"
#: Keywords whose values are data and no schemas.
_DATA = frozenset({"const", "enum", "default", "examples", "required"})
#: Keys of a call that the instructions explain, each as a tool has it that says nothing about it, and as it is offered.
_USUAL: Final[Mapping[str, tuple[Any, Any]]] = {
    "_id": (BEFORE["_id"], {"type": "string"}),
    "_after": (BEFORE["_after"], {"type": "array", "items": {"type": "string"}}),
    "_outputPath": (BEHIND["_outputPath"], {"type": "string"}),
}
#: Keys that are offered by tools that define them only.
_UNASKED: Final[Mapping[str, Any]] = {
    "_reasoningForCall": BEFORE["_reasoningForCall"],
    "_outputMethod": BEHIND["_outputMethod"],
}


class NativeFunction(NamedTuple):
    """Function that is offered to a provider; `tool` is the name of its tool, None for the output."""

    name: str
    tool: str | None
    description: str
    parameters: dict[str, Any]


def native_functions(schema: Mapping[str, Any], answer: Mapping[str, Any] | None) -> list[NativeFunction]:
    """Return the functions for a solution's schema; the one for the output last, where that has a schema."""
    alternatives = [alternative for alternative in _alternatives(schema) if isinstance(_tool(alternative), str)]
    tools = dict(zip(map(_tool, alternatives), alternatives, strict=True))  # of two with one name, the last
    names = _names(tools, taken=() if answer is None else (ANSWER,))
    defs = schema.get("$defs", {})
    functions = [
        NativeFunction(names[tool], tool, str(alternative.get("description", "")), _parameters(alternative, defs))
        for tool, alternative in tools.items()
    ]
    if answer is not None:
        answer = close_schema(answer)
        output: dict[str, Any] = {"type": "object", "properties": {"output": answer}, "required": ["output"]}
        if isinstance(answer.get("$defs"), Mapping):  # references point to `$defs` at the top of a document
            output["properties"] = {"output": {key: value for key, value in answer.items() if key != "$defs"}}
            output["$defs"] = answer["$defs"]
        functions.append(NativeFunction(ANSWER, None, "Gives the answer and ends the work.", output))
    return functions


def _alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    node: Any = schema
    for key in ("properties", "calls", "items", "anyOf"):
        node = node.get(key) if isinstance(node, Mapping) else None
    return (
        [alternative for alternative in node if isinstance(alternative, Mapping)]
        if isinstance(node, (list, tuple))
        else []
    )


def _tool(alternative: Mapping[str, Any]) -> Any:
    named = alternative.get("properties", {}).get("_tool")
    return named.get("const") if isinstance(named, Mapping) else None


def _parameters(alternative: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {key: value for key, value in alternative.items() if key not in _NOT_AT_THE_TOP}
    properties = {key: value for key, value in alternative["properties"].items() if key != "_tool"}
    parameters["properties"] = {
        key: usual[1] if (usual := _USUAL.get(key)) and value == usual[0] else value
        for key, value in properties.items()
        if key not in _UNASKED or value != _UNASKED[key]
    }
    parameters["required"] = [name for name in alternative.get("required", ()) if name != "_tool"]
    if named := _reachable(parameters, defs):
        parameters["$defs"] = named
    narrow: dict[str, Any] = _narrowed(parameters)
    return narrow


def _narrowed(part: Any) -> Any:
    """Return a schema as its tool has it, without the branch for a reference beside each value.

    A model may write a reference all the same: no provider checks the arguments of a function that is not strict, and
    the instructions say how.
    """
    if isinstance(part, Mapping):
        branches = part.get("anyOf")
        if len(part) == 1 and isinstance(branches, list) and len(branches) == 2 and branches[1] == REFERENCE:
            return _narrowed(branches[0])
        return {key: value if key in _DATA else _narrowed(value) for key, value in part.items()}
    return [_narrowed(item) for item in part] if isinstance(part, (list, tuple)) else part


def _reachable(part: Any, defs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definitions that a schema refers to, directly or not, in the order of the document.

    Other code does more with such references: `spar.data.json_schema` checks values by them, and
    `planning.prompt.schema_merge` copies the definitions into the schema.
    """
    names: set[str] = set()
    left = [part]
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            ref = part.get("$ref")
            if isinstance(ref, str) and ref.startswith(_DEFS):
                name = ref.removeprefix(_DEFS).split("/")[0].replace("~1", "/").replace("~0", "~")
                if name in defs and name not in names:
                    names.add(name)
                    left.append(defs[name])
            left.extend(part.values())
        elif isinstance(part, (list, tuple)):
            left.extend(part)
    return {name: defs[name] for name in defs if name in names}


def function_names(tools: Iterable[str], functions: Iterable[NativeFunction]) -> dict[str, str]:
    """Return the function names of tools in earlier calls; a tool that is not offered gets a name like the others."""
    known = {function.tool: function.name for function in functions if function.tool is not None}
    others = _names([tool for tool in tools if tool not in known], taken=[*known.values(), ANSWER])
    return {**others, **known}


def _names(tools: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Return a name that every provider accepts for each tool: its own where possible; no two are the same."""
    used = set(taken)
    names: dict[str, str] = {}
    for tool in sorted(tools, key=lambda name: _NAME.fullmatch(name) is None):  # tools that keep their name first
        name = _FOREIGN.sub("_", tool)
        name = name if _NAME.match(name) else f"_{name}"
        if name in used or len(name) > 64:
            name = f"{name[:53]}_{sha256(tool.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"
        used.add(name)
        names[tool] = name
    return names


# -- calls that come back


_OPENING, _CLOSING = frozenset("{["), frozenset("}]")
_BRACKETS = re.compile(r'["{}\[\]]')


class _Arguments:
    """Arguments of one call as they come. `is_complete` is set at the closing brace, without parsing the text."""

    __slots__ = ("_depth", "_parts", "_signs", "has_more", "is_complete", "name", "provided", "value")

    def __init__(self, name: str) -> None:
        self.name, self.provided = name, ""
        self.value: Mapping[str, Any] | None = None  # the arguments, where a provider gives them as an object
        self.is_complete = self.has_more = False
        self._signs, self._depth = Signs(), 0
        self._parts: list[str] = []

    def take(self, fragment: str) -> None:
        """Take the next fragment. Text after a complete object is dropped, and `has_more` is set."""
        at = 0
        while at < len(fragment) and not self.is_complete:
            sign, at = self._signs.next(fragment, at, _BRACKETS)
            self._depth += (sign in _OPENING) - (sign in _CLOSING)
            self.is_complete = sign in _CLOSING and self._depth <= 0
        self._parts.append(fragment[:at])
        self.has_more = self.has_more or bool(fragment[at:].strip())

    def read(self) -> Mapping[str, Any]:
        """Return the arguments as an object. Raises: ValueError if the text is not a JSON object."""
        if self.value is not None:
            return self.value
        text = "".join(self._parts)
        if not text.strip():
            return {}  # many providers call a function without parameters like this
        try:
            value = parse_strict(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(value, dict):
            raise ValueError(f"found {type(value).__name__}")
        return value

    def shown(self) -> str:
        """Return the beginning of the text, for an error."""
        text = "".join(self._parts)
        return text if len(text) <= 200 else f"{text[:200]}…"


class Calls:
    """Calls of one answer, made from fragments; `index` is the number by which the provider tells its calls apart."""

    def __init__(self, functions: Iterable[NativeFunction]) -> None:
        self._tools = {function.name: function.tool for function in functions}
        self._open: dict[int, _Arguments] = {}  # in the order in which they were begun
        self._done: dict[int, str] = {}
        self._doubled: set[str] = set()

    @property
    def count(self) -> int:
        """Return the number of calls so far."""
        return len(self._open) + len(self._done)

    def take(
        self, index: int, name: str | None, arguments: str | Mapping[str, Any] | None, provided: str | None = None
    ) -> None:
        """Take a fragment of one call: of its name, its arguments or both; `provided` is the provider's id of it."""
        if index in self._done:
            if isinstance(arguments, str) and arguments.strip():
                self._doubled.add(self._done[index])
            return
        call = self._open.setdefault(index, _Arguments(""))
        call.name += name or ""
        call.provided = provided or call.provided
        if isinstance(arguments, str):
            call.take(arguments)
        elif arguments is not None:
            call.value = {**(call.value or {}), **arguments}
            call.is_complete = True

    def ready(self, *, is_over: bool = False) -> Iterator[dict[str, Any]]:
        """Yield each complete call once; with `is_over` also those that are not complete."""
        for index, call in list(self._open.items()):
            if not (call.is_complete or is_over):
                return
            del self._open[index]
            tool = self._tools.get(call.name, call.name)  # the executor refuses a tool that was not offered
            self._done[index] = tool or ANSWER
            if call.has_more:
                self._doubled.add(tool or ANSWER)
            yield self._part(tool, call)
        if is_over:
            for name in sorted(self._doubled):
                yield {"_tool": name, "_bad": "there was more than one JSON object in one call, the first was taken"}
            self._doubled.clear()

    def _part(self, tool: str | None, call: _Arguments) -> dict[str, Any]:
        try:
            arguments = call.read()
        except ValueError as error:
            bad = {"_tool": tool or ANSWER, "_bad": f"its arguments are no JSON object ({error}): {call.shown()}"}
            return ProvidedCall(bad, call.provided)
        if tool is None:
            return {"output": arguments.get("output")}
        wire = {"_tool": tool, **{key: value for key, value in arguments.items() if key != "_tool"}}
        return ProvidedCall(wire, call.provided)
