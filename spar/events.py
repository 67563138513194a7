"""The vocabulary of what happens: every class of events.

Events report and never decide: hooks do (`spar.hooks`). How they are told, to whom and in which order is the bus's
affair (`spar.bus`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, field

from spar.types import Call, CallResult, Experience, Fault, Phase, RunUsage


class Event(Struct, kw_only=True):
    """A fact. `agent`, `seq` (strictly increasing per agent) and `at` (UTC) are stamped when it is published."""

    agent: str = ""
    seq: int = 0
    at: datetime | None = None


# -- the cycle ---------------------------------------------------------------------------------------------


class LoopStarted(Event):
    cycle_id: str
    started_at: datetime
    session: str = "main"


class PhaseStarted(Event):
    cycle_id: str
    phase: Phase
    input: Any = None
    session: str = "main"


class PhaseCompleted(Event):
    cycle_id: str
    phase: Phase
    output: Any = None
    duration: float = 0.0
    session: str = "main"


class LoopCompleted(Event):
    """A cycle has ended; `calls` counts those that were `ok`, `failed` and `skipped`. `deferred` says why its plan was
    put off, if it was: then nothing was decided."""

    cycle_id: str
    completed_at: datetime
    duration: float
    outcome: str
    session: str = "main"
    calls: dict[str, int] = field(default_factory=dict)
    deferred: str = ""


class ErrorOccurred(Event):
    """`error` is the failure as data, `exception` the exception itself, `policy` what was done about it.

    `session` is "" for what belongs to no session.
    """

    cycle_id: str
    phase: str
    error: Fault
    policy: str = ""
    exception: BaseException | None = None
    session: str = ""


LoopPhaseStarted = PhaseStarted
LoopPhaseCompleted = PhaseCompleted


# -- the agent and its health ------------------------------------------------------------------------------


class StateChanged(Event):
    old: str
    new: str


class HealthAlert(Event):
    """`kind` is `stuck slow failing stalled blocked memory disk budget provider`, `severity` `warning` or `critical`;
    `since` is when it began, `session` whose it is ("": the whole agent's)."""

    kind: str
    severity: Literal["warning", "critical"]
    message: str
    since: datetime | None = None
    cycle_id: str = ""
    alert_id: str = ""
    session: str = ""


class ModelStateChanged(Event):
    """A model is left alone (`open`) for `retry_after` seconds because of what its provider did, or answers again."""

    model: str
    state: Literal["closed", "open"]
    reason: str = ""
    retry_after: float | None = None


class RecoveryStep(Event):
    """One step of the ladder: `back_off cancel abandon restart degrade pause quarantine`."""

    step: str
    part: str
    reason: str
    alert_id: str = ""
    session: str = ""


class HealthRecovered(Event):
    kind: str
    alert_id: str
    duration: float
    session: str = ""


class ConfigReloaded(Event):
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...] = ()


class SensorQuarantined(Event):
    sensor: str
    reason: str


class SensorRestored(Event):
    sensor: str


class TriggerMissed(Event):
    trigger: str
    due_at: datetime
    reason: str


class ExperienceStored(Event):
    experience: Experience


class BudgetEvent(Event):
    """`budget` is its name (`hour.tokens`); `used` and `limit` are counts, of money in millionths of its unit."""

    budget: str
    used: int = 0
    limit: int = 0
    ends_at: datetime | None = None


class BudgetWarned(BudgetEvent):
    """So much is used that something is done about it: `measure` is `slow degrade ask pause`."""

    measure: str = ""


class BudgetExceeded(BudgetEvent):
    """There was not enough left for what was `asked` (None: nobody knows how much) by `what`, a tool or a model."""

    asked: int | None = None
    what: str = ""
    cycle_id: str = ""


class BudgetRenewed(BudgetEvent):
    """A new window has begun, or there is more: what was done about this budget is over."""


# -- runs and calls ----------------------------------------------------------------------------------------


class DeadLettered(Event):
    """Work that was cut off or failed too often was put aside; `item` is by what it can be tried again."""

    item: str
    reason: str
    attempts: int = 0


class Recovered(Event):
    """An earlier process, or attempt, left this: so many cycles go on, so many items are handed out again."""

    cycles: int
    items: int


class RunAccepted(Event):
    run_id: str
    session: str


class RunStarted(Event):
    run_id: str
    session: str


class RunEnded(Event):
    """`reply` is what people are told, `silent` that the run chose to tell them nothing, `usage` what it took."""

    run_id: str
    status: str
    error: str = ""
    output: Any = None
    reply: str | None = None
    silent: bool = False
    usage: RunUsage = RunUsage()


class MessageOutcome(Event):
    run_id: str
    outcome: str


class ModelRequested(Event):
    """A request to a model as it is sent, nothing left out (`planning.ports.Request`). `tokens` is estimated, `attempt`
    counts from 1 within a cycle, `digest` names what the model reads."""

    cycle_id: str
    run_id: str | None = None
    digest: str = ""
    tokens: int = 0
    attempt: int = 1
    request: Any = None


class AssistantDelta(Event):
    """A piece of an answer as it is written; `reset`: what came of it so far is void, it is written anew."""

    run_id: str
    text: str
    reset: bool = False


class MessageSent(Event):
    """People were told something: the answer of a run, or what a tool said during it. `route` is where to."""

    run_id: str
    session: str
    route: str
    text: str
    is_answer: bool = False


class CompactionStarted(Event):
    """A transcript is being summed up; `reason` is `overflow` or `threshold`."""

    session: str
    run_id: str = ""
    reason: str = ""


class CompactionCompleted(Event):
    """`completed` is False when it came to nothing; `will_retry`: the request is made again."""

    session: str
    run_id: str = ""
    completed: bool = True
    will_retry: bool = False
    error: str = ""


class CallEvent(Event):
    call: Call
    cycle_id: str = ""
    run_id: str | None = None


class CallProposed(CallEvent):
    pass


class CallStarted(CallEvent):
    attempt: int = 1


class CallProgressed(CallEvent):
    progress: Any = None


class CallCompleted(CallEvent, kw_only=True):
    result: CallResult


class CallFailed(CallEvent, kw_only=True):
    result: CallResult


class CallSkipped(CallEvent, kw_only=True):
    result: CallResult


class CallInDoubt(CallEvent):
    """Nobody knows whether it had its effect; `doubt` is by what it can be resolved (`spar calls resolve`)."""

    doubt: str = ""
    why: str = ""


class DoubtResolved(CallEvent):
    doubt: str = ""
    answer: str = ""
    by: str = ""


class ApprovalRequested(CallEvent):
    pass


class ApprovalResolved(CallEvent):
    decision: str = ""
    reason: str = ""


class ApprovalExpired(CallEvent):
    pass


class WriteConflict(Event):
    path: str
    calls: tuple[str, ...]


class ContractViolation(Event):
    part: str
    message: str


class RepetitionNoticed(Event):
    """A run did the same again, `times` times without anything new."""

    run_id: str
    message: str
    times: int = 0


class Gap(Event):
    """Delivered in a stream in place of the `missed` events that a slow reader lost."""

    missed: int
