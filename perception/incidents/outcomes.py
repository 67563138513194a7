"""Outcomes of perceptions: what each part of a perception did to an incident, and what is passed on of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from perception.incidents.notices import Notice, linked, notice_of
from spar.records.perceived import Incident
from spar.types import Perception, replace


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
