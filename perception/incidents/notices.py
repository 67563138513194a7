"""Notices of incidents: the perceptions that report to planners and rules that an incident opened, grew or closed.

A notice replaces the perception that caused it and has its id, content, key and attributes, so that the counting and
the recovery of perceptions see only one. The new evidence is that perception and its parts. Evidence that was reported
before follows, marked with `attributes["told"]`; rules for perceptions ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from spar.records.perceived import Incident
from spar.types import Perception, Trust, replace

Notice = Literal["incident.opened", "incident.grown", "incident.closed"]
IMPORTANCE = 0.3  # of a notice that no perception caused
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
                      session=incident.session, priority=IMPORTANCE, trust=incident.trust,
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


# -- of the parts of a perception


class Outcome(Struct, frozen=True):
    """Effect of one perception on `incident`: it caused a notice, or is passed on by itself, or is only counted."""

    perception: Perception
    incident: Incident | None = None
    notice: Notice | None = None
    why: str = ""
    is_told: bool = True


def parts_of(perception: Perception) -> Sequence[Perception]:
    """Return the parts that a perception was fused from, in the order of time; else the perception alone."""
    parts = perception.evidence
    return parts if any(part.id == perception.id for part in parts) else (perception,)


def passed_on(whole: Perception, outcomes: Sequence[Outcome]) -> list[Perception]:
    """Return what is passed on of a perception, by the outcomes of its parts; nothing if all are only counted.

    One notice replaces the whole: that of the head's incident, else one that another part has caused, which then
    represents the whole. Only if its parts belong to several incidents that changed, further notices follow.
    """
    head = head_of(whole, outcomes)
    notices: dict[str, Outcome] = {}
    for outcome in outcomes:
        if outcome.notice is None or outcome.incident is None:
            continue
        former = notices.get(outcome.incident.id)
        if former is None or outcome.notice != "incident.grown" or former.notice == "incident.grown":
            notices[outcome.incident.id] = outcome
    if not notices:
        linked_whole = whole if head.incident is None else linked(whole, head.incident)
        return [linked_whole] if any(outcome.is_told for outcome in outcomes) else []
    if head.incident is not None and head.incident.id in notices:
        first, cause = notices.pop(head.incident.id), whole
    else:
        first = notices.pop(next(iter(notices)))
        cause = replace(first.perception, evidence=whole.evidence, trust=whole.trust, priority=whole.priority)
    return [_notice(first, cause), *(_notice(other, other.perception) for other in notices.values())]


def head_of(whole: Perception, outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of the part that represents the whole."""
    return next((outcome for outcome in outcomes if outcome.perception.id == whole.id), outcomes[-1])


def _notice(outcome: Outcome, cause: Perception) -> Perception:
    assert outcome.notice is not None
    assert outcome.incident is not None
    return notice_of(outcome.notice, outcome.incident, cause, outcome.why)
