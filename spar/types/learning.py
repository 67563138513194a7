"""Values of learning: remedies, tried calls, feedback, and decisions that memory changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import field

from spar.checks import Share
from spar.types.literals import CallStatus, Trust
from spar.types.value import Value, keep_tuples

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
