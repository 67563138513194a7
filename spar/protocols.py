"""The ports: what a part must do, what it may raise, how it is cancelled.

Every part may also be an async context manager (`__aenter__`/`__aexit__`): the agent opens it before
its first use and closes it, in reverse order, when it stops. A part that is cancelled must let
`CancelledError` through within the grace time; one that does not is left behind. A method may be a plain
blocking function: it then runs in a worker thread. Any method that accepts one more parameter is given a
`Context`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct, field

from spar.clock import Clock
from spar.errors import ContractError
from spar.records.journal import CallJournal, RowChange
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.records.transcript import Transcripts
from spar.types import (
    Ability,
    Action,
    ActionResult,
    Call,
    CallResult,
    CycleRecord,
    Experience,
    Perception,
    Reflection,
    Trust,
)

Effect = Literal["read", "idempotent", "once"]


class RunContext(Struct, frozen=True):
    """The run that a cycle belongs to: `number` counts its requests from 1; `messages` is what is known so far.

    `message` is what the run is about, `said` what people have said in it since, oldest first; `trust` is that of the
    least trusted of all of it. `output` is the schema that its answer has to fit, if it was given one. `options` are
    those that hold for its next request.
    """

    id: str
    goal: str
    number: int = 1
    messages: tuple[dict[str, Any], ...] = ()
    results: tuple[ActionResult, ...] = ()
    message: Perception | None = None
    said: tuple[Perception, ...] = ()
    trust: Trust = "trusted"
    output: Mapping[str, Any] | None = None
    options: RunOptions = NO_OPTIONS


class Context(Struct, frozen=True):
    """Context of a module that asks for a second parameter. `deadline` is monotonic seconds or None.

    `abilities` holds what reflection has learnt so far, by `ability_key(tool, task)`. `known` are the ends of calls of
    a cycle that is gone on with after it was cut off, in the order in which they ended: they are not to be made again.
    `noticed` is what sense brought where hooks at `before_plan` may have changed it; None: they were not asked.
    """

    agent: str
    cycle_id: str
    session: str = "main"
    run: RunContext | None = None
    memory: Any = None
    abilities: Mapping[str, Ability] = field(default_factory=dict)
    deadline: float | None = None
    clock: Clock | None = None
    known: tuple[CallResult, ...] = ()
    noticed: tuple[Perception, ...] | None = None


#: Inside of a call: the ids of the cycle and of the run that it is made for ("", None: for none).
CALLED_FOR: ContextVar[tuple[str, str | None]] = ContextVar("called for", default=("", None))


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


class Lent(Struct, frozen=True):
    """Loan of a planner to the actor: tools, and the activities that carry out calls that need a model."""

    tools: tuple[Any, ...] = ()
    activities: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


@runtime_checkable
class Lender(Protocol):
    """A planner that carries out calls itself: what is delegated, thoughts whose matter came later, advisors."""

    def lends(self) -> Lent: ...


@runtime_checkable
class Borrower(Protocol):
    """An actor that hands such calls over. What it has of its own stands before what is lent."""

    def borrow(self, lent: Lent) -> None:
        """Take what the planner lends in the place of what it lent before."""
        ...


class Reflector(Protocol):
    """REFLECT: a result to what was learnt. Storing its experiences is the agent's work, not its own."""

    async def reflect(self, result: ActionResult) -> Reflection: ...


# What may be given for a phase: a function, async or blocking, with or without a last parameter for the `Context`,
# or an object that has it as a method.

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


class Push(Protocol):
    """Callable with which a sensor hands over what it notices at once; callable from any thread.

    Returns False when the perception was refused because the bounded buffer is full. True promises nothing: the
    perception waits in memory until a cycle takes it, and a process that dies before that has lost it. A sensor that
    can be asked again loses nothing by it (its cursor goes on with the cycle); one whose sender forgets once it was
    answered uses `SensorContext.accept`.
    """

    def __call__(self, perception: Perception) -> bool: ...


