"""Log lines for events of cycles, sensors, hooks and tools.

The parts that publish these events do not log them. Failures of a whole phase are logged by the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from spar.data.text import one_line
from spar.events import (
    CallFailed,
    ContractViolation,
    ErrorOccurred,
    LoopCompleted,
    PhaseCompleted,
    SensorQuarantined,
    SensorRestored,
    TriggerMissed,
)
from spar.health.error_reporting import ErrorReporter
from spar.hooks import POINTS
from spar.loop.core import Core
from spar.observe.formatting import CYCLE_ACTED
from spar.observe.logs import get_logger
from spar.runs.messages.call_lines import SIGNS
from spar.types import ActionResult, CallResult, Perception

cycle_log, sensor_log, tool_log = map(get_logger, ("spar.cycles", "spar.sensors", "spar.tools"))

#: Perceptions and calls that one line names; beyond it the line has their number.
NAMED = 4
#: Characters of each text in a line; the recorded cycle has the whole text.
TEXT = 60


# -- cycles


def log_cycles(core: Core) -> None:
    """Log each cycle that acted from now on. Idle cycles leave no line; failed ones are logged where they fail."""
    acted: dict[str, ActionResult] = {}

    def phase_completed(event: PhaseCompleted) -> None:
        if event.phase == "act" and isinstance(event.output, ActionResult):
            acted[event.cycle_id] = event.output

    def cycle_completed(event: LoopCompleted) -> None:
        result = acted.pop(event.cycle_id, None)
        if result is None or (action := result.action) is None:
            return
        if not result.results and action.output is None:
            return
        cycle_log.info(
            CYCLE_ACTED,
            agent=core.name,
            cycle=event.cycle_id,
            session=event.session,
            noticed=noticed(action.perceptions),
            decided=one_line(action.reason[: 4 * TEXT], TEXT),
            calls=calls(result.results),
            milliseconds=round(event.duration * 1000, 1),
        )

    core.events.subscribe(PhaseCompleted, phase_completed)
    core.events.subscribe(LoopCompleted, cycle_completed)


def noticed(perceptions: Sequence[Perception]) -> str:
    """Return source and subject of perceptions, without their content: people's words do not belong into a log."""
    shown = [
        f"{perception.source or perception.kind}: {one_line(about(perception)[: 4 * TEXT], TEXT)}"
        for perception in perceptions[:NAMED]
    ]
    more = len(perceptions) - NAMED
    return "; ".join([*shown, f"and {more} more"] if more > 0 else shown)


def about(perception: Perception) -> str:
    """Return the name that a perception has in its attributes, else its subject, else its kind."""
    name = perception.attributes.get("name")
    return name if isinstance(name, str) and name else perception.subject or perception.kind


def calls(results: Sequence[CallResult]) -> str:
    """Return the called tools with the ending of each call, such as `note ✓ files ✗`; of many only their numbers."""
    if len(results) <= NAMED:
        return " ".join(f"{result.call.tool} {SIGNS.get(result.status, '?')}" for result in results)
    ends = Counter(SIGNS.get(result.status, "?") for result in results)
    return f"{len(results)} calls: " + " ".join(f"{number} {sign}" for sign, number in ends.items())


# -- sensors


def log_sensors(core: Core, reports: ErrorReporter, module: str) -> None:
    """Log failing, quarantined and restored sensors and missed triggers from now on.

    Args: module: the name of the sense module; the loop logs its failures.
    """

    def failed(event: ErrorOccurred) -> None:
        part, reason = event.error.part, event.error.message
        if event.phase == "sense" and part != module:
            reports.log_fault(
                sensor_log.warning, "sensor failed", event.error, sensor=part, reason=reason, policy=event.policy
            )

    def quarantined(event: SensorQuarantined) -> None:
        sensor_log.error("sensor quarantined", agent=core.name, sensor=event.sensor, reason=event.reason)

    def restored(event: SensorRestored) -> None:
        sensor_log.info("sensor restored", agent=core.name, sensor=event.sensor)

    def missed(event: TriggerMissed) -> None:
        sensor_log.warning(
            "trigger missed", agent=core.name, sensor=event.trigger, due_at=event.due_at, reason=event.reason
        )

    core.events.subscribe(ErrorOccurred, failed)
    core.events.subscribe(SensorQuarantined, quarantined)
    core.events.subscribe(SensorRestored, restored)
    core.events.subscribe(TriggerMissed, missed)


# -- hooks


def log_hooks(core: Core, reports: ErrorReporter) -> None:
    """Log faults of the hooks that a planner calls, from now on. All other callers of hooks log them themselves."""

    def failed(event: ErrorOccurred) -> None:
        if event.policy in POINTS:
            reports.log_fault(core.log.warning, "hook failed", event.error, cycle=event.cycle_id, hook=event.error.part,
                              point=event.policy, reason=event.error.message)  # fmt: skip

    core.events.subscribe(ErrorOccurred, failed)


# -- tools


def log_tools(core: Core, reports: ErrorReporter) -> None:
    """Log calls that fail by a bug in their tool, lost tool servers and violated contracts from now on."""

    def failed(event: ErrorOccurred) -> None:
        if event.phase == "act" and not event.cycle_id:
            reports.log_fault(tool_log.warning, "tool failed", event.error, part=event.error.part,
                              reason=event.error.message, policy=event.policy)  # fmt: skip

    def call_failed(event: CallFailed) -> None:
        fault = event.result.fault
        if fault is not None and fault.detail.get("where"):
            reports.log_fault(tool_log.warning, "call failed", fault, cycle=event.cycle_id, tool=event.call.tool,
                              call=event.call.id, reason=fault.message)  # fmt: skip

    def violated(event: ContractViolation) -> None:
        tool_log.warning("contract violated", agent=core.name, part=event.part, reason=event.message)

    core.events.subscribe(ErrorOccurred, failed)
    core.events.subscribe(CallFailed, call_failed)
    core.events.subscribe(ContractViolation, violated)
