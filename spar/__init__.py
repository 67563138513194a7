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
    lazy          names of packages, whose modules are imported when they are first used
    threads       blocking code outside of the event loop; calls of parts with a deadline; shared parts
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
    loop/         one cycle, the parts of its phases, the tasks of an agent
    budgets/      windows of use, and the measures when a budget is used up
    health/       alerts, repair, the watchdog
    review/       texts of approvals and calls in doubt for people
    runs/         runs, their inbox, their answers
    channels/     channels on which people talk with the agent, and alerts for people outside of the process
    forks/        copies of sessions that go on by themselves
    interim/      messages of runs before their ends
    learning/     the abilities of tools, and feedback
    breakpoints/  breakpoints at which sessions stand, are looked at and changed
    nodes/        processes that run one agent together, each some of its sessions
    session_commands/  commands of people to their session
    steps/        single phases, run by hand
    tracing/      traces of cycles, sent to an OpenTelemetry collector
    session/      one loop for each session, and its cycles: sense – plan – act – reflect
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

from typing import TYPE_CHECKING

from spar.events import HOMES
from spar.lazy import lazy

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
    from spar.events import *
    from spar.hooks import Decision as Decision
    from spar.hooks import HookContext as HookContext
    from spar.hooks import PromptFile as PromptFile
    from spar.hooks import RequestDraft as RequestDraft
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
    "spar.hooks": "Decision HookContext PromptFile RequestDraft",
    "spar.records.transcript": "CompactionPlan",
    "spar.protocols": "Actor Context Planner Reflector RunContext Senser SensorContext SensorSpec",
    "spar.records.runs": "Receipt RunStatus",
    "spar.observe.stats": "Snapshot",
    "spar.protocols.tools": "tool",
    "spar.types": (
        "Ability Action ActionResult ActionStatus Call CallFailure CallResult CallStatus CycleRecord "
        "Experience Fault Message Outcome Perception Phase Reflection Trust Verdict"
    ),
}
__all__, __getattr__ = lazy(__name__, {**_HOMES, **HOMES})


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
