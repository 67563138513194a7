"""Pause of an agent: what a request, a start or a stop changes of it. The pause outlives the process."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from spar.facts import AgentPaused, AgentResumed

#: What may change the pause: a request to pause or to resume; the first start in a process; another start, or one that
#: is to resume; the end by a program; the end of a service, or of one of several processes, which the next one follows.
Occasion = Literal["pause", "resume", "first start", "start", "end", "end of a service"]
#: What follows, by whether the agent is paused.
PAUSES: Final[dict[tuple[Occasion, bool], Literal["paused", "resumed", "as it is"]]] = {
    ("pause", False): "paused",
    ("pause", True): "as it is",
    ("resume", False): "as it is",
    ("resume", True): "resumed",
    ("first start", False): "as it is",
    ("first start", True): "as it is",
    ("start", False): "as it is",
    ("start", True): "resumed",
    ("end", False): "as it is",
    ("end", True): "resumed",
    ("end of a service", False): "as it is",
    ("end of a service", True): "as it is",
}


def pause(occasion: Occasion, at: datetime, *, is_paused: bool) -> AgentPaused | AgentResumed | None:
    """Return the fact about the pause of an agent that follows; None if it stays as it is."""
    what = PAUSES[occasion, is_paused]
    return AgentPaused(at=at) if what == "paused" else AgentResumed(at=at) if what == "resumed" else None
