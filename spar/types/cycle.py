"""Calls of tools and their results, the decision of a plan, lessons of a result, and the record of a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import methodcaller
from typing import Annotated, Any, Final, Literal, TypeVar

from msgspec import Struct, field
from msgspec.structs import force_setattr

from spar.checks import PLAIN, Between, Count, Name, Real, Seconds, Share, keep_tuples, make_valid, shorten
from spar.ids import new_call_id, new_id
from spar.types.values import (
    METHODS,
    TEXT,
    ActionStatus,
    Advised,
    CallStatus,
    CheckedValue,
    Credit,
    Fault,
    Feedback,
    Learnt,
    Outcome,
    OutputMethod,
    Perception,
    Remedy,
    TriedCall,
    Trust,
    Value,
    utcnow,
)

V = TypeVar("V", bound=Struct)

_WIRE_FIELDS = {
    "_tool": "tool",
    "_id": "id",
    "_outputPath": "output_path",
    "_outputMethod": "output_method",
    "_instance": "instance",
    "_after": "after",
    "_reasoningForCall": "reason",
}
#: Keys of a call's wire form that the service adds. Planners neither write nor see them.
SERVICE_KEYS = frozenset({"_approval", "_ask", "_original", "_parked", "_task", "_toolCallId", "_trust", "_verify"})
#: Key under which a planner says why a person has to approve a call, whatever the policy says.
ASKED = "_ask"


class Call(CheckedValue, frozen=True, gc=False):  # JSON: no cycle of references goes through it
    """Call of a tool. `Call("note", {"text": "hello"})` is enough to make one.

    `after` names calls that must end well first. `output_path` (`†state.a.b`) is where the result is written, and
    `output_method` how. A parameter that is a string `†kind.path` is a reference to data. `meta` holds every other key
    of the wire form (the call as a JSON object) that begins with an underscore.

    Raises: TypeError, ValueError for an invalid field.
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

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Call:
        """Return the call of a wire object: `{"_tool": name, …parameters, "_outputPath": …, "_id": …}`.

        Raises: ValueError if there is no tool or a known key has the wrong type.
        """
        if type(wire) is not dict and not isinstance(wire, Mapping):
            raise ValueError(f"a call must be an object, found {type(wire).__name__}")
        fields: dict[str, Any] = {}
        params: dict[str, Any] = {}
        meta: dict[str, Any] = {}
        for key, value in wire.items():
            if not isinstance(key, str):
                raise ValueError(f"a call's keys must be text, found {shorten(key)}")
            if name := _WIRE_FIELDS.get(key):
                fields[name] = value
            elif key.startswith("_"):
                meta[key] = value
            else:
                params[key] = value
        has_after, after = "after" in fields, fields.pop("after", ())
        if has_after and (isinstance(after, str) or not isinstance(after, Sequence)):
            raise ValueError(f"'_after' must be a list of call ids, found {shorten(after)}")
        if not TEXT.issuperset(map(type, fields.values())):
            for name in ("tool", "id", "output_path", "output_method", "instance", "reason"):
                value = fields.get(name)
                if value is not None and not isinstance(value, str):
                    raise ValueError(f"'{name}' of a call must be text, found {shorten(value)}")
        if any(not isinstance(item, str) for item in after):
            raise ValueError(f"'_after' must be a list of call ids, found {shorten(after)}")
        if not fields.get("tool"):
            raise ValueError("a call must name its tool: '_tool' is missing")
        if fields.get("output_method", "set") not in METHODS:
            raise ValueError(
                f"'_outputMethod' must be set, merge, assign, push or concat, found {shorten(fields['output_method'])}"
            )
        set_fields = {name: value for name, value in fields.items() if value is not None}
        return cls(**set_fields, after=tuple(after), params=params, meta=meta)

    def to_wire(self) -> dict[str, Any]:
        """Return the call as a wire object; `Call.from_wire(call.to_wire()) == call`."""
        wire: dict[str, Any] = {"_tool": self.tool, **self.params}
        wire["_id"] = self.id
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
        wire.update(self.meta)
        return wire


class CallResult(Value, frozen=True, gc=False):  # as for a call
    """Result of one call. `reason` says why it did not run or was not waited for; `duration` is in seconds.

    `verified` says whether the result is what the call expected (`_expect`, `_expectSchema`); None: nothing was
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
        """Return whether it is unknown if the call had an effect that must not be repeated; also true for some
        time-outs."""
        if self.status == "timeout" and self.fault is not None:
            return self.fault.detail.get("in_doubt") is True
        return self.status == "in_doubt"


#: Group in which each status of a call is counted.
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


class CallFailure(Value, frozen=True):
    """Reasons of one failed call.

    `cause` and `remedy` are sentences, `kind` is a kind of `Fault`, `advice` is for a planner.
    """

    call: Call
    cause: str
    remedy: str = ""
    kind: str = ""
    advice: Remedy | None = None


class Verdict(Value, frozen=True):
    """Answer of a person to a call that asks for approval; made by the class methods."""

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
        """Run the call with exactly these parameters."""
        return cls("edit", reason, params=dict(params))

    @classmethod
    def replace(cls, call: Call, reason: str = "") -> Verdict:
        """Run another call in its place, under the id of the replaced call."""
        return cls("replace", reason, call=call)


def without_service_keys(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's wire form without the keys that the service added."""
    return {key: value for key, value in wire.items() if key not in SERVICE_KEYS}


