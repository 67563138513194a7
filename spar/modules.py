"""What a user gives as a phase, made callable in one way.

A module is an object with the phase's method, or a bare function; async, blocking or a generator of calls;
with or without a last parameter for the `Context`. All of that is found out once, here.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from spar.clock import Clock
from spar.errors import ContractError
from spar.outside import answering
from spar.plan_stream import OpenPlan
from spar.protocols import Context
from spar.threads import Threads
from spar.types import (
    Ability,
    Action,
    ActionResult,
    Call,
    CallResult,
    Experience,
    Perception,
    Phase,
    Reflection,
    replace,
)

#: How many values a phase hands over before the optional `Context`.
VALUES: dict[Phase, int] = {"sense": 0, "plan": 1, "act": 1, "reflect": 1}


class Module:
    """One phase's module: `await call(*values, context)`; `wants_context` says whether to make a context at all."""

    __slots__ = ("_function", "_is_async", "_threads", "call", "name", "part", "phase", "streams_with_context",
                 "wants_context")  # fmt: skip

    def __init__(self, phase: Phase, part: Any, clock: Clock) -> None:
        method = getattr(part, phase, None)
        function = method if callable(method) else part
        if not callable(function):
            raise ContractError(f"{phase}= must be a function or an object with a method {phase!r}, found {part!r}")
        self.phase, self.part, self._function = phase, part, function
        self.name = _name_of(part)
        if inspect.isclass(part) and inspect.isfunction(inspect.getattr_static(part, phase, None)):
            raise ContractError(f"{phase}= must be an object, found the class {self.name}: give {self.name}(…)")
        self.wants_context = takes_context(function, VALUES[phase])
        _demand_parameters(function, phase, self.name, VALUES[phase] + self.wants_context)
        stream = getattr(part, "act_stream", None)
        self.streams_with_context = stream is not None and takes_context(stream, 2)
        self._is_async = _is_async(function)
        self._threads = Threads(f"{phase} module {self.name}", clock)
        # The hot path calls an async function of the right shape directly.
        self.call: Callable[..., Coroutine[Any, Any, Any]] = function if self._is_async else self._in_thread
        if inspect.isasyncgenfunction(function):
            self.call = self._generate

    async def _in_thread(self, *values: Any) -> Any:
        product = await self._threads.run(self._function, *values)
        return await product if inspect.isawaitable(product) else product

    async def _generate(self, *values: Any) -> Any:
        return self._function(*values)

    @property
    def left_behind(self) -> int:
        """How many blocking calls were abandoned and still hold a thread."""
        return self._threads.left_behind


def takes_context(function: Callable[..., Any], values: int) -> bool:
    """Whether a function accepts one more argument than its values, to be given a `Context`.

    A parameter with a default is the author's own unless it is annotated `Context` or called `context` or `ctx`.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) <= values:
        return False
    extra = positional[values]
    return extra.default is extra.empty or extra.name in ("context", "ctx") or _is_context(extra.annotation)


def _is_context(annotation: Any) -> bool:
    """Whether an annotation, perhaps still a string, perhaps with `| None`, is `Context`."""
    return annotation is Context or re.search(r"\bContext\b", str(annotation)) is not None


def _demand_parameters(function: Callable[..., Any], phase: Phase, name: str, count: int) -> None:
    """Refuse at construction what could never be called. Raises: ContractError."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a built-in that does not tell: it is tried
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        values = "no argument" if count == 0 else f"{count} positional argument{'s' if count > 1 else ''}"
        raise ContractError(f"{phase} of {name} is called with {values}, and takes {signature}: {error}") from None


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _name_of(part: Any) -> str:
    if isinstance(part, functools.partial):
        return _name_of(part.func)
    if inspect.isroutine(part) or inspect.isclass(part):
        return getattr(part, "__qualname__", repr(part))
    return type(part).__qualname__


# -- what each phase owes (the loop fills what a module left empty) -----------------------------------------


