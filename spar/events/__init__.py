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

from typing import TYPE_CHECKING

from spar.lazy import lazy

if TYPE_CHECKING:
    from spar.events.budgets import *
    from spar.events.calls import *
    from spar.events.channels import *
    from spar.events.cycle import *
    from spar.events.event import *
    from spar.events.health import *
    from spar.events.learning import *
    from spar.events.models import *
    from spar.events.perceiving import *
    from spar.events.runs import *

HOMES = {
    "spar.events.budgets": "BudgetEvent BudgetExceeded BudgetRenewed BudgetWarned",
    "spar.events.calls": (
        "ApprovalExpired ApprovalRequested ApprovalResolved CallCompleted CallEvent CallFailed CallInDoubt "
        "CallProgressed CallProposed CallSkipped CallStarted DoubtResolved WriteConflict"
    ),
    "spar.events.channels": (
        "ChannelQuarantined ChannelRestored MessageDelivered MessageUndeliverable SenderDecided SenderMet"
    ),
    "spar.events.cycle": (
        "BreakpointEnded BreakpointLeft BreakpointReached CycleRecorded ErrorOccurred LoopCompleted "
        "LoopPhaseCompleted LoopPhaseStarted LoopStarted PhaseCompleted PhaseStarted"
    ),
    "spar.events.event": "Event Gap",
    "spar.events.health": (
        "ConfigReloaded ContractViolation DeadLettered HealthAlert HealthRecovered NotifierFailed NotifierRestored "
        "Recovered RecoveryStep StateChanged"
    ),
    "spar.events.learning": "ExampleForgotten ExampleTaught ExperienceStored FeedbackTaken",
    "spar.events.models": "ModelAnswered ModelRequested ModelStateChanged",
    "spar.events.perceiving": (
        "IncidentChanged IncidentClosed IncidentOpened SensorQuarantined SensorRestored TriggerMissed"
    ),
    "spar.events.runs": (
        "AssistantDelta CompactionCompleted CompactionStarted MessageOutcome MessageSent ReasoningDelta "
        "RepetitionNoticed RunAccepted RunEnded RunStarted SessionReset"
    ),
}
__all__, __getattr__ = lazy(__name__, HOMES)
