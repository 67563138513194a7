"""Stored incidents: one problem, what belongs to it, and how it developed.

The sense module stores them (`perception.incidents`), one row each under `owner_of(agent)`; HTTP, channels and the
command line read them. All texts in them may come from strangers. The other values are kinds of lines, as far as others
read their rows, and perceptions that were sent through a pipeline for inspection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, field

from spar.decoding import convert
from spar.types import Perception, Trust

Severity = Literal["info", "warning", "error", "critical"]
IncidentState = Literal["open", "closed"]
#: State of a thing: it lasts until it is reported to be over, it is over, or it was a single event.
ThingState = Literal["firing", "over", "event"]

#: Severities in their order.
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error", "critical")
#: Kinds of entities.
ENTITIES = ("service", "program", "host", "container", "file", "address", "person")
#: First part of the owner of the rows of incidents.
ROWS = "incident"


class Thing(Struct):
    """Thing of an incident in its newest state: an alert, a kind of line, a measured value.

    `place` is a digest of what its states and those of other things follow one another at: the subject.
    """

    source: str
    kind: str
    text: str
    severity: Severity
    state: ThingState
    first_at: datetime
    last_at: datetime
    count: int = 1
    trust: Trust = "untrusted"
    place: str = ""

    @property
    def is_line(self) -> bool:
        """Return whether it is a kind of log line, which reports events and ends nothing."""
        return self.kind.startswith("log.")


class Example(Struct, frozen=True):
    """Perception that is stored as evidence, reduced to what people read."""

    id: str
    source: str
    kind: str
    text: str
    at: datetime
    severity: Severity
    trust: Trust = "untrusted"
    subject: str | None = None


class IncidentStep(Struct, frozen=True):
    """Change of an incident, and its reason."""

    at: datetime
    did: Literal["opened", "joined", "grown", "raised", "over", "again", "reopened", "asked", "closed"]
    why: str
    perception: str = ""
    is_strange: bool = False


class Incident(Struct):
    """One problem.

    `entities` are what it is about, by kind, in the order of their first perceptions. `things` are what belongs to it,
    by a digest; `states` are the newest state at each of their places, with its time. `examples` are stored evidence:
    the first, the last and the most important perceptions. `left_out` counts, by name, the things, examples and steps
    beyond their bounds. `told` is the count at which people were last notified of its growth. `cycles` are those that
    dealt with it. `asked_by` is the person who wants it closed. `ordinal` is how often it was opened.

    Only trusted perceptions change an incident that a trusted sensor has opened: those of strangers are stored as
    evidence and counted in `strange`, and change neither `count` nor severity nor the time of closing.
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
    states: dict[str, tuple[datetime, str]] = field(default_factory=dict)
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
        """Return whether a thing of it lasts until it is reported to be over."""
        return any(thing.state == "firing" and self.heeds(thing.trust) for thing in list(self.things.values()))

    @property
    def may_go_on(self) -> bool:
        """Return whether a thing of it, not a log line, has neither been called a lasting one nor over."""
        things = [thing for thing in self.things.values() if not thing.is_line]
        return any(thing.state == "event" and self.heeds(thing.trust) for thing in things)

    def heeds(self, trust: Trust) -> bool:
        """Return whether a perception with this trust may change it."""
        return trust == "trusted" or self.trust == "untrusted"

    @property
    def sources(self) -> list[str]:
        """Return the sources of its things."""
        return list(dict.fromkeys(thing.source for thing in list(self.things.values())))


def summary_of(incident: Incident) -> dict[str, Any]:
    """Return an incident in short, JSON-able: without states, examples, steps and cycles, and with the number of its
    things."""
    row: dict[str, Any] = msgspec.to_builtins(incident)
    for name in ("states", "examples", "steps", "cycles"):
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
            incidents.append(convert(row, Incident))
        except msgspec.ValidationError:
            strange.append(key)
    return sorted(incidents, key=number_of), strange


#: Key of the row that holds the highest number in use.
LAST = "last"


def number_of(incident: Incident) -> int:
    """Return the number in the id of an incident."""
    digits = incident.id.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0


#: First part of the owner of the rows of the pipeline, and of the key of a kind of line.
LINES, KEY = "pipeline", "template/"
#: Places in a row: the session, trust, source, subject and kind of its lines; an example; when the first one came.
_SCOPE, _EXAMPLE, FIRST_AT = 0, 4, 5
_SOURCE: Final = 2


class NewLine(Struct, frozen=True):
    """Kind of line: its source, an example, and when the first line of it came."""

    source: str
    example: str
    first_at: datetime


def new_lines(rows: Mapping[str, Any], since: datetime) -> Iterator[NewLine]:
    """Yield the kinds of lines whose first line came since a time; those of which that is not known are left out."""
    earliest = since.timestamp()
    for key, row in rows.items():
        if not (key.startswith(KEY) and isinstance(row, list) and len(row) > FIRST_AT):
            continue
        at = row[FIRST_AT]
        if isinstance(at, (int, float)) and at >= earliest:
            yield NewLine(str(row[_SCOPE][_SOURCE]), str(row[_EXAMPLE]), datetime.fromtimestamp(at, UTC))


class Examined(Struct, frozen=True):
    """Perception and its result.

    `result` is the perception that came out, None if none came out for it alone; then `stage` removed it, for this
    `reason`, and `into` is the id of the perception that replaces it, if there is one.
    """

    given: Perception
    result: Perception | None = None
    stage: str = ""
    reason: str = ""
    into: str = ""
