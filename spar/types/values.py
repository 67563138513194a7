"""Words of closed sets, the base of all values, errors as data, perceptions, and values of learning."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct, field

from spar.checks import PLAIN, Checked, Share, clamped, keep_tuples, make_valid, shorten
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
from spar.ids import new_id

#: Readers of a model's reasoning: nobody; subscribers of a run's stream; these and the receiver of the reply.
Reasoning = Literal["off", "stream", "reply"]
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
QueueMode = Literal["followup", "steer", "collect", "interrupt"]
QUEUE_MODES: tuple[QueueMode, ...] = ("followup", "steer", "collect", "interrupt")
#: Kinds of alerts.
AlertKind = Literal[
    "stuck", "slow", "failing", "runs", "stalled", "blocked", "memory", "disk", "budget", "provider", "prompt",
    "cache", "sensor", "channel", "approval",
]  # fmt: skip
#: Programs that run nothing but themselves and write nothing but their output. Calls of these may be granted for a time
#: if the settings do not name other programs.
GRANTABLE = (
    *("cat", "date", "df", "du", "free", "head", "hostname", "id", "ls", "sort", "stat", "tail", "uname", "uptime"),
    *("wc", "whoami"),
)
TEXT = frozenset({str})
#: Most characters of all fields in the `repr` of a value.
LONGEST_SHOWN = 160


def utcnow() -> datetime:
    """Return the wall time as an aware UTC datetime."""
    return datetime.now(UTC)


class Value(Struct, frozen=True):
    """Value whose `repr` is one short line: references to earlier values, and large values, are only named."""

    def __repr__(self) -> str:
        fields = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Struct):
                fields.append(f"{name}=<{type(value).__name__}>")
            elif isinstance(value, (tuple, list, dict)):
                if value:
                    fields.append(f"{name}=<{len(value)}>")
            elif value is not None and not (isinstance(value, str) and not value):
                fields.append(f"{name}={shorten(value, LONGEST_SHOWN // 4)}")
        text = ", ".join(fields)
        return f"{type(self).__name__}({text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + '…'})"


class CheckedValue(Checked, Value, frozen=True):
    """Value that checks its fields, and the values in it, when it is made, and converts its sequences to tuples.

    Raises: TypeError, ValueError for the first wrong field.
    """

    def __post_init__(self) -> None:
        if not PLAIN[type(self)](self):
            make_valid(self)


class Fault(Value, frozen=True):
    """Error as data.

    `kind` is a word of a closed set: `transient permanent timeout contract bad_input error …`; `part` names the part
    that failed, `phase` the phase; `retryable` says whether the same attempt may work later.
    `detail` holds further facts: `type`, `retry_after` (seconds), `leaves` (of an exception group), and for an
    exception that was not raised on purpose `where` (`mytools.py:9 in plan`) and `traceback`.
    """

    kind: str
    message: str
    part: str = ""
    phase: str = ""
    retryable: bool = True
    detail: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException, *, part: str = "", phase: str = "") -> Fault:
        """Return the fault of an exception, looking through groups; never raises.

        Exceptions that are raised on purpose (`TransientError`, `PermanentError`, any `SparError`) get no place and
        traceback: their sentence is enough.
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
            detail["output"] = output  # what a tool produced before it failed
        if not isinstance(cause, SparError) and (where := place_of(cause)):
            detail["where"], detail["traceback"] = where, stack_of(error)
        return cls(_kind_of(cause), message, part, phase, not isinstance(cause, LASTING), detail)


#: Exceptions that Python raises for mistakes in code. Their message needs the type: a KeyError's text is only a key.
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
    except Exception:  # a broken property must not hide it either
        return None


#: Exceptions that the same attempt would raise again.
LASTING = (PermanentError, ConfigError)


def _kind_of(error: BaseException) -> str:
    for error_class, kind in _KINDS:
        if isinstance(error, error_class):
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


#: Most characters of the representation of content that is not JSON.
LONGEST_REPRESENTED = 200


