"""Counts of an agent's cycles: outcomes, failures of phases, and durations.

They are objects `{"outcomes": {name: number}, "errors_by_phase": {name: number}, "durations": {name: [number,
seconds]}}` of which any part may be missing, and can be added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def count(total: dict[str, Any], outcome: str, durations_of_cycle: Iterable[tuple[str, float]]) -> None:
    """Count one cycle: its outcome, and pairs of a name and its duration in seconds."""
    outcomes, durations = total.setdefault("outcomes", {}), total.setdefault("durations", {})
    outcomes[outcome] = outcomes.get(outcome, 0) + 1
    for name, seconds in durations_of_cycle:
        number, before = durations.get(name, (0, 0.0))
        durations[name] = number + 1, before + seconds


def merge(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add counts to `total`. Raises: TypeError, ValueError, AttributeError for values that are not counts."""
    for kind in ("outcomes", "errors_by_phase"):
        numbers = total.setdefault(kind, {})
        for name, number in (more.get(kind) or {}).items():
            numbers[name] = numbers.get(name, 0) + number
    durations = total.setdefault("durations", {})
    for name, (number, seconds) in (more.get("durations") or {}).items():
        known_number, before = durations.get(name, (0, 0.0))
        durations[name] = known_number + number, before + seconds
