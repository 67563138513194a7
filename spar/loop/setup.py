"""Modules of an agent and the settings of their phases and of the pace, as they apply to cycles that begin now.

A module is an object with the phase's method, or a bare function. It is async, blocking, or an async generator of
calls, with or without a last parameter for the `Context` (agent, cycle, run, deadline and the like). It is inspected
once, when it becomes a `Module`.

The wait between two cycles is a pure function of the result of the last one.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from spar.checks import PLAIN, SCALARS, json_problem, problem_of, shorten
from spar.clock import Clock
from spar.errors import ConfigError, ContractError
from spar.loop.cycle import Step
from spar.ports.any_part import has
from spar.ports.phases import OptionalActor, OptionalSense
from spar.protocols import Context
from spar.records.journal import RowChange
from spar.threads import Threads
from spar.types import Action, ActionResult, Call, Perception, Phase, Reflection, answering, replace

if TYPE_CHECKING:
    from spar.loop.plan_stream import OpenPlan

#: Number of arguments of each phase before the optional `Context`.
VALUES: dict[Phase, int] = {"sense": 0, "plan": 1, "act": 1, "reflect": 1}


class Module:
    """Module of one phase: `await call(*values, context)`. `wants_context` says whether to pass a context at all.

    `part` is the user's object or function. `streams_with_context` says the same of `act_stream`, the method of an
    actor that starts calls while the planner still writes the plan. `states_journal` says whether an actor states that
    it journals its calls itself.
    """

    __slots__ = ("_clock", "_function", "_threads", "call", "cursors", "cycle_rows", "hear", "name", "part", "phase",
                 "row_changes", "states_journal", "streams_with_context", "wants_context")  # fmt: skip

    def __init__(self, phase: Phase, part: Any, clock: Clock) -> None:
        method = getattr(part, phase, None)
        function = method if callable(method) else part
        if not callable(function):
            hint = "; give a list of tools as tools=" if phase == "act" and isinstance(part, list | tuple) else ""
            raise ContractError(
                f"{phase}= must be a function or an object with a method {phase!r}, found {shorten(part)}{hint}"
            )
        self.phase, self.part, self._function = phase, part, function
        self.name = _name_of(part)
        if inspect.isclass(part) and inspect.isfunction(inspect.getattr_static(part, phase, None)):
            raise ContractError(f"{phase}= must be an object, found the class {self.name}: give {self.name}(…)")
        self.wants_context = takes_context(function, VALUES[phase])
        _demand_parameters(function, phase, self.name, VALUES[phase] + self.wants_context)
        # The hot path calls an async function of the right shape directly.
        self.call: Callable[..., Coroutine[Any, Any, Any]] = function if _is_async(function) else self._in_thread
        if inspect.isasyncgenfunction(function):
            self.call = self._generate
        self._clock = clock
        self._threads: Threads | None = None  # created by the first blocking call: most modules never make one
        #: Optional methods of a sense module: up to where its sensors have read (`cursors`), changes of database rows
        #: that are written with the journal's entry (those of its sensors, and those for one cycle; None for none), and
        #: the perception of a message (`hear`; None for the usual one).
        self.cursors: Callable[[], Mapping[str, Any]] = dict
        self.row_changes: Callable[[], Sequence[RowChange]] = tuple
        self.cycle_rows: Callable[[str], Sequence[RowChange]] | None = None
        self.hear: Callable[[str, str], Perception] | None = None
        if phase == "sense":
            self.cursors = part.cursors if has(part, OptionalSense.cursors) else dict
            self.row_changes = part.row_changes if has(part, OptionalSense.row_changes) else tuple
            self.cycle_rows = part.cycle_rows if has(part, OptionalSense.cycle_rows) else None
            self.hear = part.hear if has(part, OptionalSense.hear) else None
        is_streaming = phase == "act" and has(part, OptionalActor.act_stream)
        self.streams_with_context = is_streaming and takes_context(part.act_stream, 2)
        self.states_journal = phase == "act" and has(part, OptionalActor.keeps_journal)

    async def _in_thread(self, *values: Any) -> Any:
        if self._threads is None:
            self._threads = Threads(f"{self.phase} module {self.name}", self._clock)
        product = await self._threads.run(self._function, *values)
        return await product if inspect.isawaitable(product) else product

    async def _generate(self, *values: Any) -> Any:
        return self._function(*values)

    @property
    def left_behind(self) -> int:
        """Return the number of blocking calls that were abandoned and still hold a thread."""
        return self._threads.left_behind if self._threads is not None else 0


def takes_context(function: Callable[..., Any], values: int) -> bool:
    """Return whether a function accepts a `Context` as one more argument after its values.

    A parameter with a default is the author's own unless it is annotated `Context` or named `context` or `ctx`.
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
    """Return whether an annotation, perhaps still a string, perhaps with `| None`, is `Context`."""
    return annotation is Context or re.search(r"\bContext\b", str(annotation)) is not None


