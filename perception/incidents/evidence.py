"""Evidence of an incident: its things, entities, examples, steps and cycles, within bounds; the rest is only
counted."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from perception.incidents.things import Sighting
from spar.data.text import safe_line
from spar.records.perceived import ENTITIES, SEVERITIES, Example, Incident, IncidentStep, Thing
from spar.types import Perception, Trust

THINGS = 100  # things of one incident
NAMES = 20  # names of one kind of entity
STRANGE_THINGS, STRANGE_STEPS = 50, 20  # bounds for untrusted sources in an incident of trusted sensors
EXAMPLES = 12  # the first, the last, and the most important ones
FIRST, LAST = 4, 4
STEPS, FIRST_STEPS = 80, 20
CYCLES, FIRST_CYCLES = 60, 10


def add(incident: Incident, sighting: Sighting) -> None:
    """Add a perception to an incident: its thing, its entities, and its text if it is worth storing.

    An untrusted perception in an incident of trusted sensors is stored as evidence, but changes neither count,
    severity, time nor entities.
    """
    _add_thing(incident, sighting)
    if not incident.heeds(sighting.perception.trust):
        incident.strange += sighting.count
    else:
        incident.count += sighting.count
        incident.last_at = max(incident.last_at, sighting.heard_at)
        if SEVERITIES.index(incident.severity) < sighting.rank:
            incident.severity = sighting.severity
        for kind, name in sorted(sighting.mentions.entities, key=lambda entity: ENTITIES.index(entity[0])):
            if name not in (names := incident.entities.get(kind, [])):
                incident.entities[kind] = [*names, name][:NAMES]
                _leave_out(incident, "entities", int(len(names) >= NAMES))
    incident.title = _title(incident) or incident.title
    _add_example(incident.examples, _example(sighting), incident)


def add_step(incident: Incident, at: datetime, did: Any, why: str, perception: Perception | None) -> None:
    """Add a step to the history of an incident."""
    is_untrusted = perception is not None and not incident.heeds(perception.trust)
    if is_untrusted and sum(step.is_strange for step in incident.steps) >= STRANGE_STEPS:
        _leave_out(incident, "steps", 1)
        return
    cause = "" if perception is None else perception.id
    incident.steps.append(IncidentStep(at, did, safe_line(why, 300), cause, is_untrusted))
    if len(incident.steps) > STEPS:
        del incident.steps[FIRST_STEPS]
        _leave_out(incident, "steps", 1)


def add_cycle(incident: Incident, cycle_id: str) -> None:
    """Add a cycle that handled an incident."""
    if cycle_id and cycle_id not in incident.cycles:
        incident.cycles.append(cycle_id)
        if len(incident.cycles) > CYCLES:
            del incident.cycles[FIRST_CYCLES]
            _leave_out(incident, "cycles", 1)


def _add_thing(incident: Incident, sighting: Sighting) -> None:
    perception, former = sighting.perception, incident.things.get(sighting.thing)
    if former is None and _is_full(incident, perception.trust):
        _leave_out(incident, "things" if incident.heeds(perception.trust) else "untrusted things", 1)
        return
    if former is None:
        incident.things[sighting.thing] = former = Thing(
            safe_line(perception.source, 100), safe_line(perception.kind, 100), sighting.text, sighting.severity,
            sighting.state, sighting.at, sighting.at, 0, perception.trust, sighting.place,
        )  # fmt: skip
    former.count += sighting.count
    if sighting.at >= former.last_at:  # an older state than the newest is only counted
        former.last_at, former.state, former.text = sighting.at, sighting.state, sighting.text
        if sighting.state != "over":
            former.severity = sighting.severity
    if sighting.state_digest and sighting.at >= incident.states.get(sighting.place, (sighting.at,))[0]:
        incident.states[sighting.place] = sighting.at, sighting.state_digest


def ended_thing(incident: Incident, sighting: Sighting) -> str:
    """Return the thing that a perception ends: itself if the incident holds it, else the only one that goes on at its
    place."""
    if sighting.thing not in incident.things:
        at_place = [key for key, thing in incident.things.items()
                    if thing.place == sighting.place and thing.state != "over" and not thing.is_line]  # fmt: skip
        if len(at_place) == 1:
            return at_place[0]
    return sighting.thing


def is_changed(incident: Incident, sighting: Sighting) -> bool:
    """Return whether the newest state at the place of a perception was another one, so that this state is news."""
    at, newest = incident.states.get(sighting.place, (sighting.at, sighting.state_digest))
    return newest != sighting.state_digest and sighting.at >= at


def _is_full(incident: Incident, trust: Trust) -> bool:
    """Return whether no more things are stored; the bound for untrusted sources is lower."""
    if incident.heeds(trust):
        return len(incident.things) >= THINGS
    untrusted = sum(not incident.heeds(thing.trust) for thing in incident.things.values())
    return untrusted >= STRANGE_THINGS or len(incident.things) >= THINGS


def _title(incident: Incident) -> str:
    """Return the text of the most severe thing, of those that still go on first, then the newest."""
    things = [thing for thing in incident.things.values() if incident.heeds(thing.trust)]
    head = max(
        things, key=lambda thing: (thing.state != "over", SEVERITIES.index(thing.severity), thing.last_at), default=None
    )
    return "" if head is None else head.text


def _example(sighting: Sighting) -> Example:
    perception = sighting.perception
    subject = None if perception.subject is None else safe_line(perception.subject, 200)
    return Example(
        perception.id, safe_line(perception.source, 100), safe_line(perception.kind, 100), sighting.text, sighting.at,
        sighting.severity, perception.trust, subject,
    )  # fmt: skip


def _add_example(examples: list[Example], example: Example, incident: Incident) -> None:
    """Add an example. If there are too many, remove the least important one between the first and the last, untrusted
    ones first."""
    examples.append(example)
    if len(examples) > EXAMPLES:
        ranks = [(incident.heeds(candidate.trust), SEVERITIES.index(candidate.severity), place)
                 for place, candidate in enumerate(examples[:-LAST]) if place >= FIRST]  # fmt: skip
        del examples[min(ranks)[-1]]
        _leave_out(incident, "examples", 1)


def _leave_out(incident: Incident, name: str, number: int) -> None:
    if number > 0:
        incident.left_out[name] = incident.left_out.get(name, 0) + number