class RunUsage(Struct, frozen=True):
    """Usage of a run.

    `requests` counts requests to models, `calls` the calls that were started. Tokens are those of models;
    `cached_tokens` is the part of `input_tokens` that a cache served. `money` is in millionths of the currency's unit,
    as far as prices are known. `waited` are the seconds of waiting for a provider.
    """

    requests: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    money: int = 0
    waited: float = 0.0


class Answer(Struct, frozen=True):
    """Text of an answer, given if the calls go well that it depends on (`text`; None: nothing).

    `calls` are the ids of these calls; a text without any is given in every case. `on_failure` replaces the text if a
    call does not go well; without it, one sentence says which call did not go well, and why.
    """

    text: str | None
    calls: tuple[str, ...] = ()
    on_failure: str | None = None


class Action(CheckedValue, frozen=True):
    """Decision of a plan: a graph of calls, or an answer (`output`), or both.

    `next_look` proposes the seconds until the next cycle; the agent clamps it to the bounds of its interval.
    `degraded` says that a fallback planner decided. `trust` says whether text from outside may have influenced the
    calls; None: as little trust as the least trusted perception has.
    `deferred` says why nothing can be decided now: the run goes on after `next_look` seconds, and the waiting time does
    not count as time of the run.
    `answers`: the `output` consists of these, and each is given only if its calls went well.
    `said` is the text that a model wrote beside the calls: the run's next request shows it.
    `learnt` are the decisions that memory changed, `feedback` is what the planner learnt about the effects of earlier
    cycles. `additions` is what the request to a model told it besides the conversation so far, in order: objects with
    the ids of `messages`, `blocks` of text with their `trust`, and the ids of `experiences` (all that hold:
    `recalled`). Later requests show the same at the same place, also after a restart; None: no model was asked.
    `signed` are the parts of its answer that its provider wants back, such as thoughts.

    Lists are accepted and stored as tuples: `Action(calls=[…])` is how people write it.
    Raises: TypeError, ValueError for an invalid field.
    """

    calls: Sequence[Call] = ()
    goal: str = ""
    id: str = field(default_factory=new_id)
    perceptions: Sequence[Perception] = ()
    run_id: str | None = None
    reason: str = ""
    output: Any = None
    next_look: Real | None = None
    degraded: bool = False
    trust: Trust | None = None
    deferred: str = ""
    answers: tuple[Answer, ...] = ()
    said: str = ""
    learnt: tuple[Learnt, ...] = ()
    feedback: tuple[Feedback, ...] = ()
    additions: tuple[dict[str, Any], ...] | None = None
    signed: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if type(self.calls) is list:  # the usual way to write it
            force_setattr(self, "calls", tuple(self.calls))
        if not PLAIN[Action](self):
            make_valid(self)


