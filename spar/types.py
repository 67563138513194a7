"""The values that flow through a cycle, immutable, each carrying its own past.

    Perception → Action(calls) → ActionResult(results) → Reflection(experiences)

`Action.perceptions`, `ActionResult.action` and `Reflection.result` lead back to where a value came from,
so each phase needs only what the phase before it returned. They are `msgspec.Struct`s because one of each
is made in every cycle and all of them go to the store as they are. Wall times are aware UTC datetimes;
durations are float seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from spar import checks
from spar.checks import Seconds, Share, shorten
from spar.errors import (
    ConfigError,
    PermanentError,
    SparError,
    TooLargeError,
    TransientError,
    leaves,
    place_of,
    stack_of,
    unwrap,
)
from spar.ids import new_call_id, new_id

__all__ = [
    "Ability",
    "Action",
    "ActionResult",
    "Call",
    "CallFailure",
    "CallResult",
    "CycleRecord",
    "Experience",
    "Fault",
    "Message",
    "Perception",
    "Reflection",
    "RunUsage",
    "Verdict",
    "replace",
    "utcnow",
]

Phase = Literal["sense", "plan", "act", "reflect"]
PHASES: tuple[Phase, ...] = ("sense", "plan", "act", "reflect")
Trust = Literal["trusted", "untrusted"]
Outcome = Literal["acted", "idle", "skipped", "degraded", "failed", "interrupted"]
OUTCOMES: tuple[Outcome, ...] = ("acted", "idle", "skipped", "degraded", "failed", "interrupted")
CallStatus = Literal["ok", "failed", "timeout", "denied", "skipped", "in_doubt", "cancelled"]
CALL_STATUSES: tuple[CallStatus, ...] = ("ok", "failed", "timeout", "denied", "skipped", "in_doubt", "cancelled")
ActionStatus = Literal["ok", "partial", "failed", "interrupted"]
ACTION_STATUSES: tuple[ActionStatus, ...] = ("ok", "partial", "failed", "interrupted")
OutputMethod = Literal["set", "merge", "assign", "push", "concat"]
METHODS: tuple[OutputMethod, ...] = ("set", "merge", "assign", "push", "concat")
_TEXT = frozenset({str})
#: Characters of the fields of a value that its `repr` shows.
LONGEST_SHOWN = 160


def utcnow() -> datetime:
    """The wall clock as an aware UTC datetime."""
    return datetime.now(UTC)


class RunUsage(Struct, frozen=True):
    """Usage of a run: requests to models, calls that were started, tokens of models, of the input those that a cache
    served; money in millionths of the currency's unit as far as prices are known; seconds of waiting for a provider."""

    requests: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    money: int = 0
    waited: float = 0.0


class Value(Struct, frozen=True):
    """A value whose `repr` is one short line: what it carries of its past, and what is large, is only named."""

    def __repr__(self) -> str:
        shown = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Struct):
                shown.append(f"{name}=<{type(value).__name__}>")
            elif isinstance(value, (tuple, list, dict)):
                if value:
                    shown.append(f"{name}=<{len(value)}>")
            elif value is not None and not (isinstance(value, str) and not value):
                shown.append(f"{name}={shorten(value, LONGEST_SHOWN // 4)}")
        text = ", ".join(shown)
        return f"{type(self).__name__}({text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + '…'})"


