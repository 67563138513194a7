"""Tools: the port, and `@tool`, which says of a function how it may be called.

The executor reads the schema off the signature.

@tool(effect="read", timeout=10)
async def weather(city: str) -> str:
    "The weather in a city."
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, TypeVar, overload

from msgspec import Struct

Effect = Literal["read", "idempotent", "once"]
F = TypeVar("F", bound=Callable[..., Any])
Approval = Literal["auto", "ask", "deny"]
OnError = Literal["error", "branch"]
Order = Literal["parallel", "plan"]
#: Names that calls exclude each other by, or a function that gives them for a call's parameters.
Resources = tuple[str, ...] | Callable[[Mapping[str, Any]], Iterable[str]]


class Tool(Protocol):
    """Something a call can invoke. `schema` is a JSON schema object whose `properties._tool.const` is the name."""

    name: str
    schema: Mapping[str, Any]
    effect: Effect
    timeout: float

    async def __call__(self, **params: Any) -> Any: ...


class ToolTerms(Struct, frozen=True):
    """Under which terms a tool is called: `effect`, `timeout` and `retries` per attempt (seconds, count),
    `approval`, whether the run waits for it (`detach`), how many at once (`concurrency`, 0 = any number).

    `rate` is how many attempts may start in which time (`"10/min"`, `"2/s"`; "" = any number); calls that share a name
    in `resources` never overlap and start in the order of the plan, `order="plan"` lets the calls of this tool run one
    after another in that order. `on_error="branch"` writes what it raises to the last alternative of the call's output
    path. `safe_with_untrusted` says that text from outside may fill its parameters without a person looking,
    `brings_untrusted` that what it returns is such text: calls that read it are untrusted.
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
    brings_untrusted: bool = False


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
    brings_untrusted: bool = False,
) -> Callable[[F], F]: ...
def tool(function: F | None = None, /, **terms: Any) -> Any:
    """Mark a typed function as a tool; it stays callable as before.

    A bound method or a builtin is wrapped: the terms are those of what is returned.
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


def terms_of(function: Any) -> ToolTerms:
    """The terms that a function or tool object states, or the defaults."""
    found = getattr(function, "__spar_tool__", None)
    return found if isinstance(found, ToolTerms) else ToolTerms()
