"""Cheap estimate of how much a perception matters, before anything expensive is done with it.

The estimate decides which perceptions are processed first and which ones get a place when more come than can be
processed; the stage `priority` decides later and gives reasons. It costs about a microsecond, for a text of any
length.
"""

from __future__ import annotations

from perception.stages.dedup import MESSAGE
from spar.types import Perception

HEAD = 200  # characters of a text that are searched
IMPORTANT = 0.6  # severity from which a perception is important
USUAL = 0.4  # severity of a kind without an entry

_KINDS = {MESSAGE: 1.0, "alert": 0.8, "log.error": 0.6, "log.warning": 0.45, "log.line": 0.2, "log": 0.2}
_LEVELS = frozenset(("critical", "error", "fatal", "emergency", "page", "high", "firing", "opened", "down"))
_WORDS = (
    "ERROR", "FATAL", "CRIT", "PANIC", "EMERG", "ALERT", "FIRING", "EXCEPTION", "TRACEBACK", "FAILED", "FAILURE",
    "OUT OF MEMORY", "NO SPACE LEFT", "URGENT", "OUTAGE",
)  # fmt: skip


def severity(perception: Perception) -> float:
    """Return the estimate 0..1: the priority that the sensor set, else by kind, level and first words."""
    if perception.priority is not None:
        return perception.priority
    guess = _KINDS.get(perception.kind, USUAL)
    attributes = perception.attributes
    if attributes and guess < IMPORTANT:
        for name in ("level", "severity", "status"):
            level = attributes.get(name)
            if type(level) is str and level.lower() in _LEVELS:
                return 0.8
    content = perception.content
    if guess < IMPORTANT and type(content) is str:
        head = content[:HEAD].upper()
        for word in _WORDS:
            if word in head:
                return IMPORTANT
    return guess
