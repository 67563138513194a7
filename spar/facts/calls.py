"""Facts of calls: from the plan to their end, or to the question whether they were done.

`cycle` is the id of the cycle; that of the action if an actor carries it out without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spar.facts.fact import Fact
from spar.records.journal import Doubt, Unfinished
from spar.types import Action, Call, CallResult


class Planned(Fact, frozen=True, kw_only=True):
    """The plan of a cycle is carried out from now on. `effect` is that of an actor that does not record its calls."""

    cycle: str
    action: Action
    effect: str = ""


class CallsPlanned(Fact, frozen=True, kw_only=True):
    """A plan that is still being written has further calls."""

    cycle: str
    calls: tuple[Call, ...]


class AttemptStarted(Fact, frozen=True, kw_only=True):
    """An attempt at a call begins.

    `effect` is that of its tool. `allowed` is what allowed it: "auto", "retry" or the id of an approval. `values` are
    its parameters if the call itself only refers to them.
    """

    cycle: str
    call: str
    attempt: int
    effect: str
    allowed: str = "auto"
    values: Mapping[str, Any] | None = None


class CallEnded(Fact, frozen=True, kw_only=True):
    """A call ended; `result.output` is what its tool returned, also a `Message`."""

    cycle: str
    result: CallResult


class CallDetached(Fact, frozen=True, kw_only=True):
    """The only call of this action continues, and no cycle waits for it."""

    cycle: str
    action: Action
    effect: str


class CallAttached(Fact, frozen=True, kw_only=True):
    """A detached call ended; its end is a fact like that of any other call."""

    cycle: str
    call: str


class CallDoubted(Fact, frozen=True, kw_only=True):
    """Nobody knows whether a call had its effect."""

    doubt: Doubt


class DoubtAnswered(Fact, frozen=True, kw_only=True):
    """A person said what became of a call in doubt; `again` is the cycle that makes it again, None for none."""

    doubt: Doubt
    again: Unfinished | None = None
