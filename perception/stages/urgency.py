"""Urgency of a perception apart from its words: severity, deadline, novelty and age, each as a number with its reason.

The functions use only the perception itself, and the newest time of its batch as the current time, so a recorded batch
gives the same result again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from spar.types import Perception

Summand = tuple[float, str]

#: Summands for a stated `severity` or `level`.
SEVERITY: Final[dict[str, float]] = {
    "emergency": 0.3, "fatal": 0.25, "panic": 0.25, "critical": 0.25, "error": 0.1, "high": 0.1, "firing": 0.1,
    "major": 0.15, "warning": 0.05, "warn": 0.05, "minor": 0.0, "info": -0.05, "notice": -0.05, "debug": -0.1,
    "low": -0.05, "normal": -0.05, "ok": -0.05, "resolved": -0.05,
}  # fmt: skip

#: Bound of the seconds until `deadline`, summand and reason; the nearest first.
DEADLINES: Final[tuple[tuple[float, float, str], ...]] = (
    (0.0, 0.25, "its deadline is over"),
    (3_600.0, 0.2, "less than an hour is left until its deadline"),
    (86_400.0, 0.1, "less than a day is left until its deadline"),
    (604_800.0, 0.05, "less than a week is left until its deadline"),
)

#: Summands for `novelty`, which earlier stages set.
NOVELTY: Final[dict[str, tuple[float, str]]] = {
    "template": (0.1, "a line like it was never seen"),
    "value": (0.1, "such a value is rare at this time"),
}

#: Seconds by which a perception is older than the newest of the batch, summand and words; the oldest first.
AGES: Final[tuple[tuple[float, float, str], ...]] = (
    (86_400.0, -0.15, "more than a day"),
    (3_600.0, -0.1, "more than an hour"),
    (600.0, -0.05, "more than ten minutes"),
)


def severity(perception: Perception) -> Iterator[Summand]:
    """Yield the summand for the severity or level that the sensor states."""
    for name in ("severity", "level"):
        stated = perception.attributes.get(name)
        if isinstance(stated, str) and (worth := SEVERITY.get(stated.casefold())) is not None:
            yield worth, f"its {name} is {stated.casefold()}"
            return


def deadline(perception: Perception, now: datetime) -> Iterator[Summand]:
    """Yield the summand for the time that is left until `deadline` (a time or its ISO text)."""
    until = _moment(perception.attributes.get("deadline"))
    if until is None:
        return
    left = (until - now).total_seconds()
    for seconds, worth, words in DEADLINES:
        if left < seconds:
            yield worth, words
            return


def novelty(perception: Perception) -> Iterator[Summand]:
    """Yield the summand for a perception unlike earlier ones."""
    stated = perception.attributes.get("novelty")
    if isinstance(stated, str) and stated in NOVELTY:
        yield NOVELTY[stated]


def age(perception: Perception, now: datetime) -> Iterator[Summand]:
    """Yield the summand for a perception that is older than the newest one."""
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