class ActionResult(Value, frozen=True):
    """Result of an action: exactly one `CallResult` for each call, in the order of arrival.

    `state` is the final global state, `messages` are those that the phase added to the context, `errors` the failures
    as `{"call": wire, "error": {"kind", "message"}}`. `fault` is set when the phase itself failed.
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
            keep_tuples(self, "results", "messages", "errors")

    def result(self, call_id: str) -> CallResult:
        """Return the result of the call with this id. Raises: KeyError naming the known ids."""
        for item in self.results:
            if item.call.id == call_id:
                return item
        known_ids = ", ".join(item.call.id for item in self.results) or "none"
        raise KeyError(f"no call {call_id!r} in this action; known: {known_ids}")


_shallow_copy = methodcaller("__copy__")  # the same as `copy.copy`, with fewer steps


def copy_with(value: V, **fields: Any) -> V:
    """Return a copy of a value with these fields, which are not checked: they must come from values that were."""
    copy: V = _shallow_copy(value)
    for name, content in fields.items():
        force_setattr(copy, name, content)
    return copy


def least_trust(perceptions: Iterable[Perception]) -> Trust:
    """Return the trust of the least trusted of these perceptions."""
    for perception in perceptions:  # no generator: this runs for each plan, and most have one perception
        if perception.trust == "untrusted":
            return "untrusted"
    return "trusted"


def trust_of(action: Action) -> Trust:
    """Return the trust of an action: its own value, or else that of its least trusted perception."""
    return action.trust or least_trust(action.perceptions)


def answering(action: Action, noticed: Sequence[Perception]) -> Action:
    """Return the action with its cycle's perceptions added, as far as the planner left them out.

    A planner may name the perceptions that it answers. But text from outside may have influenced any plan, so if a
    planner names only trusted perceptions, the untrusted ones are added.
    """
    named = action.perceptions
    if not named:
        return copy_with(action, perceptions=tuple(noticed)) if noticed else action
    if named is noticed or least_trust(named) == "untrusted" or least_trust(noticed) == "trusted":
        return action
    untrusted = [perception for perception in noticed if perception.trust == "untrusted"]
    return copy_with(action, perceptions=(*named, *untrusted))


def was_misled(ticks: Iterable[ActionResult]) -> bool:
    """Return whether one of these results has a plan from untrusted text: what it wrote may repeat that text."""
    return any(result.results and (result.action is None or trust_of(result.action) == "untrusted") for result in ticks)


#: Margin of harms over helps at which an experience is retired: it is stored, but no decision uses it any more.
RETIRED_AFTER = 3
#: Bound of `Ability.halvings`: more than any number of trials brings about.
MOST_HALVINGS: Final = 1e12


class Ability(Value, frozen=True):
    """Ability of a tool at one kind of task.

    `estimate` (0..1) is the mean and `uncertainty` (0..0.5) the standard deviation of a Beta posterior over `trials`;
    `cost` is the mean of what was spent, in calls of the budget, and `latency` the mean duration in seconds. These
    figures hold for the time `at`, in seconds since 1970; after each `half_life` (seconds) half of the evidence is
    gone; 0: it stays. `halvings` is how often trials at the task, of whatever tool, have halved evidence since the
    first one; later trials halve this evidence further. What remains without evidence is the chance `prior`.
    """

    tool: Name
    task: Name
    estimate: float
    uncertainty: float
    trials: int
    cost: float = 0.0
    latency: float = 0.0
    at: float = 0.0
    half_life: float = 0.0
    halvings: Annotated[float, Between(0.0, MOST_HALVINGS)] = 0.0
    prior: Share = 0.5


class Experience(Value, frozen=True):
    """Memory of a cycle. `success` is None while nobody knows whether the cycle worked.

    `situation` is one line; `said` and `answer` are the full texts of people and of the reply, for recall by search.
    `key` is the most exact name of the situation, `calls` are the tried calls in order.
    Similar experiences are stored as one: `count` says how often it was made, `at` when last, `first_at` when first.
    `helped` and `harmed` count the decisions that used it and went well or badly; `score` is 0..1.
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
    key: str = ""
    run_id: str = ""
    calls: Sequence[TriedCall] = ()
    score: float | None = None
    count: Count = 1
    first_at: datetime | None = None
    helped: Count = 0
    harmed: Count = 0

    def __post_init__(self) -> None:
        if type(self.calls) is list:
            keep_tuples(self, "calls")

    @property
    def is_retired(self) -> bool:
        """Return whether it harmed so much more often than it helped that no decision uses it any more."""
        return self.harmed - self.helped >= RETIRED_AFTER


class ExperienceSource(Struct, frozen=True):
    """Origin of one of the experiences that were merged into a row."""

    id: str
    run_id: str
    cycle_id: str
    at: datetime


class ExperienceDetail(Struct, frozen=True):
    """Experience in full: the best example, the last example if it is another one, and the known origins of all."""

    experience: Experience
    last: Experience | None = None
    sources: tuple[ExperienceSource, ...] = ()
    is_retired: bool = False


class Reflection(Value, frozen=True):
    """Lesson of a result: `score` 0..1, what worked, why the rest failed, what to remember.

    `credits` say whether it helped to use an experience; `feedback` is how earlier cycles and runs turned out.
    `advised` says what came of asking a model.
    """

    result: ActionResult | None = None
    score: Share = 0.0
    successes: Sequence[Call] = ()
    failures: Sequence[CallFailure] = ()
    abilities: Sequence[Ability] = ()
    experiences: Sequence[Experience] = ()
    next_look: Real | None = None
    credits: Sequence[Credit] = ()
    feedback: Sequence[Feedback] = ()
    advised: Advised = ""

    def __post_init__(self) -> None:
        parts = (self.successes, self.failures, self.abilities, self.experiences, self.credits, self.feedback)
        if list in map(type, parts):
            keep_tuples(self, "successes", "failures", "abilities", "experiences", "credits", "feedback")


class CycleRecord(Value, frozen=True):
    """Record of one cycle in the store.

    `phases` maps a phase to its duration in seconds; `notes` are what modules added, such as what a model was asked;
    `calls` counts what was `ok`, `failed` and `skipped`; `trace_id` names its trace, "" when tracing is off.
    `configuration` is the digest of the settings and rules in force, "" if a program made the agent.
    """

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
    trace_id: str = ""
    configuration: str = ""
