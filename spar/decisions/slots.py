"""Slots of the running runs: which sessions begin or continue a run, the one with the oldest work first."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from msgspec import Struct


class Claim(Struct, frozen=True):
    """Present claim of a session to a slot. `since` is when its oldest work came (monotonic seconds). `cycle` has taken
    its work, so that the session could not use a slot before the end of that; "" for no such cycle."""

    since: float
    cycle: str = ""


class Slots(Struct):
    """Slots of one agent: the number of those in use, and the sessions that wait for one.

    `queue` is a heap of the time of the oldest work, the order of arrival, and the session; `waiting` are these
    sessions. `passed_over` is the cycle during which a session was passed over: the next slot is reserved for it.
    """

    used: int = 0
    arrived: int = 0
    queue: list[tuple[float, int, str]] = []
    waiting: set[str] = set()
    passed_over: dict[str, str] = {}


def ask(slots: Slots, session: str, cycle: str, free: int) -> bool:
    """Return whether a session gets one of the free slots at once. Args: cycle: as in `Claim`."""
    if free <= 0 or slots.queue or _passes(slots, session, cycle):
        return False
    slots.used += 1
    return True


def enqueue(slots: Slots, session: str, since: float) -> None:
    """Have a session wait for a slot. Args: since: when its oldest work came (monotonic seconds)."""
    slots.arrived += 1
    slots.waiting.add(session)
    heappush(slots.queue, (since, slots.arrived, session))


def fill(slots: Slots, limit: int, claim_of: Callable[[str], Claim | None]) -> list[str]:
    """Give the free slots to the waiting sessions with the oldest work, and return these.

    Args: limit: the most slots; claim_of: returns the present claim of a session, None if it needs no slot any more.
    """
    granted, passed = list[str](), list[tuple[float, int, str]]()
    while slots.queue and slots.used < limit:
        entry = since, _, session = heappop(slots.queue)
        slots.waiting.discard(session)
        if (claim := claim_of(session)) is None:
            continue
        if claim.since > since:  # its oldest work is gone
            enqueue(slots, session, claim.since)
        elif _passes(slots, session, claim.cycle):
            passed.append(entry)
        else:
            slots.used += 1
            granted.append(session)
    for entry in passed:
        slots.waiting.add(entry[2])
        heappush(slots.queue, entry)
    return granted


def _passes(slots: Slots, session: str, cycle: str) -> bool:
    """Return whether a session is passed over: once, because of the cycle that has taken its work."""
    if cycle and slots.passed_over.get(session, cycle) == cycle:
        slots.passed_over[session] = cycle
        return True
    slots.passed_over.pop(session, None)
    return False