class Perception(Value, frozen=True):
    """One thing that was noticed. `Perception("disk is full")` is enough to make one.

    `key` identifies repetition of the same thing (two perceptions with one key are duplicates);
    `subject` says what it is about (perceptions of one subject are fused, the parts kept in `evidence`).
    `priority` (None until somebody sets it) and `confidence` are 0..1.
    Text of an `untrusted` perception never steers the agent.
    Stages of the pipeline leave their findings in `attributes`: `slots` (what an intent captured) and
    `why` (the reasons for the priority, a list of sentences).

    Raises: TypeError, ValueError for a field that is not what it must be.
    """

    content: Any = ""
    source: str = "manual"
    kind: str = ""
    id: str = field(default_factory=new_id)
    at: datetime = field(default_factory=utcnow)
    key: str | None = None
    subject: str | None = None
    session: str = "main"
    intent: str = ""
    priority: Share | None = None
    confidence: Share = 1.0
    trust: Trust = "untrusted"
    evidence: Sequence[Perception] = ()
    attributes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # What is right is seen at once; what may be wrong is looked at field by field.
        if not (
            (self.priority is None or (type(self.priority) is float and 0.0 <= self.priority <= 1.0))
            and type(self.confidence) is float
            and 0.0 <= self.confidence <= 1.0
            and (self.evidence == () or _are(_PERCEPTIONS, self.evidence))
            and (self.trust == "untrusted" or self.trust == "trusted")
            and type(self.attributes) is dict
            and (not self.attributes or _TEXT.issuperset(map(type, self.attributes)))
            and type(self.source) is type(self.kind) is type(self.session) is type(self.id) is type(self.intent) is str
            and (self.key is None or type(self.key) is str)
            and (self.subject is None or type(self.subject) is str)
            and type(self.at) is datetime
        ):
            checks.fit(self)

    @property
    def text(self) -> str:
        """The content as text: itself if it is a string, else its JSON.

        Raises: TypeError, ValueError for content that is no JSON, such as keys that are no text.
        """
        if isinstance(self.content, str):
            return self.content
        return json.dumps(self.content, ensure_ascii=False, default=str)

    @property
    def importance(self) -> float:
        """The priority, or the middle of the scale while nobody has set one."""
        return 0.5 if self.priority is None else self.priority

    @staticmethod
    def restored(row: dict[str, Any]) -> dict[str, Any]:
        """Bring a row of an earlier version, which bounded nothing, within the bounds of today."""
        bounded = {name: checks.clamped(row[name], 0.0, 1.0, low) for name, low in _UNBOUNDED_BEFORE if name in row}
        return {**row, **bounded}


_UNBOUNDED_BEFORE = (("priority", None), ("confidence", 1.0))


_WIRE_FIELDS = {
    "_tool": "tool",
    "_id": "id",
    "_outputPath": "output_path",
    "_outputMethod": "output_method",
    "_instance": "instance",
    "_after": "after",
    "_reasoningForCall": "reason",
}
#: Keys of a call's wire form that the service adds; who plans neither writes nor is shown them.
SERVICE_KEYS = frozenset({"_approval", "_original", "_parked", "_task", "_toolCallId", "_trust"})


class Call(Value, frozen=True):
    """One tool invocation. `Call("note", {"text": "hello"})` is enough to make one.

    `after` names calls that must end well first. `output_path` (`†state.a.b`) is where the result is
    written, `output_method` how. A parameter that is a string `†kind.path` is a reference.
    `meta` carries every other key of the wire form that begins with an underscore.

    Raises: TypeError, ValueError for a field that is not what it must be.
    """

    tool: str
    params: dict[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=new_call_id)
    output_path: str | None = None
    output_method: OutputMethod = "set"
    instance: str | None = None
    after: Sequence[str] = ()
    reason: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (
            type(self.tool) is type(self.id) is type(self.reason) is str
            and type(self.params) is dict
            and (not self.params or _TEXT.issuperset(map(type, self.params)))
            and (self.after == () or _are(_TEXT, self.after))
            and self.output_method in METHODS
            and type(self.meta) is dict
            and (not self.meta or _TEXT.issuperset(map(type, self.meta)))
            and (self.output_path is None or type(self.output_path) is str)
            and (self.instance is None or type(self.instance) is str)
        ):
            checks.fit(self)

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Call:
        """Read `{"_tool": name, …parameters, "_outputPath": …, "_id": …}`.

        Raises: ValueError if there is no tool or a known key has the wrong type.
        """
        if not isinstance(wire, Mapping):
            raise ValueError(f"a call must be an object, found {type(wire).__name__}")
        known: dict[str, Any] = {}
        params: dict[str, Any] = {}
        meta: dict[str, Any] = {}
        for key, value in wire.items():
            if not isinstance(key, str):
                raise ValueError(f"a call's keys must be text, found {shorten(key)}")
            if name := _WIRE_FIELDS.get(key):
                known[name] = value
            elif key.startswith("_"):
                meta[key] = value
            else:
                params[key] = value
        after = known.get("after", ())
        if isinstance(after, str) or not isinstance(after, Sequence):
            raise ValueError(f"'_after' must be a list of call ids, found {shorten(after)}")
        known["after"] = tuple(after)
        for name in ("tool", "id", "output_path", "output_method", "instance", "reason"):
            value = known.get(name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"'{name}' of a call must be text, found {shorten(value)}")
        if any(not isinstance(item, str) for item in known["after"]):
            raise ValueError(f"'_after' must be a list of call ids, found {shorten(after)}")
        if not known.get("tool"):
            raise ValueError("a call must name its tool: '_tool' is missing")
        if known.get("output_method", "set") not in METHODS:
            raise ValueError(
                f"'_outputMethod' must be set, merge, assign, push or concat, found {shorten(known['output_method'])}"
            )
        given = {name: value for name, value in known.items() if value is not None}
        return cls(**given, params=params, meta=meta)

    def to_wire(self) -> dict[str, Any]:
        """Return the call as an object; `Call.from_wire(call.to_wire()) == call`."""
        wire: dict[str, Any] = {"_tool": self.tool, **self.params, "_id": self.id}
        if self.output_path is not None:
            wire["_outputPath"] = self.output_path
        if self.output_method != "set":
            wire["_outputMethod"] = self.output_method
        if self.instance is not None:
            wire["_instance"] = self.instance
        if self.after:
            wire["_after"] = list(self.after)
        if self.reason:
            wire["_reasoningForCall"] = self.reason
        if self.meta:
            wire.update(self.meta)
        return wire


