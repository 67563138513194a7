"""Events of which a person hears: of each kind of line in a log, whether one comes through with its own words.

Stands in for a day of a real journal: 2,000 lines of a system at once, labelled by people with the event that each is.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.perception.quality import Quality
from benchmarks.perception.streams import events, raw_lines, systems
from perception import Pipeline
from spar.types import Perception

#: Systems that journals of machines are made of.
_MACHINES = ("Linux", "OpenSSH")


def measure(data: Path) -> list[Quality]:
    """Raises: MissingDataError."""
    found = {system: _heard(data, system) for system in systems(data)}
    lines = [
        Quality(
            f"events heard of, {system}", heard / known, None, 1.0, None, "", f"{heard} of {known}, {through} lines"
        )
        for system, (heard, known, through) in found.items()
        if system in _MACHINES
    ]
    heard, known = (sum(each[place] for each in found.values()) for place in (0, 1))
    kept = sum(each[2] for each in found.values())
    remark = f"{heard} of {known}; {kept} lines come through of {2000 * len(found):,}"
    return [*lines, Quality(f"events heard of, {len(found)} systems", heard / known, None, 1.0, None, "", remark)]


def _heard(data: Path, system: str) -> tuple[int, int, int]:
    """Return how many events came through, how many there are, and how many lines came through."""
    batch = [Perception(line, source=system, kind="log") for line in raw_lines(data, system)]
    event_of = {each.id: event for each, (_, event) in zip(batch, events(data, system), strict=True)}
    pipeline = Pipeline({"limit": len(batch), "incidents": {"enabled": False}})
    through = pipeline.process(batch)
    told = {event_of[part.id] for each in through for part in (each, *each.evidence) if part.id in event_of}
    return len(told), len(set(event_of.values())), len(through)
