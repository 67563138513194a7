"""Lessons of a result, and the record of a whole cycle."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import field

from spar.checks import Share
from spar.ids import new_id
from spar.types.action import Action, ActionResult
from spar.types.call import Call, CallFailure
from spar.types.fault import Fault
from spar.types.literals import Outcome, Trust
from spar.types.perception import Perception
from spar.types.value import Value, keep_tuples, utcnow


class Ability(Value, frozen=True):
    """Ability of a tool at one kind of task.

    `estimate` (0..1) is the mean and `uncertainty` (0..0.5) the standard deviation of a Beta posterior over
    `trials`; `cost` is the mean of what was spent and `latency` the mean duration in seconds.
    """

    tool: str
    task: str
    estimate: float
    uncertainty: float
    trials: int
    cost: float = 0.0
    latency: float = 0.0


class Experience(Value, frozen=True):
    """Memory of a cycle. `success` is None while nobody knows whether it worked.

    `situation` is a line; `said` and `answer` are what people said and what they were told, whole: found by recall.
    """

    situation: str
    action: str = ""
    outcome: str = ""
    success: bool | None = None
    task: str = ""
    cause: str = ""
    lesson: str = ""
    id: str = field(default_factory=new_id)
    at: datetime = field(default_factory=utcnow)
    session: str = "main"
    cost: float = 0.0
    trust: Trust = "untrusted"
    origin: str = ""
    said: str = ""
    answer: str = ""


class Reflection(Value, frozen=True):
    """Lesson of a result: `score` 0..1, what worked, why the rest failed, what to remember."""

    result: ActionResult | None = None
    score: Share = 0.0
    successes: Sequence[Call] = ()
    failures: Sequence[CallFailure] = ()
    abilities: Sequence[Ability] = ()
    experiences: Sequence[Experience] = ()
    next_look: float | None = None

    def __post_init__(self) -> None:
        if list in (type(self.successes), type(self.failures), type(self.abilities), type(self.experiences)):
            keep_tuples(self, "successes", "failures", "abilities", "experiences")


class CycleRecord(Value, frozen=True):
    """One cycle as it goes on the tape. `phases` maps a phase to its duration in seconds; `notes` is what modules had
    kept with it, such as what a model was asked; `calls` counts what was `ok`, `failed` and `skipped`."""

    cycle_id: str
    agent: str
    session: str
    started_at: datetime
    duration: float
    outcome: Outcome
    perceptions: tuple[Perception, ...] = ()
    action: Action | None = None
    result: ActionResult | None = None
    reflection: Reflection | None = None
    phases: dict[str, float] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    notes: tuple[dict[str, Any], ...] = ()
    calls: dict[str, int] = field(default_factory=dict)