class Fault(Value, frozen=True):
    """An error as data.

    `kind` is a short closed word: `transient permanent timeout contract bad_input error …`;
    `part` names who failed, `phase` where; `retryable` says whether the same may work later.
    `detail` holds what else is known: `type`, `retry_after` (seconds), `leaves` (of a group), and of an exception that
    nobody raised on purpose `where` (`mytools.py:9 in plan`) and `traceback`.
    """

    kind: str
    message: str
    part: str = ""
    phase: str = ""
    retryable: bool = True
    detail: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException, *, part: str = "", phase: str = "") -> Fault:
        """Return what an exception says, looking through groups; never raises.

        What is raised on purpose (`TransientError`, `PermanentError`, any `SparError`) says enough in one sentence.
        """
        cause = unwrap(error)
        detail: dict[str, Any] = {"type": type(cause).__name__}
        if isinstance(error, BaseExceptionGroup):
            detail["leaves"] = [_sentence(leaf) for leaf in leaves(error)]
            message = "; ".join(detail["leaves"])
        else:
            message = _sentence(error)
        wait = _attribute(cause, "retry_after") if isinstance(cause, TransientError) else None
        if isinstance(wait, (int, float)) and 0 <= wait < float("inf"):
            detail["retry_after"] = wait
        output = _attribute(cause, "output")
        if output is not None:
            detail["output"] = output  # what a tool had brought before it failed
        if not isinstance(cause, SparError) and (where := place_of(cause)):
            detail["where"], detail["traceback"] = where, stack_of(error)
        return cls(_kind_of(cause), message, part, phase, not isinstance(cause, LASTING), detail)


#: What Python raises by itself about a mistake in code: the type says most, the text of a KeyError is but a key.
MISTAKES = (LookupError, ArithmeticError, AssertionError, AttributeError, NameError, ImportError)


def _sentence(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # a broken __str__ must not hide the failure that it belongs to
        text = ""
    name = type(error).__name__
    if not text:
        return name
    return f"{name}: {text}" if isinstance(error, MISTAKES) else text


def _attribute(error: BaseException, name: str) -> Any:
    try:
        return getattr(error, name, None)
    except Exception:  # nor must a broken property
        return None


#: What the same attempt will not get over.
LASTING = (PermanentError, ConfigError)


def _kind_of(error: BaseException) -> str:
    for known, kind in _KINDS:
        if isinstance(error, known):
            return kind
    return "error"


_KINDS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (TransientError, "transient"),
    (TooLargeError, "too_large"),
    (PermanentError, "permanent"),
    (ConfigError, "config"),
    (TimeoutError, "timeout"),
    (ConnectionError, "transient"),
    (PermissionError, "permission"),
    (FileNotFoundError, "not_found"),
    (OSError, "io"),
    (TypeError, "contract"),
    (ValueError, "bad_input"),
    (MemoryError, "resources"),
)


class Answer(Struct, frozen=True):
    """Text of a plan if its calls go well (`text`, None for nothing), and what instead if one does not.

    `calls` are the ids that it depends on, none for one that is said in any case; without `on_failure` a plain sentence
    tells which call did not go well, and why.
    """

    text: str | None
    calls: tuple[str, ...] = ()
    on_failure: str | None = None