@runtime_checkable
class Rows(Protocol):
    """Small rows by owner and key; a store may offer them. State that grows is kept so, a row for each thing, because
    one value is bounded and is written whole with each change."""

    async def rows(self, owner: str) -> Mapping[str, Any]:
        """The values of all rows of an owner, by key."""
        ...

    async def change(self, changes: Iterable[RowChange]) -> None:
        """Accept these changes, all or none, in this order.

        Raises: TooLargeError for a value of more than a megabyte; ValueError for one that is not JSON-able.
        """
        ...


class Accept(Protocol):
    """Callable with which a sensor hands over what its sender is told has arrived, such as a webhook.

    Awaited in the event loop; with a memory that keeps a journal the perception is on disk when it returns. It goes
    straight to its session, ahead of what was pushed. Returns False for a perception whose id was accepted before.

    Raises: InboxFullError or NoRoomError when it cannot be kept, NotReadyError while the agent starts, LifecycleError
    when it does not run: the sender is told so, and may try again.
    """

    async def __call__(self, perception: Perception) -> bool: ...


async def _accept_nothing(perception: Perception) -> bool:
    raise RuntimeError("this sensor has no agent that could keep what it accepts")


class SensorRows(Protocol):
    """The small durable rows of one sensor: one for each thing that it must know again after a restart.

    A change becomes durable as a cursor does, with the cycle that takes what was handed over before it; all changes of
    that time in one transaction. Until then the rows on disk are the former ones, so that a crash repeats rather than
    loses. `keep` and `drop` return at once and may be called from any thread; values are JSON-able and small.
    """

    def keep(self, key: str, value: Any) -> None:
        """Write a row, in the place of an earlier one of this key.

        Raises: TooLargeError for one of more than 64 KiB; TypeError, ValueError for a value that is not JSON-able.
        """
        ...

    def drop(self, key: str) -> None:
        """Delete a row; nothing happens if there is none."""
        ...

    async def list(self) -> Mapping[str, Any]:
        """All rows by key, with the changes that are not durable yet."""
        ...


class ModuleRows(Protocol):
    """The small durable rows of a module, for what it must know again after a restart.

    A row that is kept for a cycle changes in the transaction that says what the cycle is going to do, or how it ended:
    a process that dies before that has not kept it. `keep` returns at once; values are JSON-able and small.
    """

    def keep(self, key: str, value: Any, *, cycle_id: str = "") -> None:
        """Write a row. Raises: TooLargeError for one of more than a megabyte; ValueError for what is not JSON-able."""
        ...

    def drop(self, key: str, *, cycle_id: str = "") -> None:
        """Delete a row; nothing happens if there is none."""
        ...

    async def list(self) -> Mapping[str, Any]:
        """All rows by key. Raises: what the store raises."""
        ...


class PassingRows:
    """Rows that nobody keeps: those of a sensor without an agent. Implements `SensorRows`."""

    def __init__(self) -> None:
        self._rows: dict[str, Any] = {}

    def keep(self, key: str, value: Any) -> None:
        """Write a row."""
        self._rows[key] = value

    def drop(self, key: str) -> None:
        """Delete a row."""
        self._rows.pop(key, None)

    async def list(self) -> Mapping[str, Any]:
        """All rows by key."""
        return dict(self._rows)


class SensorContext(Struct, frozen=True):
    """Context that a sensor is given when it is opened.

    `push(perception)` hands over and promises nothing; `await accept(perception)` returns when the journal has it.
    `rows` are the sensor's own, for state that grows with what it watches; `cursor` is for what stays small.
    `cursor` is what its last `checkpoint` saved (None the first time); `checkpoint(cursor)` hands over a JSON-able
    value that is saved once the perceptions handed over before it have been through a cycle.
    `report(event_name, **fields)` publishes a fact (e.g. a missed tick) about the sensor itself.
    """

    name: str
    clock: Clock
    push: Push
    state_dir: str | None = None
    cursor: Any = None
    checkpoint: Callable[[Any], None] = lambda cursor: None
    report: Callable[..., None] = lambda *args, **fields: None
    rows: SensorRows = field(default_factory=PassingRows)
    accept: Accept = _accept_nothing


