"""A solution as function calls: what is offered instead of the schema of `calls`, and what comes back. Pure.

Each alternative of the schema's `calls` becomes a function; its parameters and its own keys (`_after`, `_outputPath`,
…) are the function's parameters. The schema of the answer becomes a function too. What comes back in fragments becomes
calls again, each as soon as its arguments are complete, in the order in which they were begun: calls depend on it.

Arguments that are no JSON object make a call with `_bad`, which says why: the executor refuses it, and the model reads
that with its next request. JSON is taken strictly: no key twice, no NaN. Whether a call makes sense is not judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

from planning.output_check import closed
from planning.ports import ProvidedCall
from planning.strict_json import Signs, strict

#: The function that ends the work, where the answer has a schema.
ANSWER: Final = "answer"
#: What every provider takes as a name of a function.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
#: What providers do not take at the top of a function's schema; the executor judges by the tool's own.
_NOT_AT_THE_TOP = frozenset({"allOf", "anyOf", "oneOf", "not", "enum", "const", "if", "then", "else",
                             "dependentRequired", "dependentSchemas", "description"})  # fmt: skip
_DEFS = "#/$defs/"


class NativeFunction(NamedTuple):
    """A function as the provider is told of it; `tool` is the name that a call of it carries, None for the answer."""

    name: str
    tool: str | None
    description: str
    parameters: dict[str, Any]


def native_functions(schema: Mapping[str, Any], answer: Mapping[str, Any] | None) -> list[NativeFunction]:
    """The functions that stand for a solution's schema; the one for the answer last, where that has a schema."""
    alternatives = [each for each in _alternatives(schema) if isinstance(_tool(each), str)]
    tools = dict(zip(map(_tool, alternatives), alternatives, strict=True))  # of one name the last counts
    names = _names(tools, taken=() if answer is None else (ANSWER,))
    defs = schema.get("$defs", {})
    made = [
        NativeFunction(names[tool], tool, str(each.get("description", "")), _parameters(each, defs))
        for tool, each in tools.items()
    ]
    if answer is not None:
        answer = closed(answer)
        output: dict[str, Any] = {"type": "object", "properties": {"output": answer}, "required": ["output"]}
        if isinstance(answer.get("$defs"), Mapping):  # its references mean the document that it was
            output["properties"] = {"output": {key: value for key, value in answer.items() if key != "$defs"}}
            output["$defs"] = answer["$defs"]
        made.append(NativeFunction(ANSWER, None, "Gives the answer and ends the work.", output))
    return made


def _alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: Any = schema
    for key in ("properties", "calls", "items", "anyOf"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, (list, tuple)) else []


def _tool(alternative: Mapping[str, Any]) -> Any:
    named = alternative.get("properties", {}).get("_tool")
    return named.get("const") if isinstance(named, Mapping) else None


def _parameters(alternative: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    made = {key: value for key, value in alternative.items() if key not in _NOT_AT_THE_TOP}
    made["properties"] = {key: value for key, value in alternative["properties"].items() if key != "_tool"}
    made["required"] = [name for name in alternative.get("required", ()) if name != "_tool"]
    if named := _reachable(made, defs):
        made["$defs"] = named
    return made


def _reachable(part: Any, defs: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions that a schema refers to, directly or not, in the order of the document.

    They are only named: `spar.data.json_schema` judges by them, `planning.prompt.schema_merge` copies them.
    """
    found: set[str] = set()
    left = [part]
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            ref = part.get("$ref")
            if isinstance(ref, str) and ref.startswith(_DEFS):
                name = ref.removeprefix(_DEFS).split("/")[0].replace("~1", "/").replace("~0", "~")
                if name in defs and name not in found:
                    found.add(name)
                    left.append(defs[name])
            left.extend(part.values())
        elif isinstance(part, (list, tuple)):
            left.extend(part)
    return {name: defs[name] for name in defs if name in found}


def function_names(tools: Iterable[str], functions: Iterable[NativeFunction]) -> dict[str, str]:
    """The names under which calls of these tools are told of: those that are offered, others as they would be."""
    known = {each.tool: each.name for each in functions if each.tool is not None}
    others = _names([tool for tool in tools if tool not in known], taken=[*known.values(), ANSWER])
    return {**others, **known}


def _names(tools: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """A name that any provider takes for each tool: its own where it can be, no two the same, the same every time."""
    used = set(taken)
    names: dict[str, str] = {}
    for tool in sorted(tools, key=lambda name: _NAME.fullmatch(name) is None):  # who can keep its name does
        name = _FOREIGN.sub("_", tool)
        name = name if _NAME.match(name) else f"_{name}"
        if name in used or len(name) > 64:
            name = f"{name[:53]}_{sha256(tool.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"
        used.add(name)
        names[tool] = name
    return names


# -- what comes back


_OPENING, _CLOSING = frozenset("{["), frozenset("}]")
_BRACKETS = re.compile(r'["{}\[\]]')


class _Arguments:
    """The arguments of one call as they come: knows when the object is complete without reading it twice."""

    __slots__ = ("_depth", "_parts", "_signs", "has_more", "is_complete", "name", "provided", "value")

    def __init__(self, name: str) -> None:
        self.name, self.provided = name, ""
        self.value: Mapping[str, Any] | None = None  # where a provider hands it over as such
        self.is_complete = self.has_more = False
        self._signs, self._depth = Signs(), 0
        self._parts: list[str] = []

    def take(self, fragment: str) -> None:
        """Take the next fragment. What comes behind a complete object is another one, which has no name."""
        at = 0
        while at < len(fragment) and not self.is_complete:
            sign, at = self._signs.next(fragment, at, _BRACKETS)
            self._depth += (sign in _OPENING) - (sign in _CLOSING)
            self.is_complete = sign in _CLOSING and self._depth <= 0
        self._parts.append(fragment[:at])
        self.has_more = self.has_more or bool(fragment[at:].strip())

    def read(self) -> Mapping[str, Any]:
        """The object. Raises: ValueError saying why it is none."""
        if self.value is not None:
            return self.value
        text = "".join(self._parts)
        if not text.strip():
            return {}  # how many providers call a function without parameters
        try:
            value = strict(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(value, dict):
            raise ValueError(f"found {type(value).__name__}")
        return value

    def shown(self) -> str:
        """The beginning of it as it came."""
        text = "".join(self._parts)
        return text if len(text) <= 200 else f"{text[:200]}…"


class Calls:
    """Calls in the making. Used by one reader; `index` is whatever tells the provider's calls apart."""

    def __init__(self, functions: Iterable[NativeFunction]) -> None:
        self._tools = {each.name: each.tool for each in functions}
        self._open: dict[int, _Arguments] = {}  # in the order in which they were begun
        self._done: dict[int, str] = {}
        self._doubled: set[str] = set()
        self.has_answer = False

    @property
    def count(self) -> int:
        """Return the number of calls so far."""
        return len(self._open) + len(self._done)

    def take(
        self, index: int, name: str | None, arguments: str | Mapping[str, Any] | None, provided: str | None = None
    ) -> None:
        """Take a piece of one call: of its name, of its arguments, or both; `provided` is the provider's id of it."""
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
        """Yield each call that is complete, once; with `is_over` all that are left, complete or not."""
        for index, call in list(self._open.items()):
            if not (call.is_complete or is_over):
                return
            del self._open[index]
            tool = self._tools.get(call.name, call.name)  # a name that nobody offered: the executor says what there is
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
            self.has_answer = True
            return {"output": arguments.get("output")}
        wire = {"_tool": tool, **{key: value for key, value in arguments.items() if key != "_tool"}}
        return ProvidedCall(wire, call.provided)
