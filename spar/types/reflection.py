"""Lessons of a result, and the record of a whole cycle."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Struct, field

from spar.checks import Between, Count, Name, Real, Share
from spar.ids import new_id
from spar.types.action import Action, ActionResult, Call, CallFailure
from spar.types.fault import Fault
from spar.types.learning import Advised, Credit, Feedback, TriedCall
from spar.types.literals import Outcome, Trust
from spar.types.perception import Perception
from spar.types.value import Value, keep_tuples, utcnow

#: Margin of harms over helps at which an experience is retired: it is stored, but no decision uses it any more.
RETIRED_AFTER = 3
#: Bound of `Ability.halvings`: more than any number of trials brings about.
MOST_HALVINGS: Final = 1e12


class Ability(Value, frozen=True):
    """Ability of a tool at one kind of task.

    `estimate` (0..1) is the mean and `uncertainty` (0..0.5) the standard deviation of a Beta posterior over `trials`;
    `cost` is the mean of what was spent, in calls of the budget, and `latency` the mean duration in seconds. These
    figures hold for the time `at`, in seconds since 1970; after each `half_life` (seconds) half of the evidence is
    gone; 0: it stays. `halvings` is how often trials at the task, of whatever tool, have halved evidence since the
    first one; later trials halve this evidence further. What remains without evidence is the chance `prior`.
    """

    tool: Name
    task: Name
    estimate: float
    uncertainty: float
    trials: int
    cost: float = 0.0
    latency: float = 0.0
    at: float = 0.0
    half_life: float = 0.0
    halvings: Annotated[float, Between(0.0, MOST_HALVINGS)] = 0.0
    prior: Share = 0.5


class Experience(Value, frozen=True):
    """Memory of a cycle. `success` is None while nobody knows whether the cycle worked.

    `situation` is one line; `said` and `answer` are the full texts of people and of the reply, for recall by search.
    `key` is the most exact name of the situation (`spar.records.abilities`), `calls` are the tried calls in order.
    Similar experiences are stored as one: `count` says how often it was made, `at` when last, `first_at` when first.
    `helped` and `harmed` count the decisions that used it and went well or badly; `score` is 0..1.
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
    key: str = ""
    run_id: str = ""
    calls: Sequence[TriedCall] = ()
    score: float | None = None
    count: Count = 1
    first_at: datetime | None = None
    helped: Count = 0
    harmed: Count = 0

    def __post_init__(self) -> None:
        if type(self.calls) is list:
            keep_tuples(self, "calls")

    @property
    def is_retired(self) -> bool:
        """Return whether it harmed so much more often than it helped that no decision uses it any more."""
        return self.harmed - self.helped >= RETIRED_AFTER


class ExperienceSource(Struct, frozen=True):
    """Origin of one of the experiences that were merged into a row."""

    id: str
    run_id: str
    cycle_id: str
    at: datetime


class ExperienceDetail(Struct, frozen=True):
    """Experience in full: the best example, the last example if it is another one, and the known origins of all."""

    experience: Experience
    last: Experience | None = None
    sources: tuple[ExperienceSource, ...] = ()
    is_retired: bool = False


class Reflection(Value, frozen=True):
    """Lesson of a result: `score` 0..1, what worked, why the rest failed, what to remember.

    `credits` say whether it helped to use an experience; `feedback` is how earlier cycles and runs turned out.
    `advised` says what came of asking a model.
    """

    result: ActionResult | None = None
    score: Share = 0.0
    successes: Sequence[Call] = ()
    failures: Sequence[CallFailure] = ()
    abilities: Sequence[Ability] = ()
    experiences: Sequence[Experience] = ()
    next_look: Real | None = None
    credits: Sequence[Credit] = ()
    feedback: Sequence[Feedback] = ()
    advised: Advised = ""

    def __post_init__(self) -> None:
        parts = (self.successes, self.failures, self.abilities, self.experiences, self.credits, self.feedback)
        if list in map(type, parts):
            keep_tuples(self, "successes", "failures", "abilities", "experiences", "credits", "feedback")


class CycleRecord(Value, frozen=True):
    """Record of one cycle in the store.

    `phases` maps a phase to its duration in seconds; `notes` are what modules added, such as what a model was asked;
    `calls` counts what was `ok`, `failed` and `skipped`; `trace_id` names its trace, "" when tracing is off.
    `configuration` is the digest of the settings and rules in force, "" if a program made the agent.
    """

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
    trace_id: str = ""
    configuration: str = ""