def _demand_parameters(function: Callable[..., Any], phase: Phase, name: str, count: int) -> None:
    """Check at construction that the phase can be called with `count` arguments. Raises: ContractError."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a built-in function without a signature: the first call will show
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


# -- checks of each phase's product; the fields that name the input of the phase are filled in if they are empty


def perceptions_of(product: Any, name: str, phase_input: Any = None) -> tuple[Perception, ...]:
    """Return the product of sense as a tuple: None as (), a bare perception as a tuple of one. Raises:
    ContractError."""
    if isinstance(product, (list, tuple)):
        perceptions = tuple(product)
        for item in perceptions:
            if not isinstance(item, Perception):
                raise ContractError(f"sense of {name} must return Perceptions, found {_describe(item)} in its list")
        return perceptions
    if product is None:
        return ()
    if isinstance(product, Perception):
        return (product,)
    raise ContractError(f"sense of {name} must return a list of Perception, found {_describe(product)}")


def action_of(product: Any, name: str, perceptions: Sequence[Perception]) -> Action | OpenPlan | None:
    """Return the product of plan with its perceptions filled in, so that it has no more trust than these have.

    An action is untrusted if one of its perceptions is, because text from outside may have influenced the plan.

    A list becomes an action with these calls; an empty list becomes None: nothing to do.
    Raises: ContractError; ValueError for a wire object that is not a call.
    """
    if product is None:
        return None
    if not isinstance(product, Action):
        if not isinstance(product, (list, tuple)):
            from spar.loop.plan_stream import OpenPlan  # most plans are whole

            if isinstance(product, OpenPlan):
                return product
            raise ContractError(
                f"plan of {name} must return an Action, a list or stream of calls or None, found {_describe(product)}"
            )
        if not product:
            return None
        product = Action(calls=[_call(item, name) for item in product])
    output = product.output
    if type(output) not in SCALARS and (problem := json_problem(output)):
        raise ContractError(f"plan of {name} must put JSON into Action.output: {problem}")
    return answering(product, perceptions)


def _call(item: Any, name: str) -> Call:
    """Return one item of a planner's list as a call. Raises: ContractError, ValueError."""
    if isinstance(item, Call):
        return item
    if isinstance(item, Mapping):
        return Call.from_wire(item)
    raise ContractError(f"plan of {name} must return Calls or wire objects in its list, found {_describe(item)}")


def result_of(product: Any, name: str, action: Action | OpenPlan) -> ActionResult:
    """Return the product of act with its action filled in. Raises: ContractError."""
    if not isinstance(product, ActionResult):
        raise ContractError(f"act of {name} must return an ActionResult, found {_describe(product)}")
    _check_fields(product, f"act of {name}")
    for item in product.errors:
        error = item.get("error")
        if not (isinstance(error, dict) and isinstance(error.get("kind"), str)):
            sentence = 'must put {"call": …, "error": {"kind": …, "message": …}} into ActionResult.errors'
            raise ContractError(f"act of {name} {sentence}, found {_describe(item)}")
    if product.action is not None:
        return product
    return replace(product, action=action if isinstance(action, Action) else action.action)


def reflection_of(product: Any, name: str, result: ActionResult) -> Reflection:
    """Return the product of reflect with its result filled in; None as an empty reflection. Raises: ContractError."""
    if product is None:
        return Reflection(result=result)
    if not isinstance(product, Reflection):
        raise ContractError(f"reflect of {name} must return a Reflection, found {_describe(product)}")
    _check_fields(product, f"reflect of {name}", result)
    return product if product.result is not None else replace(product, result=result)


def _check_fields(value: Struct, owner: str, checked: Struct | None = None) -> None:
    """Refuse a value with an invalid field, or with a value in it that has one, so that the error names the module.

    Args: checked: a value in it that was checked when the phase before returned it.
    Raises: ContractError.
    """
    if not PLAIN[type(value)](value, checked) and (problem := problem_of(value, checked)):
        raise ContractError(f"{owner} must keep to the fields of {problem}")


#: Function that checks and completes the product of a phase: `(product, name of the module, input of the phase)`.
PRODUCT_OF: dict[Phase, Callable[[Any, str, Any], Any]] = {
    "sense": perceptions_of,
    "plan": action_of,
    "act": result_of,
    "reflect": reflection_of,
}


