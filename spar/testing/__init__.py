"""Public test kit: an hour in milliseconds, modules that follow a script, parts that record, contracts.

    VirtualClock                    time of a running asyncio loop, which moves only when everything waits
    ScriptedSensor, ScriptedSense, ScriptedPlanner, ScriptedActor, ScriptedReflector, ScriptedModel
    stream, Hang, Fail              script items besides values: a plan in pieces, a hanging or failing module
    RecordingTool, RecordingStore, RecordingEvents, RecordingNotifier
    MemoryChannel                   a channel in memory, without people
    check_sensor, check_planner, check_actor, check_reflector, check_tool, check_store, check_notifier, check_channel
    check_attachment
    check_journal, check_process_death, check_retention     the contract of a store with a journal

By module: `clock`, `script` and `scripted` replace time and modules, `recording` records; `contracts` names the
checks, which are in `phase_contracts`, `channel_contract`, `journal_contract` (with `journal_rows` and `journal_work`)
and `process_contract`; `duties` is their common code.

The kit needs no test framework: a broken contract is an `AssertionError`. It is not a part of the running service.
"""

from typing import TYPE_CHECKING

from spar.lazy import lazy

if TYPE_CHECKING:
    from spar.testing.channel_contract import *
    from spar.testing.clock import *
    from spar.testing.contracts import *
    from spar.testing.journal_contract import *
    from spar.testing.phase_contracts import *
    from spar.testing.process_contract import *
    from spar.testing.recording import *
    from spar.testing.script import *
    from spar.testing.scripted import *

HOMES = {
    "spar.testing.channel_contract": "MemoryChannel SentMessage check_channel",
    "spar.testing.clock": "VirtualClock",
    "spar.testing.contracts": "check_attachment check_notifier check_sensor check_store check_tool",
    "spar.testing.journal_contract": "check_journal",
    "spar.testing.phase_contracts": "check_actor check_planner check_reflector",
    "spar.testing.process_contract": "check_process_death check_retention",
    "spar.testing.recording": "RecordedCall RecordingEvents RecordingNotifier RecordingStore RecordingTool",
    "spar.testing.script": "Fail Hang stream",
    "spar.testing.scripted": (
        "ScriptedActor ScriptedModel ScriptedPlanner ScriptedReflector ScriptedSense ScriptedSensor"
    ),
}
__all__, __getattr__ = lazy(__name__, HOMES)
