"""Writes into the log, one line each, the cycles that did something: what was noticed and what was done about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from spar.events import LoopCompleted, PhaseCompleted
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.types import ActionResult, CallResult, Perception

log = get_logger("spar.cycles")

#: How a call ended, in one sign; every other status is shown as a question mark.
SIGNS = {"ok": "✓", "failed": "✗", "timeout": "✗", "denied": "✗", "skipped": "–", "cancelled": "–"}
#: Perceptions and tools that are named in one line; of more, the number is told.
NAMED = 4
#: Characters of each text in a line; the whole is on the tape.
TEXT = 60


def log_cycles(core: Core) -> None:
    """Log each cycle that acted from now on; idle ones leave no line, failed ones are logged where they fail."""
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
                 noticed=noticed(action.perceptions), calls=calls(result.results),
                 milliseconds=round(event.duration * 1000, 1))  # fmt: skip

    core.events.subscribe(PhaseCompleted, phase_completed)
    core.events.subscribe(LoopCompleted, cycle_completed)


def noticed(perceptions: Sequence[Perception]) -> str:
    """Return where perceptions came from and what they are about; what people wrote does not belong into a log."""
    shown = [f"{each.source or each.kind}: {short(about(each))}" for each in perceptions[:NAMED]]
    more = len(perceptions) - NAMED
    return "; ".join([*shown, f"and {more} more"] if more > 0 else shown)


def about(perception: Perception) -> str:
    """Return the name or the subject of what was noticed, else its kind."""
    name = perception.attributes.get("name")
    return name if isinstance(name, str) and name else perception.subject or perception.kind


def calls(results: Sequence[CallResult]) -> str:
    """Return the tools that were called and how each call ended: `note ✓ files ✗`."""
    if len(results) <= NAMED:
        return " ".join(f"{each.call.tool} {SIGNS.get(each.status, '?')}" for each in results)
    ends = Counter(SIGNS.get(each.status, "?") for each in results)
    return f"{len(results)} calls: " + " ".join(f"{number} {sign}" for sign, number in ends.items())


def short(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text[: 4 * TEXT].split())
    return line if len(line) <= TEXT else f"{line[: TEXT - 1]}…"