def _describe(value: object) -> str:
    try:
        return f"{type(value).__name__} ({value!r:.60})"
    except Exception:  # a broken __repr__ must not hide what is wrong
        return type(value).__name__


Interval = float | Literal["adaptive", "off"]

#: The longest wait that a plan may propose in the place of a shorter fixed interval (seconds).
LONGEST_LOOK = 3600.0


class Pace(Struct, frozen=True):
    """Settings of the pace, in seconds.

    `interval` is a fixed number of seconds, "adaptive" (shorter after more perceptions) or "off" (a cycle begins only
    when something is pushed). `min_interval` and `max_interval` bound "adaptive". Under every interval, unfinished work
    goes on after `min_interval`. After a cycle with `busy_count` perceptions or more, "adaptive" waits `min_interval`.
    """

    interval: Interval = 1.0
    min_interval: float = 0.5
    max_interval: float = 5.0
    busy_count: int = 10


def check_interval(interval: Any) -> None:
    """Check the setting `loop_interval`. Raises: ConfigError."""
    is_number = isinstance(interval, (int, float)) and not isinstance(interval, bool)
    if interval not in ("adaptive", "off") and not (is_number and 0 <= interval < float("inf")):
        raise ConfigError(
            f'loop_interval = {shorten(interval)}: must be a number of seconds >= 0, "adaptive" or "off"',
            path=("agent", "loop_interval"),
        )


class Setup:
    """Current modules and settings, by phase. `modules` and `steps` are replaced as a whole when they change.

    Attributes: pace: settings of the wait between two cycles. plan_when_idle: whether a cycle without perceptions calls
        the planner too. is_slow: whether each wait is at least the longest of the pace. perceive: method of the sense
        module that accepts pushed perceptions; None if it has none. settled: method of the sense module that is called
        once a cycle has dealt with all perceptions that the module delivered; None if it has none.
    """

    __slots__ = ("is_slow", "modules", "pace", "perceive", "plan_when_idle", "settled", "steps")

    def __init__(self) -> None:
        self.modules: dict[Phase, Module] = {}
        self.steps: dict[Phase, Step] = {}
        self.pace = Pace()
        self.plan_when_idle = self.is_slow = False
        self.perceive: Callable[..., Any] | None = None
        self.settled: Callable[[], Any] | None = None

    def paced(self, wait: float | None) -> float | None:
        """Return the wait before the next cycle (seconds; None: until something comes), lengthened while slowed
        down."""
        return max(wait, self.pace.max_interval) if wait is not None and self.is_slow else wait

    def grace(self) -> float:
        """Return the longest grace of a phase, in seconds."""
        return max(step.grace for step in self.steps.values())

    def tools(self) -> Mapping[str, Any]:
        """Return the tools that the actor can call now, by name; empty when the actor does not say."""
        actor = self.modules["act"].part
        tools = actor.tools if has(actor, OptionalActor.tools) else None
        return tools if isinstance(tools, Mapping) else {}


def pause_after(pace: Pace, perceptions: int, *, busy: bool = False, next_look: float | None = None,
                planned_look: float | None = None) -> float | None:  # fmt: skip
    """Return the seconds from the end of a cycle to the beginning of the next; None: wait until something is pushed.

    Unfinished work (`busy`: an open run, calls to resume, failed work) goes on after `min_interval`, or after the fixed
    interval if that is shorter. A proposal can shorten the wait under "adaptive" and lengthen it under a fixed
    interval; "off" and 0 ignore it.

    Args: next_look: seconds that the reflection or else the plan proposed; planned_look: seconds that the plan
        proposed.
    """
    if busy:
        return pace.min_interval if isinstance(pace.interval, str) else min(float(pace.interval), pace.min_interval)
    interval = pace.interval
    if isinstance(interval, str):
        if interval == "off":
            return None
        usual = _adaptive(pace, perceptions)
        return usual if next_look is None else min(usual, max(pace.min_interval, next_look))  # NaN is the minimum
    usual = float(interval)
    if usual == 0 or planned_look is None or not planned_look > usual:
        return usual
    return min(planned_look, max(usual, LONGEST_LOOK))


def _adaptive(pace: Pace, perceptions: int) -> float:
    share = min(perceptions / pace.busy_count, 1.0)
    return pace.max_interval - share * (pace.max_interval - pace.min_interval)


def expected_interval(pace: Pace) -> float | None:
    """Return the longest wait in seconds without a failure or a proposal; None under "off".

    The health check calls an agent stalled when it has made no cycle for a multiple of this time.
    """
    if pace.interval == "off":
        return None
    return pace.max_interval if pace.interval == "adaptive" else max(float(pace.interval), 0.0)