class Action(Value, frozen=True):
    """Decision of a plan: a graph of calls, or an answer (`output`), or both.

    `next_look` proposes after how many seconds to look again; the agent clamps it to its interval's
    bounds. `degraded` says that a fallback planner decided. `trust` says whether text from outside may have
    decided on the calls; None: as little as the least trusted perception. `deferred` says why nothing can be decided
    for now: its run goes on after `next_look` seconds, and waiting counts as no time of it. `answers`: the `output`
    consists of these, each of which is only given if its calls went well.

    Lists are accepted where tuples are kept: `Action(calls=[…])` is how people write it.
    Raises: TypeError, ValueError for a field that is not what it must be.
    """

    calls: Sequence[Call] = ()
    goal: str = ""
    id: str = field(default_factory=new_id)
    perceptions: Sequence[Perception] = ()
    run_id: str | None = None
    reason: str = ""
    output: Any = None
    next_look: float | None = None
    degraded: bool = False
    trust: Trust | None = None
    deferred: str = ""
    answers: tuple[Answer, ...] = ()

    def __post_init__(self) -> None:
        calls, perceptions = self.calls, self.perceptions
        if type(calls) is list:
            force_setattr(self, "calls", calls := tuple(calls))
        if not (
            type(calls) is tuple
            and type(perceptions) is tuple
            and _CALLS.issuperset(map(type, calls))
            and _PERCEPTIONS.issuperset(map(type, perceptions))
            and (self.trust is None or self.trust == "untrusted" or self.trust == "trusted")
            and (self.next_look is None or (type(self.next_look) is float and self.next_look == self.next_look))
            and (self.run_id is None or type(self.run_id) is str)
            and type(self.goal) is type(self.id) is type(self.reason) is type(self.deferred) is str
            and type(self.degraded) is bool
        ):
            checks.fit(self)


_CALLS, _PERCEPTIONS = frozenset({Call}), frozenset({Perception})


def _keep_tuples(value: Struct, *names: str) -> None:
    """Keep what these fields hold as tuples where they are lists."""
    for name in names:
        if type(items := getattr(value, name)) is list:
            force_setattr(value, name, tuple(items))


def _are(kinds: frozenset[type], items: Any) -> bool:
    """Tell whether this is a tuple of nothing but these kinds."""
    return type(items) is tuple and kinds.issuperset(map(type, items))


class CallResult(Value, frozen=True):
    """Result of one call. `reason` says why it was not run or not waited for; `duration` in seconds.

    `verified` says whether the result is what the call expected of it (`_expect`, `_expectSchema`); None: nothing was
    expected.
    """

    call: Call
    status: CallStatus
    reason: str = ""
    output: Any = None
    fault: Fault | None = None
    attempts: int = 0
    started_at: datetime | None = None
    duration: Seconds = 0.0
    verified: bool | None = None

    @property
    def is_in_doubt(self) -> bool:
        """Return whether nobody knows if it had an effect that must not be repeated: also of one that timed out."""
        if self.status == "timeout" and self.fault is not None:
            return self.fault.detail.get("in_doubt") is True
        return self.status == "in_doubt"


#: What a call's status counts as, where calls are only counted: what failed, and what was not done at all.
_COUNTED: dict[str, str] = {
    "ok": "ok", "failed": "failed", "timeout": "failed", "in_doubt": "failed", "skipped": "skipped",
    "cancelled": "skipped", "denied": "skipped",
}  # fmt: skip


def count_calls(results: Iterable[CallResult]) -> dict[str, int]:
    """Return how many calls ended `ok`, `failed` (a time-out and a call in doubt among them) and were `skipped`."""
    counts = {"ok": 0, "failed": 0, "skipped": 0}
    for result in results:
        counts[_COUNTED.get(result.status, "failed")] += 1
    return counts