class PolledSensor(Protocol):
    """A sensor that is asked: `poll()`, or `poll(context)`, returns what is new since the last poll."""

    @property
    def poll(self) -> SenseFunction: ...


class PushingSensor(Protocol):
    """A sensor that is started, and hands over what it notices through its context."""

    def open(self, context: SensorContext, /) -> Awaitable[None] | None: ...


class HearingSensor(Protocol):
    """A sensor that makes a perception of a message: `hear(text, session)`."""

    @property
    def hear(self) -> Callable[..., Perception]: ...


#: Notices things. Either it is polled, or it pushes, or both; or it hears messages.
#:
#: `open(context)` starts it and may raise; `poll()` returns what is new since the last poll, `close()` ends it and
#: releases everything, also after a failed open. `every` is the least time between two polls in seconds (0: each
#: cycle). All may be plain functions, and a sensor may leave out what it does not need.
Sensor = PolledSensor | PushingSensor | HearingSensor


class Tool(Protocol):
    """Something a call can invoke. `schema` is a JSON schema object whose `properties._tool.const` is the name."""

    name: str
    schema: Mapping[str, Any]
    effect: Effect
    timeout: float

    async def __call__(self, **params: Any) -> Any: ...


class Store(Protocol):
    """Keeps experiences, the tape of cycles, and small state. Nothing here blocks the loop.

    `store` and `record` accept and return at once or wait while a bounded queue is full; `flush` returns when
    everything accepted so far is written. `load`/`save` keep JSON-able values by key.
    """

    async def store(self, experience: Experience) -> None: ...
    async def record(self, cycle: CycleRecord) -> None: ...
    async def recall(self, query: str, k: int = 5, **filters: Any) -> Sequence[Experience]: ...
    async def load(self, key: str) -> Any: ...
    async def save(self, key: str, value: Any) -> None: ...
    async def flush(self) -> None: ...


class Record(Struct, frozen=True):
    """A small durable row: `version` counts its changes from 1, `value` is JSON-able."""

    id: str
    version: int
    value: Any


@runtime_checkable
class Records(Protocol):
    """Small durable rows by kind and id, changed by compare-and-set; a store may offer them.

    What `keep` and `drop` have done is on disk, as far as the store's durability goes, when they return.
    """

    async def records(self, kind: str) -> Sequence[Record]:
        """All rows of a kind, by id."""
        ...

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        """Write a row and return its new version; `expect` is the version it must have now (0: it must not exist).

        Raises: ConflictError when it has another one.
        """
        ...

    async def drop(self, kind: str, id: str) -> bool:
        """Delete a row; False if there was none."""
        ...


class Notifier(Protocol):
    """Tells a person. Raises when the message cannot have arrived."""

    async def notify(
        self, title: str, text: str, *, urgency: Literal["low", "normal", "critical"] = "normal"
    ) -> None: ...


class Missed(Struct, frozen=True):
    """A trigger's tick that did not run when it was due."""

    trigger: str
    due_at: datetime
    reason: str
    attributes: dict[str, Any] = field(default_factory=dict)


class Publisher(Protocol):
    """Anything that takes events; an agent's `events` is one. Never raises."""

    def publish(self, event: Any) -> None: ...


class Home(Struct, frozen=True):
    """Folders of the service. A part whose constructor has a parameter annotated `Home` is given it.

    `config` is the folder of the configuration file (relative paths in options start there),
    `workspace` the only folder that tools may touch, `state` where the service keeps its own files.
    """

    config: str
    workspace: str
    state: str


class ModelState(Struct, frozen=True):
    """State of a model: `closed` it may be asked, `open` it is left alone until `until` (monotonic seconds), after
    which one request tries; `fault` says why, in a sentence."""

    model: str
    state: Literal["closed", "open"] = "closed"
    fault: str = ""
    until: float = 0.0


