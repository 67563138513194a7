"""Calls that ask a model again. There are three kinds of them.

A *delegated* call is answered by a saved request, which its `_delegate` names. A *latent* call is one of a tool that no
function carries out: the model writes its result. It is asked for that in a request of its own, made once the values
that the call refers to are known. A *consultation* asks an advisor.

In the loop (`planning.llm.loop`) each of them is a run of requests of its own, inside the current one; a delegated
request may make such calls again. All nested runs share the requests and calls that the outermost run is allowed
(`Allowance`), and they are at most `MOST_DEEP` deep. A delegated request reads its definition, the parameters of its
call and the messages that the call's `_scopes` name, and nothing else of the outer run. An executor gets the functions
that carry out these calls as `activities`, by the name of the tool or kind.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from msgspec import Struct, field

from planning.llm.response import added
from planning.ports import Kind, Usage
from planning.prompt.advisors import CONSULT
from planning.prompt.prompts import THINKING
from planning.prompt.tool_specs import mapping
from spar.checks import shorten
from spar.data.blackboard import Board, message_of
from spar.data.json_schema import alone
from spar.errors import PermanentError
from spar.types import Call

#: Most runs inside one another, below the outermost.
MOST_DEEP: Final = 5


class Allowance(Struct):
    """Numbers of requests and calls that are left; shared by all nested runs."""

    requests: int
    calls: int

    def take(self, quantity: str) -> bool:
        """Take one of the `requests` or `calls`, as `quantity` says; return False when there is none left."""
        left = getattr(self, quantity)
        if left <= 0:
            return False
        setattr(self, quantity, left - 1)
        return True


class Frame(Struct):
    """State of one run of requests: its depth (0: the outermost), its allowance, its messages so far, its advisors by
    name, their advice so far, and its usage (with that of nested runs)."""

    allowance: Allowance
    depth: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)
    advisors: dict[str, Any] = field(default_factory=dict)
    advice: list[dict[str, Any]] = field(default_factory=list)
    usage: Usage | None = None

    def inner(self) -> Frame:
        """Return the frame of a run inside this one. Raises: PermanentError when runs are nested too deeply."""
        if self.depth >= MOST_DEEP:
            raise PermanentError(f"requests inside requests go at most {MOST_DEEP} deep, and this one would be deeper")
        return Frame(self.allowance, self.depth + 1)

    def took(self, usage: Usage) -> None:
        """Add the usage of a request."""
        self.usage = usage if self.usage is None else added(self.usage, usage)


#: The state of the run for which the current code is carried out; None outside of a run.
FRAME: ContextVar[Frame | None] = ContextVar("frame", default=None)

#: The path of an empty saved request.
ANONYMOUS: Final = "anonymous"

#: Saved requests, `{"context": […], "schema": …}` each, by path, or a function that returns one by its path.
Definitions = Mapping[str, Any] | Callable[[str], Any]
#: Runs requests inside the current run. Takes context, schema of the output, kind and instructions; returns the output.
Ask = Callable[[Iterable[Any], "Mapping[str, Any] | None", Kind, "str | None"], Awaitable[Any]]

#: The tool that asks an advisor, in the form that an executor takes. A request shows the model another description of
#: it, with the request's own advisors.
CONSULTATION: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "_tool": {"const": CONSULT},
        "_effect": {"const": "read"},
        "_bringsUntrusted": {"const": False},  # an advisor reads what the request holds, and has no tools
        "advisor": {"type": "string"},
        "question": {"type": "string"},
    },
    "required": ["advisor", "question"],
}


class Delegates:
    """Functions that carry out calls by asking a model; `activities` is for `Executor(…, activities=…)`.

    All of them raise PermanentError for a call that cannot become a request or gets no answer, and what the model
    raises. Args: frame: returns the state of the run that makes the call.
    """

    def __init__(self, ask: Ask, definitions: Definitions | None, frame: Callable[[], Frame | None]) -> None:
        self._ask, self._definitions, self._frame = ask, definitions if definitions is not None else {}, frame
        self.activities: dict[str, Callable[..., Awaitable[Any]]] = {
            "_delegate": self.delegate,
            "_latent": self.write,
            CONSULT: self.consult,
        }

    async def delegate(self, call: Call, tool: Mapping[str, Any], context: list[dict[str, Any]]) -> Any:
        """Return the output of the saved request that a call with `_delegate` names (`anonymous`: an empty one)."""
        definition = await self._definition(str(call.meta.get("_delegate")))
        base = definition.get("context", ())
        if isinstance(base, (str, bytes, Mapping)) or not isinstance(base, Iterable):
            raise PermanentError(f"the context of delegate {call.meta['_delegate']!r} is no list of messages")
        schema = definition.get("schema")
        output = schema if isinstance(schema, Mapping) else result_schema(tool)
        # The messages of the call come after those of the definition.
        return await self._ask([*base, *context, message_of("input", dict(call.params))], output, "delegate", None)

    async def write(self, call: Call, tool: Mapping[str, Any], context: list[dict[str, Any]]) -> Any:
        """Return the result of a latent call, which the model writes now that all values it refers to are known."""
        messages = [*context, message_of("input", dict(call.params))]
        about = tool.get("description")
        instructions = f"{THINKING}\n\n{about}" if isinstance(about, str) and about else None
        return await self._ask(messages, result_schema(tool), "latent", instructions)

    async def consult(self, call: Call, tool: Mapping[str, Any], context: list[dict[str, Any]]) -> Any:
        """Return the answer of one of the current run's advisors."""
        frame = self._frame()
        advisors = frame.advisors if frame is not None else {}
        name = call.params.get("advisor")
        if frame is None or name not in advisors:
            known = ", ".join(advisors) or "none"
            raise PermanentError(f"no advisor {shorten(name)}; known: {known}")
        advisor = advisors[name]
        data = [message for message in frame.messages if isinstance(message.get("type"), str)]
        seen = Board(data).messages_of(map(str, advisor.get("scopes") or ()))
        asked = message_of("input", {"question": call.params.get("question")})
        instructions = f"{THINKING}\n\nYou are the advisor {name!r}: {advisor.get('role') or 'no role given'}"
        schema = {"type": "object", **mapping(advisor.get("schema"))}
        advice = await self._ask([*seen, *context, asked], schema, "latent", instructions)
        frame.advice.append({"id": name, **advice} if isinstance(advice, Mapping) else {"id": name, "advice": advice})
        return advice

    async def _definition(self, path: str) -> Mapping[str, Any]:
        """Return a saved request by its path. Raises: PermanentError when there is none."""
        if path == ANONYMOUS:
            return {}
        definitions = self._definitions
        if isinstance(definitions, Mapping):
            definition = definitions.get(path)
            known = f"; known: {', '.join(map(str, definitions)) or 'none'}"
        else:
            definition, known = definitions(path), ""
            if inspect.isawaitable(definition):
                definition = await definition
        if not isinstance(definition, Mapping):
            raise PermanentError(f"no definition of the delegate {shorten(path)}{known}")
        return definition


def result_schema(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema of a tool's result, with the definitions that it refers to; None for any value."""
    output = mapping(tool.get("properties")).get("_output")
    if not isinstance(output, Mapping):
        return None
    # `$schema`, the dialect, is left out: providers read this schema, and not all of them accept the keyword.
    schema: Mapping[str, Any] = alone({key: value for key, value in tool.items() if key != "$schema"}, output)
    return schema
