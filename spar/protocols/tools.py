"""Tools: the port, and `@tool`, which states how a function may be called.

The executor reads the schema from the signature.

@tool(effect="read", timeout=10)
async def weather(city: str) -> str:
    "The weather in a city."
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, Protocol, TypeVar, overload, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

Effect = Literal["read", "idempotent", "once"]
F = TypeVar("F", bound=Callable[..., Any])
Approval = Literal["auto", "ask", "deny"]
OnError = Literal["error", "branch"]
Order = Literal["parallel", "plan"]
#: Beginning of the names of resources of which each process that runs the agent has its own.
OF_NODE: Final = "node:"
#: Names of resources: calls that share one exclude each other. A function returns the names for a call's parameters.
Resources = tuple[str, ...] | Callable[[Mapping[str, Any]], Iterable[str]]


class Tool(Protocol):
    """Object that a call can invoke. `schema` is a JSON schema object whose `properties._tool.const` is the name."""

    name: str
    schema: Mapping[str, Any]
    effect: Effect
    timeout: float

    async def __call__(self, **params: Any) -> Any: ...


@runtime_checkable
class ToolSource(Protocol):
    """Part that offers tools and is not one itself; its tools may change while it is open."""

    def tools(self) -> Iterable[Any]:
        """Return the present tools."""


class ToolTerms(Struct, frozen=True):
    """Terms of a tool's calls.

    `timeout` are the seconds of one attempt, `retries` the number of further attempts. `detach` says that the run does
    not wait for the call; `concurrency` is how many calls may run at once (0: any number).
    `rate` is how many attempts may start in which time (`"10/min"`, `"2/s"`; "": any number). Calls that share a name
    in `resources` never overlap and start in the order of the plan; those of other nodes do not overlap with them
    unless the name begins with `node:`. `order="plan"` runs the calls of this tool one after another in that order.
    `on_error="branch"` writes an exception to the last alternative of the call's output path. `safe_with_untrusted`
    says that text from outside may fill its parameters without approval by a person;
    `brings_untrusted` says whether its result is such text: calls that read it are untrusted. A tool that does not say
    so (None) brings such text if it comes from the configuration, from a source or as a schema; a function or object
    that a program gives to its own executor only passes on the trust in its parameters.
    """

    name: str = ""
    effect: Effect = "once"
    timeout: float = 60.0
    retries: int = 0
    approval: Approval = "auto"
    detach: bool = False
    concurrency: int = 0
    rate: str = ""
    resources: Resources = ()
    order: Order = "parallel"
    on_error: OnError = "error"
    safe_with_untrusted: bool = False
    brings_untrusted: bool | None = None


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str = "",
    effect: Effect = "once",
    timeout: float = 60.0,
    retries: int = 0,
    approval: Approval = "auto",
    detach: bool = False,
    concurrency: int = 0,
    rate: str = "",
    resources: Resources = (),
    order: Order = "parallel",
    on_error: OnError = "error",
    safe_with_untrusted: bool = False,
    brings_untrusted: bool | None = None,
) -> Callable[[F], F]: ...
def tool(function: F | None = None, /, **terms: Any) -> Any:
    """Mark a typed function as a tool; it stays callable as before.

    A bound method or a builtin is wrapped: then the returned function is marked.
    `effect`: `read` changes nothing, `idempotent` may be repeated, `once` (the default) never is.
    """

    def mark(target: Any) -> Any:
        stated = ToolTerms(**terms)
        try:
            target.__spar_tool__ = stated
        except (AttributeError, TypeError):  # a bound method or a builtin takes no attributes
            target = functools.update_wrapper(functools.partial(target), target)
            target.__spar_tool__ = stated
        return target

    return mark if function is None else mark(function)


def terms_of(tool: Any) -> ToolTerms:
    """Return the terms that a tool states by `@tool` or as attributes of an object, or the defaults; the name of a
    function that states none is its own."""
    terms = getattr(tool, "__spar_tool__", None)
    terms = terms if isinstance(terms, ToolTerms) else ToolTerms()
    target = tool.func if isinstance(tool, functools.partial) else tool
    if target is tool and not inspect.isroutine(tool):
        given = {key: getattr(tool, key, None) for key in ToolTerms.__struct_fields__}
        terms = replace(terms, **{key: value for key, value in given.items() if value is not None})
    return terms if terms.name else replace(terms, name=getattr(target, "__name__", ""))


def is_source(part: Any) -> bool:
    """Return whether a part is a source of tools."""
    return isinstance(part, ToolSource) and callable(part.tools) and not isinstance(part, Mapping)


def name_of(tool: Any) -> str:
    """Return the name of a tool in calls; a source of tools has `name__*`."""
    name = str(terms_of(tool).name)
    return f"{name}__*" if is_source(tool) else name
