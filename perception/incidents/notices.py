"""Notices of incidents: the perceptions that report to planners and rules that an incident opened, grew or closed.

A notice replaces the perception that caused it and has its id, content, key and attributes, so that the counting and
the recovery of perceptions see only one. The new evidence is that perception and its parts. Evidence that was reported
before follows, marked with `attributes["told"]`; rules for perceptions ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Literal

from spar.records.perceived import Incident
from spar.types import Perception, Trust, replace

Notice = Literal["incident.opened", "incident.grown", "incident.closed"]
#: Importance of the severities; "info" is that of a notice which no perception caused.
IMPORTANCE = {"info": 0.3, "warning": 0.5, "error": 0.65, "critical": 0.8}
TOLD = 4  # bound of the earlier examples that a notice repeats


def notice_of(kind: Notice, incident: Incident, cause: Perception, why: str) -> Perception:
    """Return the notice that replaces a perception."""
    news, reasons = list(_parts(cause, incident.id)), cause.attributes.get("why")
    evidence = (*news, *_known_examples(incident, {part.id for part in news}))
    whys = [*(reasons if isinstance(reasons, list) else []), f"{incident.id}: {why}"]
    subject = cause.subject or incident.subject or incident.id  # rules recognise by it which trouble they handled
    trust: Trust = "trusted" if cause.trust == incident.trust == "trusted" else "untrusted"
    attributes = {**cause.attributes, **facts_of(incident, why), "why": whys}
    return replace(cause, kind=kind, subject=subject, trust=trust, evidence=evidence, attributes=attributes)


def closing_of(incident: Incident, why: str, at: datetime, new_id: Callable[[], str]) -> Perception:
    """Return the notice of a closing that no perception caused."""
    attributes = {**facts_of(incident, why), "why": [f"{incident.id}: {why}"]}
    return Perception(f"{incident.id} is closed: {why}", source="incidents", kind="incident.closed", id=new_id(), at=at,
                      key=f"{incident.id} closed {incident.ordinal}", subject=incident.subject or incident.id,
                      session=incident.session, priority=IMPORTANCE["info"], trust=incident.trust,
                      evidence=tuple(_known_examples(incident, set())), attributes=attributes)  # fmt: skip


def linked(perception: Perception, incident: Incident) -> Perception:
    """Return a perception that is passed on by itself, with the id of its incident."""
    return replace(perception, attributes={**perception.attributes, "incident": incident.id})


def facts_of(incident: Incident, why: str) -> dict[str, Any]:
    """Return the attributes of a notice that describe its incident."""
    return {
        "incident": incident.id,
        "severity": incident.severity,
        "entities": {kind: list(names) for kind, names in incident.entities.items()},
        "count": incident.count,
        "strange": incident.strange,
        "things": sum(incident.heeds(thing.trust) for thing in incident.things.values())
        + incident.left_out.get("things", 0),
        "sources": incident.sources,
        "state": incident.state,
        "ordinal": incident.ordinal,
        "opened_at": incident.opened_at.isoformat(),
        "reason": why,
    }


def _parts(cause: Perception, incident_id: str) -> Iterator[Perception]:
    """Yield the perception that caused a notice, without its evidence, and the parts that it was fused from."""
    yield replace(cause, evidence=(), attributes={**cause.attributes, "incident": incident_id})
    for part in cause.evidence:
        if part.id != cause.id:
            yield part


def _known_examples(incident: Incident, known: set[str]) -> Iterator[Perception]:
    for example in [example for example in incident.examples if example.id not in known][:TOLD]:
        attributes = {"incident": incident.id, "severity": example.severity, "told": incident.id}
        yield Perception(example.text, source=example.source, kind=example.kind, id=example.id, at=example.at,
                         subject=example.subject, session=incident.session, trust=example.trust,
                         attributes=attributes)  # fmt: skip
