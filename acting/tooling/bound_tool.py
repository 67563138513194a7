"""One tool: its terms, its parameters, and the one way to invoke it.

A tool is a function marked by `@tool`, a plain typed function, an object with `name`, `schema`, `effect`, `timeout` and
`async __call__(**params)`, or a schema. A blocking function runs in threads of the tool. A schema is carried out by an
*activity*: a handler, found by the name that the schema gives or else by the tool's name. A schema without an activity
is *latent*: the planner that writes the call writes its result too. A tool is read once, here, when it is registered.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from math import isnan
from types import CoroutineType
from typing import Any, get_args

from msgspec.structs import replace

from acting.tooling.context import ToolContext
from acting.tooling.limits import RATE, Slots
from acting.tooling.parameters import Parameters
from acting.tooling.tool_schema import ToolSchema
from spar.checks import shorten
from spar.clock import Clock
from spar.data.json_schema import Output
from spar.errors import ConfigError
from spar.protocols import Effect
from spar.protocols.tools import Approval, OnError, Order, ToolTerms, terms_of
from spar.threads import Threads
from spar.types import Call

BLOCKING_LIMIT = 8  # calls at once of a blocking tool that states no concurrency: each holds a thread

#: The coroutine of one attempt at a call.
Attempt = Coroutine[Any, Any, Any]
#: The handler of a tool that is only a schema: `handler(call, tool's schema, messages of its scopes)`.
Activity = Callable[..., Any]


class UnresolvedError(RuntimeError):
    """Error of `Resolved`: the value of this parameter is not known yet."""


class Resolved(Mapping[str, Any]):
    """The parameters of a call while some of them still refer to results of other calls.

    Reading one of those raises UnresolvedError.
    """

    def __init__(self, params: Mapping[str, Any], unresolved: Collection[str]) -> None:
        self._params, self._unresolved = params, unresolved

    def __getitem__(self, name: str) -> Any:
        if name in self._unresolved:
            raise UnresolvedError(name)
        return self._params[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)


class BoundTool:
    """One tool: `terms`, `parameters`, `slots` (its limit of concurrent calls), `target` (the registered object)."""

    __slots__ = ("_call", "_names", "_resources", "_threads", "activity", "context", "effect", "effect_of", "function",
                 "has_resources", "is_blocking", "is_free", "is_let", "is_plain", "name", "output", "parameters",
                 "rules", "slots", "target", "terms", "wants_messages")  # fmt: skip

    def __init__(
        self, name: str, target: Any, terms: ToolTerms, parameters: Parameters, call: Callable[..., Any]
    ) -> None:
        self.name, self.target, self.terms, self.parameters, self._call = name, target, terms, parameters, call
        self.context = parameters.context  # the name of the parameter annotated `ToolContext`, or ""
        #: Whether the tool takes the messages that the `_scopes` of a call select.
        self.wants_messages = bool(self.context)
        self.is_blocking = not is_async(call)
        #: The async function of the tool: `function(**params)` is one attempt. None where `invoke` has to do more.
        self.function: Callable[..., Attempt] | None = call if inspect.iscoroutinefunction(call) else None
        self.slots = Slots(terms.concurrency or (BLOCKING_LIMIT if self.is_blocking else 0))
        self._threads: Threads | None = None
        self.output: Output | None = None
        self.rules: ToolSchema | None = None
        #: The name of the activity; the tool's name for a function or an object, "" for a latent tool.
        self.activity = name
        by_function = terms.resources if callable(terms.resources) else None
        self._names: tuple[str, ...] = () if callable(terms.resources) else terms.resources
        self._resources: list[tuple[Callable[..., Any], bool]] = [
            (function, takes_session(function))
            for function in (getattr(target, "resources_of", None), by_function)
            if function is not None
        ]
        self.has_resources = bool(terms.resources or self._resources)
        #: Whether the tool's terms never make a call wait: no concurrency, resources, rate or order.
        self.is_free = not (self.slots.limit or self.has_resources or terms.rate) and terms.order == "parallel"
        #: Whether the tool's terms let a call run without approval.
        self.is_let = terms.approval == "auto"
        #: Whether nothing in the tool's terms makes its calls others than those of a plain function.
        self.is_plain = self.is_free and self.is_let and not terms.detach
        by_params = getattr(target, "effect_of", None)
        #: The effect of all calls of the tool; None if it depends on their parameters.
        self.effect: Effect | None = None if by_params else terms.effect
        self.effect_of: Callable[[Mapping[str, Any]], Effect] = (
            functools.partial(_effect_of, by_params, terms.effect) if by_params else lambda params: terms.effect
        )

    def resources_of(self, params: Mapping[str, Any], session: str) -> tuple[str, ...]:
        """Return the names of the resources that a call of a session holds: one call at a time holds each."""
        if not self._resources:
            return self._names
        try:
            named = [
                resources(params, session=session) if is_told else resources(params)
                for resources, is_told in self._resources
            ]
            return (*self._names, *[str(name) for names in named for name in names])
        except UnresolvedError:
            raise
        except Exception:  # the tool's function failed: all such calls of this tool exclude each other
            return (*self._names, f"tool {self.name}")

    def resources_before(
        self, params: Mapping[str, Any], unresolved: Collection[str], session: str
    ) -> tuple[str, ...] | None:
        """Return `resources_of` while the parameters in `unresolved` have no value; None if it reads one of them."""
        try:
            return self.resources_of(Resolved(params, unresolved) if unresolved else params, session)
        except UnresolvedError:
            return None

    def effect_before(self, params: Mapping[str, Any], unresolved: Collection[str]) -> Effect:
        """Return the effect of a call while the parameters in `unresolved` have no value.

        The stated effect of the tool if the effect of this call depends on one of them.
        """
        return self.effect_of(Resolved(params, unresolved) if unresolved else params)

    @property
    def schema(self) -> dict[str, Any]:
        return self.parameters.schema

    def invoke(self, params: dict[str, Any], clock: Clock, call: Call, messages: Sequence[Any] = ()) -> Attempt:
        """Return the coroutine of one attempt, not started yet."""
        return self._start(self._call, params, clock)

    def _start(self, call: Callable[..., Any], params: dict[str, Any], clock: Clock) -> Attempt:
        if self.is_blocking:
            return self._in_thread(call, params, clock)
        result = call(**params)
        return result if type(result) is CoroutineType else _await(result)

    async def _in_thread(self, function: Callable[..., Any], params: dict[str, Any], clock: Clock) -> Any:
        """Run blocking code in a thread. A cancelled attempt leaves its thread running."""
        if self._threads is None:
            self._threads = Threads(f"tool {self.name}", clock, limit=self.slots.limit)
        return await answer_of(_in_thread, self._threads, function, params)


async def _await(awaitable: Any) -> Any:
    return await awaitable


def _effect_of(by_params: Callable[[Mapping[str, Any]], Any], stated: Effect, params: Mapping[str, Any]) -> Effect:
    try:
        effect = by_params(params)
    except Exception:
        return stated
    return effect if effect in get_args(Effect) else stated


def _in_thread(function: Callable[..., Any], params: dict[str, Any]) -> Any:
    try:
        return function(**params)
    except GeneratorExit as error:  # passed on to the waiting task, it would close that task
        raise RuntimeError("the tool raised GeneratorExit") from error


class SchemaTool(BoundTool):
    """A tool that is a schema; the handler of an activity carries it out."""

    __slots__ = ()

    def __init__(self, rules: ToolSchema, activity: str, handler: Activity) -> None:
        super().__init__(rules.name, handler, rules.terms, rules.parameters, handler)
        self.rules, self.output, self.activity, self.function = rules, rules.output, activity, None
        self.wants_messages = True

    def invoke(self, params: dict[str, Any], clock: Clock, call: Call, messages: Sequence[Any] = ()) -> Attempt:
        handler = functools.partial(self._call, replace(call, params=params), self.schema, list(messages))
        return self._start(handler, {}, clock)


class LatentTool(BoundTool):
    """A schema without an activity: the planner writes the result into the call (`_output`)."""

    __slots__ = ()

    def __init__(self, rules: ToolSchema) -> None:
        super().__init__(rules.name, rules, replace(rules.terms, effect="read"), rules.parameters, _nothing)
        self.rules, self.output, self.activity, self.function = rules, rules.output, "", None

    def invoke(self, params: dict[str, Any], clock: Clock, call: Call, messages: Sequence[Any] = ()) -> Attempt:
        return _return_output(call.meta["_output"])


async def _nothing() -> None:
    return None


async def _return_output(output: Any) -> Any:
    return output


def entry_of(tool: Any, *, is_foreign: bool = False) -> BoundTool:
    """Read a function or an object as a tool.

    Args: is_foreign: somebody else than the program offers it, so it brings untrusted text unless it says otherwise.
    Raises: ConfigError naming what is missing or wrong.
    """
    if not callable(tool) or isinstance(tool, type):
        raise ConfigError(f"a tool is a function or an object that can be called, found {shorten(tool)}")
    if is_generator(tool):
        name = getattr(tool, "__name__", type(tool).__name__)
        raise ConfigError(f"tool {name!r} is a generator, which returns no value: collect what it yields and return it")
    terms = terms_of(tool)
    check_terms(terms)
    terms, name = _decided(terms, brings_untrusted=is_foreign), terms.name
    if not name:
        raise ConfigError(f"a tool needs a name: {shorten(tool)} has none")
    schema = getattr(tool, "schema", None)
    if isinstance(schema, Mapping):
        parameters = Parameters.of_schema(name, schema, context=_wants_context(tool))
    else:
        parameters = Parameters.of_function(name, tool, context_type=ToolContext)
    return BoundTool(name, tool, terms, parameters, tool)


def entry_of_schema(rules: ToolSchema, activities: Mapping[str, Activity]) -> BoundTool:
    """Read a schema as a tool and find its activity.

    A schema says nothing of what its handler reads, so its results are untrusted text unless it says otherwise. Those
    of a latent tool are words of the planner. Raises: ConfigError for an activity that is not registered.
    """
    check_terms(rules.terms)
    if rules.activity and rules.activity not in activities:
        known = ", ".join(sorted(activities)) or "none"
        raise ConfigError(f"tool {rules.name!r}: no activity named {rules.activity!r}; known: {known}")
    name = rules.name if rules.activity is None else rules.activity
    handler = activities.get(name) if name else None
    rules = replace(rules, terms=_decided(rules.terms, brings_untrusted=handler is not None))
    return LatentTool(rules) if handler is None else SchemaTool(rules, name, handler)


def _decided(terms: ToolTerms, *, brings_untrusted: bool) -> ToolTerms:
    """Return the terms with this value of `brings_untrusted` if they do not state one."""
    return terms if terms.brings_untrusted is not None else replace(terms, brings_untrusted=brings_untrusted)


def check_terms(terms: ToolTerms) -> None:
    """Check each term. Raises: ConfigError naming the tool, the term, what was found and what is expected."""
    is_rate = isinstance(terms.rate, str) and RATE.match(terms.rate) is not None
    rules: tuple[tuple[str, bool, str], ...] = (
        ("name", isinstance(terms.name, str), "text"),
        ("effect", terms.effect in get_args(Effect), "read, idempotent or once"),
        ("timeout", _is_number(terms.timeout) and terms.timeout > 0, "seconds above 0"),
        ("retries", type(terms.retries) is int and terms.retries >= 0, "0 or more"),
        ("approval", terms.approval in get_args(Approval), "auto, ask or deny"),
        ("detach", isinstance(terms.detach, bool), "true or false"),
        ("rate", is_rate, "a count in a time like '10/min' or '2/s', or ''"),
        ("resources", all_text(terms.resources) or callable(terms.resources), "a tuple of names, or a function"),
        ("order", terms.order in get_args(Order), "parallel or plan"),
        ("on_error", terms.on_error in get_args(OnError), "error or branch"),
        ("safe_with_untrusted", isinstance(terms.safe_with_untrusted, bool), "true or false"),
        ("brings_untrusted", terms.brings_untrusted in (None, True, False), "true or false"),
        ("concurrency", type(terms.concurrency) is int and terms.concurrency >= 0, "0 (any number) or more"),
    )
    for key, is_fine, expected in rules:
        if not is_fine:
            raise ConfigError(f"tool {terms.name!r}: {key} is {getattr(terms, key)!r}, expected {expected}")


def all_text(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, str) and item for item in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not isnan(value)


def takes_session(function: Callable[..., Any]) -> bool:
    """Return whether a function of a tool wants the session of the call, by a parameter `session`."""
    try:
        return "session" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function without a signature, such as one of C
        return False


def is_async(function: Any) -> bool:
    """Return whether calling this gives an awaitable. Looks through partials, and at the `__call__` of objects."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or (
        not inspect.isroutine(function) and inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    )


async def answer_of(function: Callable[..., Any], threads: Threads, *args: Any) -> Any:
    """Return what a function returns that is async or may block; one that may block runs in a thread."""
    answer = function(*args) if is_async(function) else await threads.run(function, *args)
    return await answer if inspect.isawaitable(answer) else answer


def is_generator(function: Any) -> bool:
    """Return whether calling this gives a generator. Looks through partials, and at the `__call__` of objects."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    return inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)


def _wants_context(tool: Any) -> str:
    """Return the parameter annotated `ToolContext` of an object with its own schema; "" for none."""
    try:
        return Parameters.of_function("", tool, context_type=ToolContext).context
    except ConfigError:
        return ""
