"""Ports of parts: what each kind of part must do, what it may raise, how it is cancelled.

Every part may also be an async context manager (`__aenter__`/`__aexit__`): the agent opens it before its first use and
closes it, in reverse order, when it stops. A part that is cancelled must let `CancelledError` through within the grace
time; otherwise the agent leaves it behind and continues. A method may be a plain blocking function: it then runs in a
worker thread. Any method that accepts one more parameter gets a `Context`.

context    what a module knows of its cycle and run
modules    sense, plan, act, reflect, and what such a module may offer besides
sensors    sensors: their context and their settings
stores     experiences, small values, rows
host       services that an agent lends to a part
tools      tools, and `@tool`
"""

from spar.protocols.context import CALLED_FOR, Context, RunContext
from spar.protocols.host import CallJournal, Held, Home, Host, ModelState, Notifier, Publisher
from spar.protocols.modules import (
    ActFunction,
    ActModule,
    Actor,
    Ask,
    Borrower,
    JudgesCalls,
    Lender,
    Lent,
    ModelQuestion,
    PlanFunction,
    PlanModule,
    Planner,
    ReflectFunction,
    ReflectModule,
    Reflector,
    Resumable,
    SenseFunction,
    SenseModule,
    Senser,
    Steerable,
    StreamingActor,
    Warns,
    WritesCalls,
    WrittenCall,
)
from spar.protocols.sensors import (
    Accept,
    HearingSensor,
    Missed,
    PassingRows,
    PolledSensor,
    Push,
    PushingSensor,
    Sensor,
    SensorContext,
    SensorRows,
    SensorSpec,
)
from spar.protocols.stores import ModuleRows, Record, Records, Rows, Store
from spar.protocols.tools import Effect, Tool

__all__ = [
    "CALLED_FOR",
    "Accept",
    "ActFunction",
    "ActModule",
    "Actor",
    "Ask",
    "Borrower",
    "CallJournal",
    "Context",
    "Effect",
    "HearingSensor",
    "Held",
    "Home",
    "Host",
    "JudgesCalls",
    "Lender",
    "Lent",
    "Missed",
    "ModelQuestion",
    "ModelState",
    "ModuleRows",
    "Notifier",
    "PassingRows",
    "PlanFunction",
    "PlanModule",
    "Planner",
    "PolledSensor",
    "Publisher",
    "Push",
    "PushingSensor",
    "Record",
    "Records",
    "ReflectFunction",
    "ReflectModule",
    "Reflector",
    "Resumable",
    "Rows",
    "RunContext",
    "SenseFunction",
    "SenseModule",
    "Senser",
    "Sensor",
    "SensorContext",
    "SensorRows",
    "SensorSpec",
    "Steerable",
    "Store",
    "StreamingActor",
    "Tool",
    "Warns",
    "WritesCalls",
    "WrittenCall",
]
