"""Ports of the four modules, and what a module may offer besides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, field

from spar.types import Action, ActionResult, Call, Perception, Reflection


class Senser(Protocol):
    """Module of the phase sense. After an exception the cycle is skipped, and the next one senses again."""

    async def sense(self) -> Sequence[Perception]: ...


class Planner(Protocol):
    """Module of the phase plan: returns one action, or None for nothing to do. May be an async generator of calls (a
    stream)."""

    async def plan(self, perceptions: Sequence[Perception]) -> Action | None: ...


class Actor(Protocol):
    """Module of the phase act: returns the result of an action, with exactly one `CallResult` for each call."""

    async def act(self, action: Action) -> ActionResult: ...


@runtime_checkable
class Warns(Protocol):
    """Module that knows before its use which parts of its configuration will not work."""

    def warnings(self) -> Sequence[str]:
        """Return a sentence for each problem, with what to do about it."""


class WrittenCall(Struct, frozen=True):
    """Call that a planner's configuration spells out.

    `path` is the place of its parameters, `unresolved` are the names of parameters whose values are known only when it
    is made.
    """

    path: tuple[str | int, ...]
    tools: tuple[str, ...]
    params: Mapping[str, Any]
    unresolved: frozenset[str]


class ModelQuestion(Struct, frozen=True):
    """Self-contained question of a part that has no model of its own.

    A model reads `instructions` first, then `data`: messages in wire form, which contain all that the question is
    about. `schema` is the JSON schema of the answer, which has at most `max_tokens`; `purpose` says for the record who
    asks, in the cycle `cycle_id`.
    """

    instructions: str
    data: tuple[Mapping[str, Any], ...]
    schema: Mapping[str, Any]
    max_tokens: int
    purpose: str
    cycle_id: str


#: Function that answers a question with a value that is valid for its schema. Raises: ContractError if the answer is
#: not valid, or is empty; TransientError while no model can be asked or a budget is used up; other errors of the model.
Ask = Callable[[ModelQuestion], Awaitable[Any]]


class Lent(Struct, frozen=True):
    """Loan of a planner to other modules.

    The actor gets `tools`, and `activities`, which carry out calls that need a model. The reflector gets `ask`, which
    answers questions by the planner's model; None if there is no model.
    """

    tools: tuple[Any, ...] = ()
    activities: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    ask: Ask | None = None


class Reflector(Protocol):
    """Module of the phase reflect: returns what was learnt from a result. The agent stores the experiences."""

    async def reflect(self, result: ActionResult) -> Reflection: ...


SenseFunction = Callable[..., Awaitable[Sequence[Perception] | Perception | None] | Sequence[Perception] | None]
_Plan: TypeAlias = Action | Sequence[Call | Mapping[str, Any]] | None
PlanFunction = Callable[..., Awaitable[_Plan] | AsyncIterator[Any] | _Plan]
ActFunction = Callable[..., Awaitable[ActionResult] | ActionResult]
ReflectFunction = Callable[..., Awaitable[Reflection | None] | Reflection | None]


class SenseModule(Protocol):
    """Object with a method `sense`."""

    @property
    def sense(self) -> SenseFunction: ...


class PlanModule(Protocol):
    """Object with a method `plan`."""

    @property
    def plan(self) -> PlanFunction: ...


class ActModule(Protocol):
    """Object with a method `act`."""

    @property
    def act(self) -> ActFunction: ...


class ReflectModule(Protocol):
    """Object with a method `reflect`."""

    @property
    def reflect(self) -> ReflectFunction: ...
