"""Ports of the four modules, and what a module may offer besides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct, field

from spar.types import Action, ActionResult, Call, Perception, Reflection


class Senser(Protocol):
    """SENSE as a whole. Raises what it likes: the cycle is skipped and the next one senses again."""

    async def sense(self) -> Sequence[Perception]: ...


class Planner(Protocol):
    """PLAN: perceptions to one action, or None for nothing to do. May be an async generator of calls (a stream)."""

    async def plan(self, perceptions: Sequence[Perception]) -> Action | None: ...


class Actor(Protocol):
    """ACT: an action to its result. Owes exactly one `CallResult` for each call."""

    async def act(self, action: Action) -> ActionResult: ...


@runtime_checkable
class StreamingActor(Protocol):
    """An actor that can begin while the plan is still being written."""

    async def act_stream(self, action: Action, calls: AsyncIterator[Call]) -> ActionResult: ...


@runtime_checkable
class Warns(Protocol):
    """A module that knows before it is used what of its configuration will not work."""

    def warnings(self) -> Sequence[str]:
        """Return a sentence for each thing, with what to do about it."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """An actor that goes on with calls of earlier cycles, once what they waited for (a person's answer) is there.

    If it also has `abandon(run_id)` (`spar.ports.optional.Abandonable`), it is told of runs that somebody ended.
    """

    def resumable(self, session: str) -> Action | None:
        """Return the action that the session's next cycle executes before anything new, until it was acted on.

        Its perceptions say why it goes on.
        """
        ...


@runtime_checkable
class Steerable(Protocol):
    """An actor that a run in hand can be turned away from what it has not begun yet."""

    def steer(self, run_id: str) -> None:
        """Somebody has said something new: calls of this run that have not started are skipped, reason `steered`, those
        that run finish. Counts for the tick in hand, or else for the run's next one."""
        ...


class WrittenCall(Struct, frozen=True):
    """One call as a configuration writes it out: `path` where its parameters stand, `unresolved` the names of those
    whose values are known only when it is made."""

    path: tuple[str | int, ...]
    tools: tuple[str, ...]
    params: Mapping[str, Any]
    unresolved: frozenset[str]


@runtime_checkable
class WritesCalls(Protocol):
    """A planner whose configuration writes calls out; they are judged by their tools before anything runs."""

    def written_calls(self) -> Iterable[WrittenCall]: ...


@runtime_checkable
class JudgesCalls(Protocol):
    """An actor that knows what its tools take."""

    def objection(self, tool: str, params: Mapping[str, Any], unresolved: Collection[str] = ()) -> str:
        """Return why a tool cannot be called with these parameters, "" if it can or if the tool is not known yet."""
        ...


class ModelQuestion(Struct, frozen=True):
    """Question that stands by itself, of a part that has no model of its own.

    A model reads `instructions` first, then `data`: messages on the wire, which hold all that it is about. `schema` is
    that of the answer, of at most `max_tokens`; `purpose` says who asks, for the record, in the cycle `cycle_id`.
    """

    instructions: str
    data: tuple[Mapping[str, Any], ...]
    schema: Mapping[str, Any]
    max_tokens: int
    purpose: str
    cycle_id: str


#: Answers a question, by a value that fits its schema. Raises: ContractError where the answer does not fit, or is
#: empty; TransientError while no model can be asked, or nothing is left of a budget; what a model raises besides.
Ask = Callable[[ModelQuestion], Awaitable[Any]]


class Lent(Struct, frozen=True):
    """Loan of a planner: to the actor tools, and the activities that carry out calls that need a model; to the
    reflector the model itself, by which it answers questions. `ask` is None where there is none."""

    tools: tuple[Any, ...] = ()
    activities: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    ask: Ask | None = None


@runtime_checkable
class Lender(Protocol):
    """A planner that carries out calls itself: what is delegated, thoughts whose matter came later, advisors; and that
    asks its model for others."""

    def lends(self) -> Lent: ...


@runtime_checkable
class Borrower(Protocol):
    """An actor that hands such calls over, or a reflector that asks. What it has of its own stands before what is
    lent."""

    def borrow(self, lent: Lent) -> None:
        """Take what the planner lends in the place of what it lent before."""
        ...


class Reflector(Protocol):
    """REFLECT: a result to what was learnt. Storing its experiences is the agent's work, not its own."""

    async def reflect(self, result: ActionResult) -> Reflection: ...


SenseFunction = Callable[..., Awaitable[Sequence[Perception] | Perception | None] | Sequence[Perception] | None]
_Plan = Action | Sequence[Call | Mapping[str, Any]] | None
PlanFunction = Callable[..., Awaitable[_Plan] | AsyncIterator[Any] | _Plan]
ActFunction = Callable[..., Awaitable[ActionResult] | ActionResult]
ReflectFunction = Callable[..., Awaitable[Reflection | None] | Reflection | None]


class SenseModule(Protocol):
    """An object with a method `sense`."""

    @property
    def sense(self) -> SenseFunction: ...


class PlanModule(Protocol):
    """An object with a method `plan`."""

    @property
    def plan(self) -> PlanFunction: ...


class ActModule(Protocol):
    """An object with a method `act`."""

    @property
    def act(self) -> ActFunction: ...


class ReflectModule(Protocol):
    """An object with a method `reflect`."""

    @property
    def reflect(self) -> ReflectFunction: ...
