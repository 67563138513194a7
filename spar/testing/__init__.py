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

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spar.testing.channel_contract import MemoryChannel, SentMessage, check_channel
    from spar.testing.clock import VirtualClock
    from spar.testing.contracts import (
        check_actor,
        check_attachment,
        check_notifier,
        check_planner,
        check_reflector,
        check_sensor,
        check_store,
        check_tool,
    )
    from spar.testing.journal_contract import check_journal
    from spar.testing.process_contract import check_process_death, check_retention
    from spar.testing.recording import RecordedCall, RecordingEvents, RecordingNotifier, RecordingStore, RecordingTool
    from spar.testing.script import Fail, Hang, stream
    from spar.testing.scripted import (
        ScriptedActor,
        ScriptedModel,
        ScriptedPlanner,
        ScriptedReflector,
        ScriptedSense,
        ScriptedSensor,
    )

__all__ = [
    "Fail",
    "Hang",
    "MemoryChannel",
    "RecordedCall",
    "RecordingEvents",
    "RecordingNotifier",
    "RecordingStore",
    "RecordingTool",
    "ScriptedActor",
    "ScriptedModel",
    "ScriptedPlanner",
    "ScriptedReflector",
    "ScriptedSense",
    "ScriptedSensor",
    "SentMessage",
    "VirtualClock",
    "check_actor",
    "check_attachment",
    "check_channel",
    "check_journal",
    "check_notifier",
    "check_planner",
    "check_process_death",
    "check_reflector",
    "check_retention",
    "check_sensor",
    "check_store",
    "check_tool",
    "stream",
]


_HOMES = {
    "Virtual": "clock",
    "MemoryChannel": "channel_contract",
    "SentMessage": "channel_contract",
    "check_channel": "channel_contract",
    "check_journal": "journal_contract",
    "check_process": "process_contract",
    "check_retention": "process_contract",
    "check_": "contracts",
    "Recor": "recording",
    "Scripted": "scripted",
}


def _home(name: str) -> str:
    return next((home for beginning, home in _HOMES.items() if name.startswith(beginning)), "script")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_home(name)}"), name)
    globals()[name] = value
    return value
