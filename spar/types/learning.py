"""Values of what is learnt: remedies, tried calls, feedback, and decisions that memory made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import field

from spar.types.literals import CallStatus, Trust
from spar.types.value import Value, keep_tuples

#: What a planner can do about a failure. `none`: nothing that is known helps.
RemedyAction = Literal["retry", "other_tool", "other_parameter", "ask", "wait", "none"]
#: Whether memory is learnt from: decisions go by it; it is learnt and told, but none goes by it; nothing is learnt.
Learning = Literal["on", "observe", "off"]
#: What came of asking a model for advice: it added something; it had nothing to add; its answer could not be used; came
#: too late; no model could be asked; asking failed; there were too many requests in this hour. Empty: it was not asked.
Advised = Literal["", "added", "nothing", "malformed", "late", "unanswered", "failed", "limited"]
#: Who says how something went: a postcondition of the call, a rule that looks later, a person, an environment.
FeedbackSource = Literal["expect", "verify", "person", "environment"]


class Remedy(Value, frozen=True):
    """Advice after a failure, as a planner can carry it out; `text` says it to people.

    `after`: seconds before a retry makes sense. `tool`: the tool to take in place of the one that failed.
    `parameter`: the name of the parameter at fault. `until`: the id of the incident that has to be over first.
    """

    action: RemedyAction
    text: str = ""
    after: float | None = None
    tool: str = ""
    parameter: str = ""
    until: str = ""


class TriedCall(Value, frozen=True):
    """One call as an experience keeps it: its parameters without secrets, how it ended and why.

    `success` is None while nobody knows; `cause` is a kind of the fault taxonomy, empty where it worked; `trust` says
    whether text of strangers filled its parameters.
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
    """A later word on how a run or a cycle went. It holds for all experiences that came of it.

    `about` is the id of a run, a cycle or an experience; `score` is 0..1.
    """

    about: str
    success: bool
    by: FeedbackSource
    why: str = ""
    score: float | None = None


class Credit(Value, frozen=True):
    """One experience that a decision went by, and whether that decision went well."""

    experience_id: str
    has_helped: bool


class Learnt(Value, frozen=True):
    """A decision that memory changed, or would have changed (`is_used` False: it is only observed).

    `call_id` is the call that was decided on, empty where none was made; `cases` are the ids of the experiences that
    it went by, `instead_of` the tool (or what else) that would have been taken without memory, `why` a sentence.
    """

    why: str
    call_id: str = ""
    cases: Sequence[str] = ()
    instead_of: str = ""
    is_used: bool = True

    def __post_init__(self) -> None:
        keep_tuples(self, "cases")
