"""Consequence of the end of a cycle for the work that it took, and of a failure for one piece of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Literal

from spar.backoff import Backoff
from spar.facts import PutAside, RetryPlanned
from spar.records.journal import MOST_ATTEMPTS, Item
from spar.types import replace

#: What becomes of the work of a cycle: it is done; it waits again, before all other work; it is tried again later, and
#: put aside after too many attempts; the next start continues the cycle.
Consequence = Literal["done", "again", "later", "next start"]
#: How far a cycle came: until its plan began; until its first call; further.
Progress = Literal["noticing", "planning", "acting"]
#: How a cycle ended: well; a phase before its first call failed; the stop of the agent cut it off; it broke off; people
#: called it off.
Ending = Literal["well", "failed", "stopped", "broken", "called off"]

#: What becomes of the work of a cycle. What was attempted is never attempted again by itself.
CONSEQUENCES: Final[dict[tuple[Progress, Ending], Consequence]] = {
    ("noticing", "well"): "done",
    ("noticing", "failed"): "later",
    ("noticing", "stopped"): "next start",
    ("noticing", "broken"): "later",
    ("noticing", "called off"): "later",
    ("planning", "well"): "done",
    ("planning", "failed"): "later",
    ("planning", "stopped"): "next start",
    ("planning", "broken"): "later",
    ("planning", "called off"): "later",
    ("acting", "well"): "done",
    ("acting", "failed"): "done",
    ("acting", "stopped"): "next start",
    ("acting", "broken"): "done",
    ("acting", "called off"): "done",
}
#: What becomes of interrupted work whose cycle ended before its plan began: an item to deal with again, or a cycle to
#: continue. An item whose cycle failed has one attempt more, like new work; all else did not count.
INTERRUPTED: Final[dict[tuple[Literal["item", "cycle"], Ending], Consequence]] = {
    ("item", "well"): "again",
    ("item", "failed"): "later",
    ("item", "stopped"): "again",
    ("item", "broken"): "again",
    ("item", "called off"): "later",
    ("cycle", "well"): "again",
    ("cycle", "failed"): "again",
    ("cycle", "stopped"): "again",
    ("cycle", "broken"): "again",
    ("cycle", "called off"): "done",
}
#: The wait (seconds) between a failure and the next attempt at the same work.
BACKOFF: Final = Backoff(10.0, 300.0)


def consequence(progress: Progress, ending: Ending, piece: Literal["", "item", "cycle"] = "") -> Consequence:
    """Return what becomes of the work of a cycle. Args: piece: the kind of interrupted work that it took, if any."""
    return INTERRUPTED[piece, ending] if piece and progress == "noticing" else CONSEQUENCES[progress, ending]


def retry(item: Item, now: datetime) -> RetryPlanned | PutAside:
    """Return the fact about work whose last attempt failed: it is tried again later, or put aside."""
    if item.attempts >= MOST_ATTEMPTS:
        why = "" if item.fault is None else item.fault.message
        return PutAside(session=item.session, item=item, reason=put_aside_because(item.attempts, why))
    due_at = now + timedelta(seconds=BACKOFF.delay(item.attempts))
    return RetryPlanned(session=item.session, item=replace(item, due_at=due_at))


def put_aside_because(attempts: int, why: str) -> str:
    """Return the reason for which work is put aside. Args: why: the last failure, "" if only processes died."""
    return f"{attempts} attempts failed; the last: {why or 'the process ended with it in hand'}"
