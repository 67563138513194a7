"""Breakpoints and the sessions that stand at them, as interfaces show them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct

from spar.types import Action, Call, CallResult, Perception, Phase

#: Place in a cycle: after sense, after plan, before a call, after its result, before reflect.
Point = Literal["sense", "plan", "call", "result", "reflect"]
#: Part of a cycle that can be changed at a point.
Part = Literal["perceptions", "plan", "call", "result"]
#: How far a session goes on: to its next point, to the first point of its next cycle, to a breakpoint.
Until = Literal["phase", "cycle", "end"]
State = Literal["set", "ended", "failed"]
#: The kind of the note about changes by hand in the record of a cycle; its `changes` have the fields of `ChangeByHand`.
BY_HAND: Final = "changed by hand"


class Breakpoint(Struct, frozen=True):
    """Breakpoint.

    It stops a `session` ("": each) at a `point`, if the condition `when` holds ("": always). One that is `ended` or has
    `failed` stops nothing any more; `why` says why. `lease` is the seconds after which it ends unless somebody attached
    renews it, `left` those that are left. `hits` counts the stops, `stands` are the sessions that stand at it.
    """

    name: str
    point: Point
    session: str
    when: str
    state: State
    why: str
    by: str
    hits: int
    lease: float
    left: float
    stands: tuple[str, ...]


class ChangeByHand(Struct, frozen=True):
    """Change by hand: who changed which part of a cycle at which point, and why. `id` is that of a perception or a
    call; `patch` is what was given, `before` and `after` are the changed part."""

    at: datetime
    by: str
    cycle_id: str
    point: Point
    part: Part
    id: str
    patch: Any
    before: Any
    after: Any
    reason: str = ""


class Stop(Struct, frozen=True):
    """Session that stands in a cycle.

    `where` says where in words, `breakpoint` names its breakpoint, "" after a step. `left` are the seconds after which
    it goes on unless somebody attached renews its lease. `call` is the call that is about to begin or has ended,
    `results` are the results that are looked at. `changes` are those by hand in this cycle.
    """

    id: str
    session: str
    cycle_id: str
    run_id: str | None
    phase: Phase
    point: Point
    where: str
    breakpoint: str
    since: datetime
    left: float
    perceptions: tuple[Perception, ...]
    plan: Action | None
    call: Call | None
    results: tuple[CallResult, ...]
    changes: tuple[ChangeByHand, ...]
