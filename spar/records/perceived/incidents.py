"""Incidents as they are kept: one trouble, what belongs to it, and how it went.

The sense module keeps them (`perception.incidents`), a row each under `owner_of(agent)`; the doors and the command
line read them. All text in them may be a stranger's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from spar.types import Trust

Severity = Literal["info", "warning", "error", "critical"]
IncidentState = Literal["open", "closed"]
#: How a thing is: it goes on until it is told to be over, it is over, or it only happened.
ThingState = Literal["firing", "over", "event"]

#: Severities in their order.
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error", "critical")
#: The kinds of entities that are told apart.
ENTITIES = ("service", "program", "host", "container", "file", "address", "person")
#: What the rows of incidents are kept as.
ROWS = "incident"


class Thing(Struct):
    """One thing of an incident in its newest state: an alert, a kind of line, a measure."""

    source: str
    kind: str
    text: str
    severity: Severity
    state: ThingState
    first_at: datetime
    last_at: datetime
    count: int = 1
    trust: Trust = "untrusted"


class Example(Struct, frozen=True):
    """One perception that is kept as evidence, as far as people look at it."""

    id: str
    source: str
    kind: str
    text: str
    at: datetime
    severity: Severity
    trust: Trust = "untrusted"
    subject: str | None = None


class IncidentStep(Struct, frozen=True):
    """One thing that happened to an incident, and why."""

    at: datetime
    did: Literal["opened", "joined", "grown", "raised", "over", "again", "reopened", "asked", "closed"]
    why: str
    perception: str = ""
    is_strange: bool = False


class Incident(Struct):
    """One trouble.

    `entities` are what it is about, by kind, the first noticed first. `things` are what belongs to it, by a digest.
    `examples` are evidence that is kept: the first, the last and the most important. What is beyond the bounds of
    things, examples and steps is counted in `left_out`, by name. `told` is the count at which people were told of its
    growth last. `cycles` are those that dealt with it. `asked_by` is the person who wants it closed. `ordinal` is how
    often it was opened.

    One that a trusted sensor has opened is moved by trusted ones alone: what strangers say in it is kept as evidence
    and counted in `strange`, and changes neither `count` nor severity, nor when it is closed.
    """

    id: str
    session: str
    title: str
    severity: Severity
    opened_at: datetime
    last_at: datetime
    subject: str | None = None
    state: IncidentState = "open"
    trust: Trust = "untrusted"
    count: int = 0
    strange: int = 0
    told: int = 0
    ordinal: int = 1
    reason: str = ""
    closed_at: datetime | None = None
    entities: dict[str, list[str]] = field(default_factory=dict)
    things: dict[str, Thing] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)
    steps: list[IncidentStep] = field(default_factory=list)
    cycles: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    asked_by: str = ""

    @property
    def is_open(self) -> bool:
        """Return whether it has not been closed."""
        return self.state == "open"

    @property
    def is_firing(self) -> bool:
        """Return whether a thing of it goes on until it is told to be over."""
        return any(thing.state == "firing" and self.heeds(thing.trust) for thing in list(self.things.values()))

    def heeds(self, trust: Trust) -> bool:
        """Return whether what is said with this trust moves it."""
        return trust == "trusted" or self.trust == "untrusted"

    @property
    def sources(self) -> list[str]:
        """The sources of its things."""
        return list(dict.fromkeys(thing.source for thing in list(self.things.values())))


def summary_of(incident: Incident) -> dict[str, Any]:
    """Return an incident in short, JSON-able: without what belongs to it and what happened, of which the number."""
    row: dict[str, Any] = msgspec.to_builtins(incident)
    for name in ("examples", "steps", "cycles"):
        del row[name]
    row["things"] = len(incident.things) + incident.left_out.get("things", 0)
    return row


def owner_of(agent: str) -> str:
    """Return the owner of the rows of an agent's incidents."""
    return f"{ROWS}:{agent}"


def incidents_in(rows: Mapping[str, Any]) -> tuple[list[Incident], list[str]]:
    """Return the incidents in rows, the oldest first, and the keys of those that cannot be read."""
    incidents: list[Incident] = []
    strange: list[str] = []
    for key, row in rows.items():
        if key == LAST:
            continue
        try:
            incidents.append(msgspec.convert(row, Incident))
        except msgspec.ValidationError:
            strange.append(key)
    return sorted(incidents, key=number_of), strange


#: The key of the row that holds the highest number given.
LAST = "last"


def number_of(incident: Incident) -> int:
    """Return the number in the id of an incident."""
    digits = incident.id.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0
