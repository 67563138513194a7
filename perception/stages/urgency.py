"""Urgency of a perception apart from its words: severity, deadline, novelty, age; each a number with its reason.

Only what the perception itself says counts, and the newest of its batch stands for now, so that a recorded batch gives
the same again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from spar.types import Perception

Summand = tuple[float, str]

#: What a stated `severity` or `level` adds.
SEVERITY: Final[dict[str, float]] = {
    "emergency": 0.3, "fatal": 0.25, "panic": 0.25, "critical": 0.25, "error": 0.1, "high": 0.1, "firing": 0.1,
    "major": 0.15, "warning": 0.05, "warn": 0.05, "minor": 0.0, "info": -0.05, "notice": -0.05, "debug": -0.1,
    "low": -0.05, "normal": -0.05, "ok": -0.05, "resolved": -0.05,
}  # fmt: skip

#: Less than so many seconds until `deadline` → what that adds. The nearest first.
DEADLINES: Final[tuple[tuple[float, float, str], ...]] = (
    (0.0, 0.25, "its deadline is over"),
    (3_600.0, 0.2, "less than an hour is left until its deadline"),
    (86_400.0, 0.1, "less than a day is left until its deadline"),
    (604_800.0, 0.05, "less than a week is left until its deadline"),
)

#: What `novelty` adds, which earlier stages set.
NOVELTY: Final[dict[str, tuple[float, str]]] = {
    "template": (0.1, "a line like it was never seen"),
    "value": (0.1, "such a value is rare at this time"),
}

#: Older than the newest of the batch by more than so many seconds → what that takes. The oldest first.
AGES: Final[tuple[tuple[float, float, str], ...]] = (
    (86_400.0, -0.15, "more than a day"),
    (3_600.0, -0.1, "more than an hour"),
    (600.0, -0.05, "more than ten minutes"),
)


def severity(perception: Perception) -> Iterator[Summand]:
    """Return what its sensor says of how bad it is."""
    for name in ("severity", "level"):
        stated = perception.attributes.get(name)
        if isinstance(stated, str) and (worth := SEVERITY.get(stated.casefold())) is not None:
            yield worth, f"its {name} is {stated.casefold()}"
            return


def deadline(perception: Perception, now: datetime) -> Iterator[Summand]:
    """Return how near the time is until which something has to be done (`deadline`: a time or its ISO text)."""
    until = _moment(perception.attributes.get("deadline"))
    if until is None:
        return
    left = (until - now).total_seconds()
    for seconds, worth, words in DEADLINES:
        if left < seconds:
            yield worth, words
            return


def novelty(perception: Perception) -> Iterator[Summand]:
    """Return whether something like it was seen before."""
    stated = perception.attributes.get("novelty")
    if isinstance(stated, str) and stated in NOVELTY:
        yield NOVELTY[stated]


def age(perception: Perception, now: datetime) -> Iterator[Summand]:
    """Return how much older than the newest it is."""
    passed = (now - perception.at).total_seconds()
    for seconds, change, words in AGES:
        if passed > seconds:
            yield change, f"it is {words} older than the newest"
            return


def _moment(value: Any) -> datetime | None:
    if isinstance(value, str) and len(value) <= 40:
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