class Perception(CheckedValue, frozen=True):
    """Thing that was noticed. `Perception("disk is full")` is enough to make one.

    `key` identifies repetitions (two perceptions with one key are duplicates); `subject` says what it is about
    (perceptions of one subject are fused into one, with the parts in `evidence`).
    `priority` (None until it is set) and `confidence` are 0..1. Text of an `untrusted` perception never steers the
    agent.
    Stages of the pipeline write their results to `attributes`: `slots` (what an intent captured) and `why` (the reasons
    for the priority, a list of sentences).

    Raises: TypeError, ValueError for an invalid field.
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

    @property
    def text(self) -> str:
        """Return the content as text: itself if it is a string, else its JSON; of content that is not JSON, such as
        keys that are not text, the beginning of its representation."""
        if isinstance(self.content, str):
            return self.content
        try:
            return json.dumps(self.content, ensure_ascii=False, default=str)
        except Exception:  # also those of a user's objects
            return shorten(self.content, LONGEST_REPRESENTED)

    @property
    def importance(self) -> float:
        """Return the priority, or 0.5 while it is not set."""
        return 0.5 if self.priority is None else self.priority

    @staticmethod
    def restored(row: dict[str, Any]) -> dict[str, Any]:
        """Clamp the values of a row that an earlier version wrote without bounds."""
        bounded = {name: clamped(row[name], 0.0, 1.0, low) for name, low in _UNBOUNDED_BEFORE if name in row}
        return {**row, **bounded}


#: Characters of the name by which a perception is recognized if it comes again under another id.
LONGEST_TRAIT = 200


def trait(perception: Perception) -> str:
    """Return the name that identifies a perception even if it comes again under another id."""
    return f"{perception.source}|{perception.key or perception.text}"[:LONGEST_TRAIT]


_UNBOUNDED_BEFORE = (("priority", None), ("confidence", 1.0))


class Message(CheckedValue, frozen=True):
    """Message that a tool asks to append to the context as it is."""

    kind: str
    data: Any
    instance: str | None = None


#: Action of a planner against a failure. `none`: nothing is known to help.
RemedyAction = Literal["retry", "other_tool", "other_parameter", "ask", "wait", "none"]
#: Use of memory for decisions. `on`: decisions use it. `observe`: lessons are learnt and reported, but no decision uses
#: them. `off`: nothing is learnt.
Learning = Literal["on", "observe", "off"]
#: Outcome of asking a model for advice: it added something; it had nothing to add; its answer could not be used; it was
#: too late; no model could be asked; the request failed; there were too many requests in this hour. Empty: none was
#: asked.
Advised = Literal["", "added", "nothing", "malformed", "late", "unanswered", "failed", "limited"]
#: Source of feedback: a postcondition of the call, a rule that looks later, a person, an environment.
FeedbackSource = Literal["expect", "verify", "person", "environment"]


class Remedy(Value, frozen=True):
    """Advice after a failure, in a form that a planner can carry out; `text` is the same for people.

    `after`: seconds before a retry makes sense. `tool`: the tool to use in place of the failed one. `parameter`: the
    name of the wrong parameter. `until`: the id of the incident that must end first.
    """

    action: RemedyAction
    text: str = ""
    after: float | None = None
    tool: str = ""
    parameter: str = ""
    until: str = ""


class TriedCall(Value, frozen=True):
    """Call in an experience: its parameters without secrets, how it ended and why.

    `success` is None while it is unknown; `cause` is a kind of `Fault`, empty after a success; `trust` says whether
    text of strangers filled the parameters. `latency` is in seconds.
    """

    tool: str
    params: dict[str, Any] = field(default_factory=dict)
    status: CallStatus = "ok"
    success: bool | None = None
    verified: bool | None = None
    cause: str = ""
    remedy: Remedy | None = None
    trust: Trust = "trusted"
    latency: float = 0.0


class Feedback(Value, frozen=True):
    """Later judgement of a run or a cycle. It applies to all experiences of that run or cycle.

    `about` is the id of a run, a cycle or an experience; `score` is 0..1.
    """

    about: str
    success: bool
    by: FeedbackSource
    why: str = ""
    score: Share | None = None


class Credit(Value, frozen=True):
    """Experience that a decision used, and whether that decision went well."""

    experience_id: str
    has_helped: bool


class Learnt(Value, frozen=True):
    """Decision that memory changed, or would have changed (`is_used` False: memory is only observed).

    `call_id` is the decided call, empty if none was made; `cases` are the ids of the experiences that were used;
    `instead_of` is the tool (or other choice) that would have been taken without memory; `why` is a sentence.
    """

    why: str
    call_id: str = ""
    cases: Sequence[str] = ()
    instead_of: str = ""
    is_used: bool = True

    def __post_init__(self) -> None:
        keep_tuples(self, "cases")
