"""Classes of all events, grouped by subject.

Events report and never decide: hooks decide (`spar.hooks`). The bus (`spar.bus.bus`) delivers them to subscribers, in
order.

event       the base of all events, and the gap in a stream of them
cycle       a cycle, its phases, their errors, breakpoints
health      the state of an agent, its alerts, its recovery
perceiving  sensors and incidents
budgets     budgets
runs        runs, their answers, the conversations that they belong to
models      models and their requests
channels    channels and the senders of messages
calls       calls, and the approvals that they wait for
learning    experiences, later feedback, examples
table       what observers get of each event: data, sentence, log lines
"""

from spar.events.budgets import BudgetEvent, BudgetExceeded, BudgetRenewed, BudgetWarned
from spar.events.calls import (
    ApprovalExpired,
    ApprovalRequested,
    ApprovalResolved,
    CallCompleted,
    CallEvent,
    CallFailed,
    CallInDoubt,
    CallProgressed,
    CallProposed,
    CallSkipped,
    CallStarted,
    DoubtResolved,
    WriteConflict,
)
from spar.events.channels import (
    ChannelQuarantined,
    ChannelRestored,
    MessageDelivered,
    MessageUndeliverable,
    SenderDecided,
    SenderMet,
)
from spar.events.cycle import (
    BreakpointEnded,
    BreakpointLeft,
    BreakpointReached,
    CycleRecorded,
    ErrorOccurred,
    LoopCompleted,
    LoopPhaseCompleted,
    LoopPhaseStarted,
    LoopStarted,
    PhaseCompleted,
    PhaseStarted,
)
from spar.events.event import Event, Gap
from spar.events.health import (
    ConfigReloaded,
    ContractViolation,
    DeadLettered,
    HealthAlert,
    HealthRecovered,
    NotifierFailed,
    NotifierRestored,
    Recovered,
    RecoveryStep,
    StateChanged,
)
from spar.events.learning import ExampleForgotten, ExampleTaught, ExperienceStored, FeedbackTaken
from spar.events.models import ModelAnswered, ModelRequested, ModelStateChanged
from spar.events.perceiving import (
    IncidentChanged,
    IncidentClosed,
    IncidentOpened,
    SensorQuarantined,
    SensorRestored,
    TriggerMissed,
)
from spar.events.runs import (
    AssistantDelta,
    CompactionCompleted,
    CompactionStarted,
    MessageOutcome,
    MessageSent,
    ReasoningDelta,
    RepetitionNoticed,
    RunAccepted,
    RunEnded,
    RunStarted,
    SessionReset,
)

__all__ = [
    "ApprovalExpired",
    "ApprovalRequested",
    "ApprovalResolved",
    "AssistantDelta",
    "BreakpointEnded",
    "BreakpointLeft",
    "BreakpointReached",
    "BudgetEvent",
    "BudgetExceeded",
    "BudgetRenewed",
    "BudgetWarned",
    "CallCompleted",
    "CallEvent",
    "CallFailed",
    "CallInDoubt",
    "CallProgressed",
    "CallProposed",
    "CallSkipped",
    "CallStarted",
    "ChannelQuarantined",
    "ChannelRestored",
    "CompactionCompleted",
    "CompactionStarted",
    "ConfigReloaded",
    "ContractViolation",
    "CycleRecorded",
    "DeadLettered",
    "DoubtResolved",
    "ErrorOccurred",
    "Event",
    "ExampleForgotten",
    "ExampleTaught",
    "ExperienceStored",
    "FeedbackTaken",
    "Gap",
    "HealthAlert",
    "HealthRecovered",
    "IncidentChanged",
    "IncidentClosed",
    "IncidentOpened",
    "LoopCompleted",
    "LoopPhaseCompleted",
    "LoopPhaseStarted",
    "LoopStarted",
    "MessageDelivered",
    "MessageOutcome",
    "MessageSent",
    "MessageUndeliverable",
    "ModelAnswered",
    "ModelRequested",
    "ModelStateChanged",
    "NotifierFailed",
    "NotifierRestored",
    "PhaseCompleted",
    "PhaseStarted",
    "ReasoningDelta",
    "Recovered",
    "RecoveryStep",
    "RepetitionNoticed",
    "RunAccepted",
    "RunEnded",
    "RunStarted",
    "SenderDecided",
    "SenderMet",
    "SensorQuarantined",
    "SensorRestored",
    "SessionReset",
    "StateChanged",
    "TriggerMissed",
    "WriteConflict",
]
