"""Ports of the four modules, and what a module may offer besides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
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
class StreamingActor(Protocol):
    """Actor that can begin while the plan is still being written."""

    async def act_stream(self, action: Action, calls: AsyncIterator[Call]) -> ActionResult: ...


@runtime_checkable
class Warns(Protocol):
    """Module that knows before its use which parts of its configuration will not work."""

    def warnings(self) -> Sequence[str]:
        """Return a sentence for each problem, with what to do about it."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """Actor that continues calls of earlier cycles once what they waited for (a person's answer) is there.

    If it also has `abandon(run_id)` (`spar.ports.phases.OptionalActor`), this is called for runs that somebody ended.
    """

    def resumable(self, session: str) -> Action | None:
        """Return the action that the session's next cycle executes before anything new, until it was executed.

        Its perceptions say why it continues.
        """
        ...


@runtime_checkable
class Steerable(Protocol):
    """Actor whose current run can be steered away from calls that have not begun."""

    def steer(self, run_id: str) -> None:
        """Skip the calls of this run that have not started, with the reason `steered`: somebody has said something new.

        Calls that run finish. This applies to the current act phase of the run, or else to its next one.
        """
        ...


class WrittenCall(Struct, frozen=True):
    """Call that a configuration spells out.

    `path` is the place of its parameters, `unresolved` are the names of parameters whose values are known only when it
    is made.
    """

    path: tuple[str | int, ...]
    tools: tuple[str, ...]
    params: Mapping[str, Any]
    unresolved: frozenset[str]


@runtime_checkable
class WritesCalls(Protocol):
    """Planner whose configuration spells out calls; their tools check them before anything runs."""

    def written_calls(self) -> Iterable[WrittenCall]: ...


@runtime_checkable
class JudgesCalls(Protocol):
    """Actor that knows the parameters of its tools."""

    def objection(self, tool: str, params: Mapping[str, Any], unresolved: Collection[str] = ()) -> str:
        """Return why a tool cannot be called with these parameters; "" if it can, or if the tool is not known yet."""
        ...


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


@runtime_checkable
class Lender(Protocol):
    """Planner that carries out some calls itself (delegated work, calls that think or ask an advisor), and asks its
    model on behalf of others."""

    def lends(self) -> Lent: ...


@runtime_checkable
class Borrower(Protocol):
    """Actor that hands over such calls, or reflector that asks questions. Its own tools take precedence over lent
    ones."""

    def borrow(self, lent: Lent) -> None:
        """Replace the former loan of the planner with this one."""
        ...


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
