"""spar: an agent that senses, plans, acts and reflects, forever.

The folders and modules, in the order in which to read them. First the vocabulary, which phases may import too:

    types/        the values that flow: Perception, Action, Call, ActionResult, Reflection, Experience
    protocols/    the ports that sensors, planners, tools, reflectors and stores implement; `@tool`
    events/       the classes of events
    ports/        the optional ports of parts, and the port of a store
    records/      the values that are stored: journal, approvals, transcripts
    facts         what happened to the work of a session, and does not change
    state/        what these facts add up to: the open work of a session
    decisions/    which facts follow from the state of a session: where a message waits, which work is next
    net/          the HTTP exchange of tools and sensors, with checked addresses
    data/         pure functions over values: references, blackboard, JSON, patterns
    fs/           files below a folder, which links and races cannot lead out of it; locks
    hooks         the points at which plug-ins decide
    errors        the classes of errors, how any exception becomes a `Fault`, and which exceptions end the process
    clock         the wall clock, the monotonic clock, waits and timers
    ids           unique identifiers that sort by time
    bounded_calls calls of parts with a deadline, of which some may be left behind; the users of a part that the first
                  opens and the last closes
    threads       blocking code outside of the event loop
    backoff       waits after failures
    failpoints    places at which a test lets the process die
    checks        the check of a value by its annotations
    decoding      values of a type from plain values and JSON, in any thread

The core, from the inside out:

    config/       settings
    parts/        the parts that settings name: found, and made
    observe/      logs and statistics
    embedding/    vectors of texts, by small models
    bus/          the event bus
    attaching     features that an agent does not know, as they attach themselves to it
    loop/         one cycle: sense – plan – act – reflect
    budgets/      windows of use, and the measures when a budget is used up
    health/       alerts, repair, the watchdog
    review/       texts of approvals and calls in doubt for people
    runs/         runs, their inbox, their answers
    channels/     channels on which people talk with the agent, and alerts for people outside of the process
    breakpoints/  breakpoints at which sessions stand, are looked at and changed
    tracing/      traces of cycles, sent to an OpenTelemetry collector
    session/      one loop for each session
    journal/      recovery, calls in doubt, dead letters
    agent/        start, stop, pause, resume, step
    service/      the composition root and the process
    server/       the HTTP servers
    console/      the page for browsers
    client/        the client of a running service for programs
    operations/   all that people and programs can do with an agent, each said once
    replay/       recorded cycles decided again, without effects
    cli/          the command line
    testing/      the public test kit

Commands and parts that can be deleted, each found by its entry points:

    chat/         a conversation in a terminal or a pipe
    top/          the agent live on a terminal
    evals/        cases that a model is tried by, and the judgement of each
    mcp/          the operations of a running service as tools of an MCP server
    mail/         mail as a channel and as a notifier

The phases are packages beside this one. Importing `spar` does nothing; names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spar.agent.agent import Agent as Agent
    from spar.attaching import Attaching as Attaching
    from spar.clock import Clock as Clock
    from spar.clock import SystemClock as SystemClock
    from spar.errors import BadDataError as BadDataError
    from spar.errors import ConfigError as ConfigError
    from spar.errors import ConflictError as ConflictError
    from spar.errors import ContractError as ContractError
    from spar.errors import DamagedError as DamagedError
    from spar.errors import DamagedRowError as DamagedRowError
    from spar.errors import FencedError as FencedError
    from spar.errors import InboxFullError as InboxFullError
    from spar.errors import InDoubtError as InDoubtError
    from spar.errors import LifecycleError as LifecycleError
    from spar.errors import NoRoomError as NoRoomError
    from spar.errors import NotReadyError as NotReadyError
    from spar.errors import PermanentError as PermanentError
    from spar.errors import PhaseTimeoutError as PhaseTimeoutError
    from spar.errors import SparError as SparError
    from spar.errors import TooLargeError as TooLargeError
    from spar.errors import TransientError as TransientError
    from spar.events import ApprovalExpired as ApprovalExpired
    from spar.events import ApprovalRequested as ApprovalRequested
    from spar.events import ApprovalResolved as ApprovalResolved
    from spar.events import AssistantDelta as AssistantDelta
    from spar.events import BreakpointEnded as BreakpointEnded
    from spar.events import BreakpointLeft as BreakpointLeft
    from spar.events import BreakpointReached as BreakpointReached
    from spar.events import BudgetEvent as BudgetEvent
    from spar.events import BudgetExceeded as BudgetExceeded
    from spar.events import BudgetRenewed as BudgetRenewed
    from spar.events import BudgetWarned as BudgetWarned
    from spar.events import CallCompleted as CallCompleted
    from spar.events import CallEvent as CallEvent
    from spar.events import CallFailed as CallFailed
    from spar.events import CallInDoubt as CallInDoubt
    from spar.events import CallProgressed as CallProgressed
    from spar.events import CallProposed as CallProposed
    from spar.events import CallSkipped as CallSkipped
    from spar.events import CallStarted as CallStarted
    from spar.events import ChannelQuarantined as ChannelQuarantined
    from spar.events import ChannelRestored as ChannelRestored
    from spar.events import CompactionCompleted as CompactionCompleted
    from spar.events import CompactionStarted as CompactionStarted
    from spar.events import ConfigReloaded as ConfigReloaded
    from spar.events import ContractViolation as ContractViolation
    from spar.events import CycleRecorded as CycleRecorded
    from spar.events import DeadLettered as DeadLettered
    from spar.events import DoubtResolved as DoubtResolved
    from spar.events import ErrorOccurred as ErrorOccurred
    from spar.events import Event as Event
    from spar.events import ExampleForgotten as ExampleForgotten
    from spar.events import ExampleTaught as ExampleTaught
    from spar.events import ExperienceStored as ExperienceStored
    from spar.events import FeedbackTaken as FeedbackTaken
    from spar.events import Gap as Gap
    from spar.events import HealthAlert as HealthAlert
    from spar.events import HealthRecovered as HealthRecovered
    from spar.events import IncidentChanged as IncidentChanged
    from spar.events import IncidentClosed as IncidentClosed
    from spar.events import IncidentOpened as IncidentOpened
    from spar.events import LoopCompleted as LoopCompleted
    from spar.events import LoopPhaseCompleted as LoopPhaseCompleted
    from spar.events import LoopPhaseStarted as LoopPhaseStarted
    from spar.events import LoopStarted as LoopStarted
    from spar.events import MessageDelivered as MessageDelivered
    from spar.events import MessageOutcome as MessageOutcome
    from spar.events import MessageSent as MessageSent
    from spar.events import MessageUndeliverable as MessageUndeliverable
    from spar.events import ModelAnswered as ModelAnswered
    from spar.events import ModelRequested as ModelRequested
    from spar.events import ModelStateChanged as ModelStateChanged
    from spar.events import NotifierFailed as NotifierFailed
    from spar.events import NotifierRestored as NotifierRestored
    from spar.events import PhaseCompleted as PhaseCompleted
    from spar.events import PhaseStarted as PhaseStarted
    from spar.events import ReasoningDelta as ReasoningDelta
    from spar.events import Recovered as Recovered
    from spar.events import RecoveryStep as RecoveryStep
    from spar.events import RepetitionNoticed as RepetitionNoticed
    from spar.events import RunAccepted as RunAccepted
    from spar.events import RunEnded as RunEnded
    from spar.events import RunStarted as RunStarted
    from spar.events import SenderDecided as SenderDecided
    from spar.events import SenderMet as SenderMet
    from spar.events import SensorQuarantined as SensorQuarantined
    from spar.events import SensorRestored as SensorRestored
    from spar.events import SessionReset as SessionReset
    from spar.events import StateChanged as StateChanged
    from spar.events import TriggerMissed as TriggerMissed
    from spar.events import WriteConflict as WriteConflict
    from spar.hooks import Decision as Decision
    from spar.hooks import HookContext as HookContext
    from spar.loop.core import State as State
    from spar.observe.stats import Snapshot as Snapshot
    from spar.protocols import Actor as Actor
    from spar.protocols import Context as Context
    from spar.protocols import Planner as Planner
    from spar.protocols import Reflector as Reflector
    from spar.protocols import RunContext as RunContext
    from spar.protocols import Senser as Senser
    from spar.protocols import SensorContext as SensorContext
    from spar.protocols import SensorSpec as SensorSpec
    from spar.protocols.tools import tool as tool
    from spar.records.prompt import PromptFile as PromptFile
    from spar.records.prompt import RequestDraft as RequestDraft
    from spar.records.runs import Receipt as Receipt
    from spar.records.runs import RunStatus as RunStatus
    from spar.records.transcript import CompactionPlan as CompactionPlan
    from spar.types import Ability as Ability
    from spar.types import Action as Action
    from spar.types import ActionResult as ActionResult
    from spar.types import ActionStatus as ActionStatus
    from spar.types import Call as Call
    from spar.types import CallFailure as CallFailure
    from spar.types import CallResult as CallResult
    from spar.types import CallStatus as CallStatus
    from spar.types import CycleRecord as CycleRecord
    from spar.types import Experience as Experience
    from spar.types import Fault as Fault
    from spar.types import Message as Message
    from spar.types import Outcome as Outcome
    from spar.types import Perception as Perception
    from spar.types import Phase as Phase
    from spar.types import Reflection as Reflection
    from spar.types import Trust as Trust
    from spar.types import Verdict as Verdict

__version__ = "0.1.0"

_HOMES = {
    "spar.agent.agent": "Agent",
    "spar.attaching": "Attaching",
    "spar.clock": "Clock SystemClock",
    "spar.loop.core": "State",
    "spar.errors": (
        "BadDataError ConfigError ConflictError ContractError DamagedError DamagedRowError FencedError InDoubtError "
        "InboxFullError LifecycleError NoRoomError NotReadyError PermanentError PhaseTimeoutError SparError "
        "TooLargeError TransientError"
    ),
    "spar.events": (
        "ApprovalExpired ApprovalRequested ApprovalResolved AssistantDelta BreakpointEnded BreakpointLeft "
        "BreakpointReached BudgetEvent BudgetExceeded BudgetRenewed BudgetWarned CallCompleted CallEvent CallFailed "
        "CallInDoubt CallProgressed CallProposed CallSkipped CallStarted ChannelQuarantined ChannelRestored "
        "CompactionCompleted CompactionStarted ConfigReloaded CycleRecorded ContractViolation DeadLettered "
        "DoubtResolved ErrorOccurred Event ExampleForgotten ExampleTaught ExperienceStored FeedbackTaken Gap "
        "HealthAlert HealthRecovered IncidentChanged IncidentClosed IncidentOpened LoopCompleted LoopPhaseCompleted "
        "LoopPhaseStarted LoopStarted MessageDelivered MessageOutcome MessageSent MessageUndeliverable ModelAnswered "
        "ModelRequested ModelStateChanged NotifierFailed NotifierRestored PhaseCompleted PhaseStarted ReasoningDelta "
        "Recovered RecoveryStep RepetitionNoticed RunAccepted RunEnded RunStarted SenderDecided SenderMet "
        "SensorQuarantined SensorRestored SessionReset StateChanged TriggerMissed WriteConflict"
    ),
    "spar.hooks": "Decision HookContext",
    "spar.records.transcript": "CompactionPlan",
    "spar.protocols": "Actor Context Planner Reflector RunContext Senser SensorContext SensorSpec",
    "spar.records.prompt": "PromptFile RequestDraft",
    "spar.records.runs": "Receipt RunStatus",
    "spar.observe.stats": "Snapshot",
    "spar.protocols.tools": "tool",
    "spar.types": (
        "Ability Action ActionResult ActionStatus Call CallFailure CallResult CallStatus CycleRecord "
        "Experience Fault Message Outcome Perception Phase Reflection Trust Verdict"
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'spar' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