class ActionResult(Value, frozen=True):
    """Result of an action: exactly one `CallResult` for each call, in the order of arrival.

    `state` is the final global state, `messages` what the tick appended, `errors` the failures as
    `{"call": wire, "error": {"kind", "message"}}`. `fault` is set when the phase itself broke.
    """

    action: Action | None = None
    status: ActionStatus = "ok"
    results: Sequence[CallResult] = ()
    state: dict[str, Any] = field(default_factory=dict)
    messages: Sequence[dict[str, Any]] = ()
    errors: Sequence[dict[str, Any]] = ()
    fault: Fault | None = None
    duration: Seconds = 0.0

    def __post_init__(self) -> None:
        if list in (type(self.results), type(self.messages), type(self.errors)):
            _keep_tuples(self, "results", "messages", "errors")

    def result(self, call_id: str) -> CallResult:
        """The result of the call with this id. Raises: KeyError naming the ids that are known."""
        for item in self.results:
            if item.call.id == call_id:
                return item
        known = ", ".join(item.call.id for item in self.results) or "none"
        raise KeyError(f"no call {call_id!r} in this action; known: {known}")


class CallFailure(Value, frozen=True):
    """Why one call failed and what could help."""

    call: Call
    cause: str
    remedy: str = ""


class Ability(Value, frozen=True):
    """Ability of a tool at one kind of task.

    `estimate` (0..1) is the mean and `uncertainty` (0..0.5) the standard deviation of a Beta posterior over
    `trials`; `cost` is the mean of what was spent and `latency` the mean duration in seconds.
    """

    tool: str
    task: str
    estimate: float
    uncertainty: float
    trials: int
    cost: float = 0.0
    latency: float = 0.0


class Experience(Value, frozen=True):
    """Memory of a cycle. `success` is None while nobody knows whether it worked.

    `situation` is a line; `said` and `answer` are what people said and what they were told, whole: found by recall.
    """

    situation: str
    action: str = ""
    outcome: str = ""
    success: bool | None = None
    task: str = ""
    cause: str = ""
    lesson: str = ""
    id: str = field(default_factory=new_id)
    at: datetime = field(default_factory=utcnow)
    session: str = "main"
    cost: float = 0.0
    trust: Trust = "untrusted"
    origin: str = ""
    said: str = ""
    answer: str = ""


class Reflection(Value, frozen=True):
    """Lesson of a result: `score` 0..1, what worked, why the rest failed, what to remember."""

    result: ActionResult | None = None
    score: Share = 0.0
    successes: Sequence[Call] = ()
    failures: Sequence[CallFailure] = ()
    abilities: Sequence[Ability] = ()
    experiences: Sequence[Experience] = ()
    next_look: float | None = None

    def __post_init__(self) -> None:
        if list in (type(self.successes), type(self.failures), type(self.abilities), type(self.experiences)):
            _keep_tuples(self, "successes", "failures", "abilities", "experiences")


class CycleRecord(Value, frozen=True):
    """One cycle as it goes on the tape. `phases` maps a phase to its duration in seconds; `notes` is what modules had
    kept with it, such as what a model was asked; `calls` counts what was `ok`, `failed` and `skipped`."""

    cycle_id: str
    agent: str
    session: str
    started_at: datetime
    duration: float
    outcome: Outcome
    perceptions: tuple[Perception, ...] = ()
    action: Action | None = None
    result: ActionResult | None = None
    reflection: Reflection | None = None
    phases: dict[str, float] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    notes: tuple[dict[str, Any], ...] = ()
    calls: dict[str, int] = field(default_factory=dict)


class Message(Value, frozen=True):
    """A message that a tool asks to have appended to the context as it is."""

    kind: str
    data: Any
    instance: str | None = None


class Verdict(Value, frozen=True):
    """A person's answer to a call that asks for approval; made by the class methods."""

    decision: Literal["approve", "deny", "edit", "replace"]
    reason: str = ""
    params: dict[str, Any] | None = None
    call: Call | None = None

    @classmethod
    def approve(cls) -> Verdict:
        return cls("approve")

    @classmethod
    def deny(cls, reason: str = "") -> Verdict:
        return cls("deny", reason)

    @classmethod
    def edit(cls, params: Mapping[str, Any], reason: str = "") -> Verdict:
        """Run the call with these parameters instead of all of its own."""
        return cls("edit", reason, params=dict(params))

    @classmethod
    def replace(cls, call: Call, reason: str = "") -> Verdict:
        """Run another call in its place; it keeps the replaced call's id."""
        return cls("replace", reason, call=call)


def without_service_keys(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's wire form as who planned it wrote it."""
    return {key: value for key, value in wire.items() if key not in SERVICE_KEYS}
