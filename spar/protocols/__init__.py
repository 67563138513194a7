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

from typing import TYPE_CHECKING

from spar.lazy import lazy

if TYPE_CHECKING:
    from spar.protocols.context import *
    from spar.protocols.host import *
    from spar.protocols.modules import *
    from spar.protocols.sensors import *
    from spar.protocols.stores import *
    from spar.protocols.tools import *

HOMES = {
    "spar.protocols.context": "CALLED_FOR Context RunContext",
    "spar.protocols.host": "CallJournal Held Home Host ModelState Notifier Publisher",
    "spar.protocols.modules": (
        "ActFunction ActModule Actor Ask Lent ModelQuestion PlanFunction PlanModule Planner ReflectFunction "
        "ReflectModule Reflector SenseFunction SenseModule Senser Warns WrittenCall"
    ),
    "spar.protocols.sensors": (
        "Accept HearingSensor Missed PassingRows PolledSensor Push PushingSensor Sensor SensorContext SensorRows "
        "SensorSpec"
    ),
    "spar.protocols.stores": "ModuleRows Record Records Rows Store",
    "spar.protocols.tools": "Effect Tool",
}
__all__, __getattr__ = lazy(__name__, HOMES)
