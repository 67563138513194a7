"""spar: an agent that senses, plans, acts and reflects, forever.

The house, in the order in which to read it:

    types        the values that flow: Perception, Action, Call, ActionResult, Reflection, Experience
    loop         one cycle: sense – plan – act – reflect
    agent        start, stop, pause, resume, step; lanes turn the cycles (lifecycle, sessions, intake, stepping)
    events       what happened (bus: who is told); hooks: who may decide
    protocols    the ports that sensors, planners, tools, reflectors and stores fill
    paths        references into data and how calls write it (board, fold, plain); terms: under which a tool is called
    app          the composition root: settings → parts → agents

The phases live beside this package: perception, planning, acting, reflection, memory. Importing `spar` does
nothing; names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spar.agent import Agent as Agent
    from spar.clock import Clock as Clock
    from spar.clock import SystemClock as SystemClock
    from spar.errors import ConfigError as ConfigError
    from spar.errors import ContractError as ContractError
    from spar.errors import LifecycleError as LifecycleError
    from spar.errors import PermanentError as PermanentError
    from spar.errors import SparError as SparError
    from spar.errors import TransientError as TransientError
    from spar.events import ErrorOccurred as ErrorOccurred
    from spar.events import Event as Event
    from spar.events import ExperienceStored as ExperienceStored
    from spar.events import HealthAlert as HealthAlert
    from spar.events import HealthRecovered as HealthRecovered
    from spar.events import LoopCompleted as LoopCompleted
    from spar.events import LoopPhaseCompleted as LoopPhaseCompleted
    from spar.events import LoopPhaseStarted as LoopPhaseStarted
    from spar.events import LoopStarted as LoopStarted
    from spar.events import PhaseCompleted as PhaseCompleted
    from spar.events import PhaseStarted as PhaseStarted
    from spar.events import StateChanged as StateChanged
    from spar.hooks import Decision as Decision
    from spar.protocols import Context as Context
    from spar.run import Receipt as Receipt
    from spar.run import RunStatus as RunStatus
    from spar.terms import tool as tool
    from spar.types import Ability as Ability
    from spar.types import Action as Action
    from spar.types import ActionResult as ActionResult
    from spar.types import Call as Call
    from spar.types import CallResult as CallResult
    from spar.types import Experience as Experience
    from spar.types import Fault as Fault
    from spar.types import Message as Message
    from spar.types import Perception as Perception
    from spar.types import Reflection as Reflection
    from spar.types import Verdict as Verdict

__version__ = "0.1.0"

_HOMES = {
    "spar.agent": "Agent",
    "spar.clock": "Clock SystemClock",
    "spar.errors": "ConfigError ContractError LifecycleError PermanentError SparError TransientError",
    "spar.events": "ErrorOccurred Event ExperienceStored HealthAlert HealthRecovered LoopCompleted LoopPhaseCompleted "
    "LoopPhaseStarted LoopStarted PhaseCompleted PhaseStarted StateChanged",
    "spar.hooks": "Decision",
    "spar.protocols": "Context",
    "spar.run": "Receipt RunStatus",
    "spar.terms": "tool",
    "spar.types": "Ability Action ActionResult Call CallResult Experience Fault Message Perception Reflection Verdict",
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
