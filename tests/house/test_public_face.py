"""The names that programs import stay, however the house is rebuilt."""

from __future__ import annotations

import importlib

import pytest

#: The public names of the first build.
NAMES = {
    "spar": """
        Ability Action ActionResult Agent Call CallResult Clock ConfigError Context ContractError Decision ErrorOccurred
        Event Experience ExperienceStored Fault HealthAlert HealthRecovered LifecycleError LoopCompleted
        LoopPhaseCompleted LoopPhaseStarted LoopStarted Message Perception PermanentError PhaseCompleted PhaseStarted
        Receipt Reflection RunStatus SparError StateChanged SystemClock TransientError Verdict tool
    """,
    "spar.testing": """
        Fail Hang RecordedCall RecordingEvents RecordingNotifier RecordingStore RecordingTool ScriptedActor
        ScriptedModel ScriptedPlanner ScriptedReflector ScriptedSense ScriptedSensor VirtualClock check_actor
        check_notifier check_planner check_reflector check_sensor check_store check_tool stream
    """,
    "acting": "Executor ToolContext",
    "memory": "Memory",
    "perception": "Pipeline Sense",
    "planning": """
        Answered Chain Model Request Requests RulesPlanner Solving Told Turn Usage compose compose_schema render
    """,
    "reflection": "Reflect",
}


@pytest.mark.parametrize("module", NAMES)
def test_what_programs_import_is_there(module: str) -> None:
    public = importlib.import_module(module)

    assert [name for name in NAMES[module].split() if not hasattr(public, name)] == []
    assert set(NAMES[module].split()) <= {*public.__all__}