class Host(Struct, frozen=True):
    """Services that an agent lends to a module that has `attach(host)`; called once, before the module is opened.

    `wake()` makes the loop sense at once and may be called from any thread; `store` is None without a memory.
    `accept(perception)` takes in what sensors are handed, see `Accept`.
    `resume(session)` says that the actor has calls to go on with (`Resumable`); that session's next cycle then comes at
    once. `journal` (`spar.records.journal.CallJournal`) is where an actor writes down its calls; None: nobody keeps
    one. `budgets` (`spar.budgets.budgets.Budgets`) is what calls and requests to models are taken from.

    `tools()` is what can be called now, by name: objects with `name` and `schema`. `transcripts` are those of the
    agent's sessions. `deliver(run_id, session, route, text)` tells people something, unless a hook is against it or the
    run has told them the same there before; it returns whether it did. `pursue(perception)` makes a run of what was
    noticed, once, and returns its id. `note(cycle_id, what)` has the object that it returns kept on the tape.
    `used(run_id, usage)` says what a request of a run took, by quantity as budgets name them,
    `counted(run_id, parts)` of which parts its tokens were (`input_tokens output_tokens cached_tokens`). `rows(name)`
    are small durable rows under a name of the module's choice; None without a memory. `is_in_hand(cycle_id)` says
    whether a cycle goes on now, perhaps with the module that this one follows. `tell_problem(about, why)` says what is
    wrong with something that a model is told, a file or a skill; "" once it is well again. With `is_note=True` it is
    logged and no alert: it may be meant so.

    A module that follows another one, side by side with it, may have `async take_over()`: a session has left the former
    one, or all have; what that left on disk is to be taken up.
    """

    agent: str
    clock: Clock
    events: Publisher
    hooks: Any
    wake: Callable[[], None]
    store: Store | None = None
    home: Home | None = None
    resume: Callable[[str], None] = lambda session: None
    journal: CallJournal | None = None
    budgets: Any = None
    tools: Callable[[], Mapping[str, Any]] = dict
    transcripts: Transcripts | None = None
    deliver: Callable[[str, str, str, str], Awaitable[bool]] | None = None
    pursue: Callable[[Perception], Awaitable[str]] | None = None
    used: Callable[[str, Mapping[str, int]], None] = lambda run_id, usage: None
    note: Callable[[str, Callable[[], dict[str, Any]]], None] = lambda cycle_id, what: None
    rows: Callable[[str], ModuleRows | None] = lambda name: None
    is_in_hand: Callable[[str], bool] = lambda cycle_id: False
    tell_model: Callable[[ModelState], None] = lambda state: None
    counted: Callable[[str, Mapping[str, int]], None] = lambda run_id, parts: None
    accept: Accept = _accept_nothing
    tell_problem: Callable[..., None] = lambda about, why, is_note=False: None


#: What an object notices things by.
SENSES = ("open", "poll", "hear")


class SensorSpec(Struct, frozen=True):
    """One configured sensor and how it is kept; all but the count in seconds.

    `timeout` is for opening, polling and closing, `every` between polls (None: the sensor's own); after `max_failures`
    `within` so long it is quarantined and tried again `probe_after`. `when_full` says what becomes of a perception that
    finds the sensor's buffer full: it is refused, takes the place of an older one, or the flood is thinned out.

    Raises: ContractError when the name is no text or the sensor is none.
    """

    name: str
    sensor: Sensor
    every: float | None = None
    timeout: float = 30.0
    max_failures: int = 5
    within: float = 60.0
    probe_after: float = 600.0
    session: str = "main"
    when_full: Literal["refuse", "latest", "sample"] = "refuse"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ContractError(f"SensorSpec(name, sensor): the name must be text, found {self.name!r:.60}")
        # Each of its methods may be missing, but not all; `hear` is what hears messages.
        if isinstance(self.sensor, type) or not any(callable(getattr(self.sensor, word, None)) for word in SENSES):
            raise ContractError(
                f"SensorSpec({self.name!r}, sensor): a sensor is an object with open, poll or hear, "
                f"found {self.sensor!r:.60}"
            )