def perceptions_of(product: Any, name: str, given: Any = None) -> tuple[Perception, ...]:
    """Freeze what sense returned: None is none, a bare perception is one. Raises: ContractError."""
    if isinstance(product, (list, tuple)):
        perceptions = tuple(product)
        for item in perceptions:
            if not isinstance(item, Perception):
                raise ContractError(f"sense of {name} must return Perceptions, found {_described(item)} in its list")
        return perceptions
    if product is None:
        return ()
    if isinstance(product, Perception):
        return (product,)
    raise ContractError(f"sense of {name} must return a list of Perception, found {_described(product)}")


def action_of(product: Any, name: str, perceptions: Sequence[Perception]) -> Action | OpenPlan | None:
    """Return what plan returned, with the perceptions it followed from and no more trust than they have.

    Raises: ContractError.
    """
    if product is None or type(product) is OpenPlan:
        return product
    if not isinstance(product, Action):
        raise ContractError(
            f"plan of {name} must return an Action, a stream of calls or None, found {_described(product)}"
        )
    if product.calls != ():
        _demand_items(product.calls, Call, f"plan of {name}", "Action.calls")
    if product.next_look is not None:
        _demand_number(product.next_look, f"plan of {name}", "Action.next_look")
    return answering(product, perceptions)


def result_of(product: Any, name: str, action: Action | OpenPlan) -> ActionResult:
    """What act returned, with the action it belongs to. Raises: ContractError."""
    if not isinstance(product, ActionResult):
        raise ContractError(f"act of {name} must return an ActionResult, found {_described(product)}")
    if product.results != ():
        _demand_items(product.results, CallResult, f"act of {name}", "ActionResult.results")
    if product.messages != ():
        _demand_items(product.messages, dict, f"act of {name}", "ActionResult.messages")
    if product.errors != ():
        _demand_items(product.errors, dict, f"act of {name}", "ActionResult.errors")
    if product.action is not None:
        return product
    return replace(product, action=action.action if isinstance(action, OpenPlan) else action)


def reflection_of(product: Any, name: str, result: ActionResult) -> Reflection:
    """What reflect returned, with the result it is about; None is an empty one. Raises: ContractError."""
    if product is None:
        return Reflection(result=result)
    if not isinstance(product, Reflection):
        raise ContractError(f"reflect of {name} must return a Reflection, found {_described(product)}")
    if product.abilities != ():
        _demand_items(product.abilities, Ability, f"reflect of {name}", "Reflection.abilities")
    if product.experiences != ():
        _demand_items(product.experiences, Experience, f"reflect of {name}", "Reflection.experiences")
    if product.next_look is not None:
        _demand_number(product.next_look, f"reflect of {name}", "Reflection.next_look")
    return product if product.result is not None else replace(product, result=result)


def _demand_items(items: Any, kind: type, whose: str, field: str) -> None:
    """What the loop goes through after the phase must be as it says: there nobody would be blamed for it."""
    if not isinstance(items, (tuple, list)):
        raise ContractError(f"{whose} must put a tuple into {field}, found {_described(items)}")
    for item in items:
        if not isinstance(item, kind):
            raise ContractError(f"{whose} must put {kind.__name__} into {field}, found {_described(item)}")


def _demand_number(seconds: Any, whose: str, field: str) -> None:
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and not math.isnan(seconds):
        return
    raise ContractError(f"{whose} must put seconds or None into {field}, found {_described(seconds)}")


#: What a phase's product is held to, by phase: `(product, name of the module, what the phase was given)`.
PRODUCT_OF: dict[Phase, Callable[[Any, str, Any], Any]] = {
    "sense": perceptions_of,
    "plan": action_of,
    "act": result_of,
    "reflect": reflection_of,
}


def _described(value: object) -> str:
    try:
        return f"{type(value).__name__} ({value!r:.60})"
    except Exception:  # a broken __repr__ must not hide what is wrong
        return type(value).__name__
