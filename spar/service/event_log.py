"""Log lines for events, as their table has them, and the line of a cycle that acted.

The parts that publish these events do not log them. Failures of a whole phase are logged by the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from spar.data.text import one_line
from spar.data.text_blocks import SIGNS
from spar.events import Event, LoopCompleted, PhaseCompleted
from spar.events.table import ROWS, LogRow
from spar.health.error_reporting import ErrorReporter
from spar.hooks import POINTS
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.types import ActionResult, CallResult, Perception

log = get_logger("spar.cycles")

#: Perceptions and calls that one line names; beyond it the line has their number.
NAMED = 4
#: Characters of each text in a line; the recorded cycle has the whole text.
TEXT = 60


def log_events(core: Core, reports: ErrorReporter, module: str) -> None:
    """Log events from now on.

    Args: module: the name of the sense module; the loop logs its failures.
    """
    is_logged: Mapping[str, Callable[[Any], Any]] = {
        "sensor failed": lambda event: event.phase == "sense" and event.error.part != module,
        # Hooks that a planner calls; all other callers of hooks log their faults themselves.
        "hook failed": lambda event: event.policy in POINTS,
        "tool failed": lambda event: event.phase == "act" and not event.cycle_id,
        # A call fails by a bug in its tool if its fault has a place.
        "call failed": lambda event: event.result.fault is not None and event.result.fault.detail.get("where"),
    }
    for kind, row in ROWS.items():
        for line in row.log:
            core.events.subscribe(kind, _writer(core, reports, line, is_logged.get(line.message)))
    _log_cycles(core)


def _writer(
    core: Core, reports: ErrorReporter, line: LogRow, is_logged: Callable[[Any], Any] | None
) -> Callable[[Event], None]:
    """Return the handler that writes this line for each event that is logged."""
    write = getattr(get_logger(line.logger), line.level)
    readers = {name: attrgetter(path) for name, path in line.fields.items()}
    fault_of = attrgetter(line.fault) if line.fault else None

    def handle(event: Event) -> None:
        if is_logged is None or is_logged(event):
            fields = {name: read(event) for name, read in readers.items()}
            if fault_of is None:
                write(line.message, agent=core.name, **fields)
            else:
                reports.log_fault(write, line.message, fault_of(event), **fields)

    return handle


def _log_cycles(core: Core) -> None:
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
        log.info("cycle acted", agent=core.name, cycle=event.cycle_id, session=event.session,
                 noticed=noticed(action.perceptions), decided=one_line(action.reason[: 4 * TEXT], TEXT),
                 calls=calls(result.results), milliseconds=round(event.duration * 1000, 1))  # fmt: skip

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
