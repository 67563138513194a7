"""Decision of a plan, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from spar import checks
from spar.checks import Real, Seconds
from spar.ids import new_id
from spar.types.call import Call, CallResult
from spar.types.fault import Fault
from spar.types.learning import Feedback, Learnt
from spar.types.literals import ActionStatus, Trust
from spar.types.perception import Perception
from spar.types.value import Value, keep_tuples


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


class Action(checks.Checked, Value, frozen=True):
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
        checks.Checked.__post_init__(self)


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
