"""The vocabulary of what happens: every class of events.

Events report and never decide: hooks do (`spar.hooks`). How they are told, to whom and in which order is the bus's
affair (`spar.bus.bus`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, field

from spar.types import Call, CallResult, CycleRecord, Experience, Fault, FeedbackSource, Phase, RunUsage


class Event(Struct, kw_only=True):
    """A fact. `agent`, `seq` (strictly increasing per agent) and `at` (UTC) are stamped when it is published."""

    agent: str = ""
    seq: int = 0
    at: datetime | None = None


# -- the cycle ---------------------------------------------------------------------------------------------


class LoopStarted(Event):
    """A cycle has begun; all events of the cycle carry its `cycle_id`."""

    cycle_id: str
    started_at: datetime
    session: str = "main"


class PhaseStarted(Event):
    """A phase has begun; `input` is the value that the phase was given."""

    cycle_id: str
    phase: Phase
    input: Any = None
    session: str = "main"


class PhaseCompleted(Event):
    """A phase has ended well; `output` is the value that it returned, `duration` its seconds."""

    cycle_id: str
    phase: Phase
    output: Any = None
    duration: float = 0.0
    session: str = "main"


class LoopCompleted(Event):
    """A cycle has ended. `outcome` is `acted idle skipped degraded failed interrupted`; `calls` counts its calls that
    were `ok`, `failed` and `skipped`. `deferred` is the reason if its plan was put off; then nothing was decided."""

    cycle_id: str
    completed_at: datetime
    duration: float
    outcome: str
    session: str = "main"
    calls: dict[str, int] = field(default_factory=dict)
    deferred: str = ""


class CycleRecorded(Event):
    """A cycle has ended that left something behind; `record` is all that is kept of it."""

    record: CycleRecord
    run_id: str = ""


class ErrorOccurred(Event):
    """A phase has failed. `error` is the failure as data, `exception` the exception itself, `policy` the consequence.
    `session` is "" for an error that belongs to no session."""

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
    """The agent has gone from the state `old` to the state `new`."""

    old: str
    new: str


class HealthAlert(Event):
    """A health alert is open. `kind` is `stuck slow failing stalled blocked memory disk budget provider prompt
    sensor channel approval`; `since` is when the trouble began; `session` is the session concerned ("": the whole
    agent), `what` tells alerts of one kind apart."""

    kind: str
    severity: Literal["warning", "critical"]
    message: str
    since: datetime | None = None
    cycle_id: str = ""
    alert_id: str = ""
    session: str = ""
    what: str = ""


class ModelStateChanged(Event):
    """A model is not asked for `retry_after` seconds after faults of its provider (`open`), or it answers again
    (`closed`)."""

    model: str
    state: Literal["closed", "open"]
    reason: str = ""
    retry_after: float | None = None


class RecoveryStep(Event):
    """One step of recovery was taken: `back_off cancel abandon restart degrade restore pause quarantine shed drain`."""

    step: str
    part: str
    reason: str
    alert_id: str = ""
    session: str = ""


class HealthRecovered(Event):
    """A health alert is closed; `duration` is the seconds for which it was open."""

    kind: str
    alert_id: str
    duration: float
    session: str = ""


class NotifierFailed(Event):
    """A notifier could not tell people of an alert, and is tried again; `waiting` notices wait for it."""

    notifier: str
    reason: str
    waiting: int = 0


class NotifierRestored(Event):
    """A notifier that failed works again."""

    notifier: str


class ConfigReloaded(Event):
    """The configuration was read again; `changed` keys are in force, `needs_restart` keys wait for the next start."""

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...] = ()


class SensorQuarantined(Event):
    """A sensor failed too often and is not polled until it is tried again."""

    sensor: str
    reason: str


class SensorRestored(Event):
    """A sensor has left quarantine."""

    sensor: str


class IncidentOpened(Event):
    """An incident was opened, or opened again; `why` says on what. `cycle_id` is the cycle that is told of it."""

    incident: str
    severity: str
    count: int
    why: str
    session: str = "main"
    cycle_id: str = ""


class IncidentChanged(Event):
    """Something new belongs to an incident, its severity rose, or it grew past a threshold."""

    incident: str
    severity: str
    count: int
    why: str
    session: str = "main"
    cycle_id: str = ""


class IncidentClosed(Event):
    """An incident was closed; `why` says how that came about."""

    incident: str
    severity: str
    count: int
    why: str
    session: str = "main"
    cycle_id: str = ""


class TriggerMissed(Event):
    """A tick of a trigger did not run at `due_at`."""

    trigger: str
    due_at: datetime
    reason: str


class ExperienceStored(Event):
    """An experience was handed to the memory."""

    experience: Experience


class FeedbackTaken(Event):
    """Somebody has said how a run or a cycle went; it is kept, and learnt from. `by` is `person verify environment`."""

    about: str
    success: bool
    by: FeedbackSource
    why: str = ""


class BudgetEvent(Event):
    """The base of events about budgets. `budget` is the name (`hour.tokens`); `used` and `limit` are counts, of money
    in millionths of its unit."""

    budget: str
    used: int = 0
    limit: int = 0
    ends_at: datetime | None = None


class BudgetWarned(BudgetEvent):
    """A budget is used so far that the agent is held back: `measure` is `slow degrade ask pause`."""

    measure: str = ""


class BudgetExceeded(BudgetEvent):
    """A budget had not enough left for the amount `asked` (None: unknown) by `what`, a tool or a model."""

    asked: int | None = None
    what: str = ""
    cycle_id: str = ""


class BudgetRenewed(BudgetEvent):
    """A budget is free again, because a new window has begun or the limit was raised."""


# -- runs and calls ----------------------------------------------------------------------------------------


class DeadLettered(Event):
    """Work that was cut off or failed too often was put aside; `item` is its id for `spar dead retry`."""

    item: str
    reason: str
    attempts: int = 0


class Recovered(Event):
    """The start took up work of an earlier process or attempt: `cycles` go on, `items` are handed out again."""

    cycles: int
    items: int


class RunAccepted(Event):
    """A message was accepted and has a run."""

    run_id: str
    session: str


class RunStarted(Event):
    """A run has begun its first cycle."""

    run_id: str
    session: str


class RunEnded(Event):
    """A run has ended, once and last. `reply` is the text for people, `silent` is True if the run chose to tell them
    nothing, `usage` is the amount it used."""

    run_id: str
    status: str
    error: str = ""
    output: Any = None
    reply: str | None = None
    silent: bool = False
    usage: RunUsage = RunUsage()


class MessageOutcome(Event):
    """A message was placed: `started queued steered collected interrupting dropped`."""

    run_id: str
    outcome: str


class ModelRequested(Event):
    """A model is asked; `request` is the whole request as it is sent (`planning.Request`). `tokens` is estimated,
    `attempt` counts from 1 within a cycle, `digest` names the text that the model reads."""

    cycle_id: str
    run_id: str | None = None
    digest: str = ""
    tokens: int = 0
    attempt: int = 1
    request: Any = None


class ModelAnswered(Event):
    """A request to a model has ended. `model` was asked, `answered_by` answered (`answered_as` is its provider's name
    for it), `finish` is why it ended in the provider's word, `error` the kind of fault that came in the place of an
    answer; `cost` is in millionths, None where no price is known. `digest` and `attempt` are those of its
    `ModelRequested`, `number` counts the requests of its planner."""

    cycle_id: str
    started_at: datetime
    duration: float
    run_id: str | None = None
    digest: str = ""
    attempt: int = 1
    purpose: str = ""
    model: str = ""
    answered_by: str = ""
    answered_as: str = ""
    finish: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: int | None = None
    error: str = ""
    number: int = 0


class AssistantDelta(Event):
    """A piece of an answer was written; after `reset` the earlier pieces are void and the answer is written anew. With
    `ends` (and no text) the text so far is complete: calls follow."""

    run_id: str
    text: str
    reset: bool = False
    ends: bool = False


class ReasoningDelta(Event):
    """A piece of what a model thought before it answered, where `runs.reasoning` wants it; `request` counts the run's
    requests. After `reset` the earlier pieces of this request are void."""

    run_id: str
    text: str
    request: int = 1
    reset: bool = False


class MessageSent(Event):
    """People were told a text; `route` is the destination. `kind`: "answer" of a run; "note" that a tool said;
    "verbose", a line about a call; "reasoning", what the model thought before an answer that comes next. `part` numbers
    the blocks of an answer that is told in several (0: it is told whole); all of them are `is_answer`."""

    run_id: str
    session: str
    route: str
    text: str
    is_answer: bool = False
    kind: Literal["answer", "note", "verbose", "reasoning"] = "note"
    part: int = 0


class SenderMet(Event):
    """Somebody has written on a channel who is not let in: `unknown` or `denied`; `messages` counts its own."""

    sender: str
    verdict: str
    messages: int = 0


class SenderDecided(Event):
    """A person has let a sender in (`allowed`), or has shut it out (`denied`)."""

    sender: str
    status: str
    person: str = ""
    trust: str = "untrusted"
    by: str = ""


class ExampleTaught(Event):
    """A person has taught that a text has this label: `what` is "intent" or "kind"."""

    example: str
    what: str
    label: str
    text: str
    by: str = ""


class ExampleForgotten(Event):
    """A person has taken back an example that was taught."""

    example: str
    what: str
    label: str
    text: str
    by: str = ""


class MessageDelivered(Event):
    """A message was sent on a channel, after so many `attempts`."""

    channel: str
    message_id: str
    address: str
    run_id: str = ""
    session: str = ""
    attempts: int = 1


class MessageUndeliverable(Event):
    """A message could not be sent on a channel and was put aside, until somebody has it tried again or drops it."""

    channel: str
    message_id: str
    address: str
    reason: str
    run_id: str = ""
    session: str = ""


class ChannelQuarantined(Event):
    """A channel failed too often at its `part` (`receive` or `send`), which is left alone until it is tried again."""

    channel: str
    part: str
    reason: str


class ChannelRestored(Event):
    """A part of a channel has left quarantine."""

    channel: str
    part: str


class CompactionStarted(Event):
    """A transcript is being shortened by a summary; `reason` is `overflow` or `threshold`."""

    session: str
    run_id: str = ""
    reason: str = ""


class SessionReset(Event):
    """A conversation of a session has ended, and the next message begins a new one. `session_id` is that of the new
    one (the session's key and the `ordinal` of the conversation); `reason` is "reset" (by somebody, `by`), "idle" or
    "daily"; `runs` are those that were ended with it."""

    session: str
    session_id: str
    ordinal: int
    reason: str = "reset"
    by: str = ""
    runs: tuple[str, ...] = ()


class CompactionCompleted(Event):
    """A summary has ended; `completed` is False if it failed; `will_retry`: the request is made again."""

    session: str
    run_id: str = ""
    completed: bool = True
    will_retry: bool = False
    error: str = ""


class CallEvent(Event):
    """The base of events about one call."""

    call: Call
    cycle_id: str = ""
    run_id: str | None = None


class CallProposed(CallEvent):
    """A plan contains this call."""


class CallStarted(CallEvent):
    """An attempt at a call has begun; `attempt` counts from 1."""

    attempt: int = 1


class CallProgressed(CallEvent):
    """A tool has reported how far its call is."""

    progress: Any = None


class CallCompleted(CallEvent, kw_only=True):
    """A call has ended well."""

    result: CallResult


class CallFailed(CallEvent, kw_only=True):
    """A call has failed, timed out, or is in doubt; `result` has the status and the fault."""

    result: CallResult


class CallSkipped(CallEvent, kw_only=True):
    """A call will not run: it was skipped, denied or cancelled; `result` has the status and the reason."""

    result: CallResult


class CallInDoubt(CallEvent):
    """Nobody knows whether this call had its effect; `doubt` is its id for `spar calls resolve`."""

    doubt: str = ""
    why: str = ""


class DoubtResolved(CallEvent):
    """A person has answered a call in doubt: `done`, `failed` or `again`."""

    doubt: str = ""
    answer: str = ""
    by: str = ""


class ApprovalRequested(CallEvent):
    """A call waits for the decision of a person."""


class ApprovalResolved(CallEvent):
    """A person, a rule or a grant has decided about a call."""

    decision: str = ""
    reason: str = ""


class ApprovalExpired(CallEvent):
    """Nobody has decided about a call in time; it is denied."""


class WriteConflict(Event):
    """Two calls wrote to one path without an order between them."""

    path: str
    calls: tuple[str, ...]


class ContractViolation(Event):
    """A part, a server or a message has broken its contract."""

    part: str
    message: str


class RepetitionNoticed(Event):
    """A run did the same again, `times` times without anything new."""

    run_id: str
    message: str
    times: int = 0


class Gap(Event):
    """A slow reader has lost `missed` events; a stream delivers this in their place."""

    missed: int
