"""Facts of calls: from the plan to their end, or to the question whether they were done."""

from __future__ import annotations

from spar.facts.fact import Fact
from spar.records.journal import Answer
from spar.types import CallStatus


class Planned(Fact, frozen=True, kw_only=True):
    """The plan of a cycle is carried out from now on. `calls` are the ids of its calls so far."""

    cycle: str
    calls: tuple[str, ...] = ()


class CallPlanned(Fact, frozen=True, kw_only=True):
    """A plan that is still being written has a further call."""

    cycle: str
    call: str


class AttemptStarted(Fact, frozen=True, kw_only=True):
    """An attempt at a call begins. `allowed` is what allowed it: "auto" or the id of an approval."""

    cycle: str
    call: str
    attempt: int
    effect: str
    allowed: str = "auto"


class CallEnded(Fact, frozen=True, kw_only=True):
    """A call ended."""

    cycle: str
    call: str
    status: CallStatus
    reason: str = ""


class CallDetached(Fact, frozen=True, kw_only=True):
    """A call continues without its cycle."""

    cycle: str
    call: str
    effect: str


class CallAttached(Fact, frozen=True, kw_only=True):
    """A detached call ended."""

    cycle: str
    call: str


class CallDoubted(Fact, frozen=True, kw_only=True):
    """Nobody knows whether a call had its effect. `doubt` is `cycle/call`."""

    doubt: str


class DoubtAnswered(Fact, frozen=True, kw_only=True):
    """A person said what became of a call in doubt."""

    doubt: str
    answer: Answer
