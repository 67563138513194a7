"""Pause of an agent: what a request, a start or a stop changes of it. The pause outlives the process."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from spar.facts import AgentPaused, AgentResumed

#: What may change the pause: a request to pause or to resume; the first start in a process; another start, or one that
#: is to resume; the end by a program; the end of a service, or of one of several processes, which the next one follows.
Occasion = Literal["pause", "resume", "first start", "start", "end", "end of a service"]
#: What the pause is after each occasion.
PAUSES: Final[dict[Occasion, Literal["paused", "resumed", "as it was"]]] = {
    "pause": "paused",
    "resume": "resumed",
    "first start": "as it was",
    "start": "resumed",
    "end": "resumed",
    "end of a service": "as it was",
}


def pause(occasion: Occasion, at: datetime, *, is_paused: bool) -> AgentPaused | AgentResumed | None:
    """Return the fact about the pause of an agent that follows; None if nothing changes."""
    what = PAUSES[occasion]
    if what == "paused" and not is_paused:
        return AgentPaused(at=at)
    return AgentResumed(at=at) if what == "resumed" and is_paused else None
