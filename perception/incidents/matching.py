"""Matching: which incident something belongs to, by what they share.

Incidents are found by what they hold: a thing, a subject, an entity; nothing is compared with all of them. An entity
counts as much as it tells: one that many incidents hold, or many things name, tells nothing. Rather than joining what
does not belong together, two incidents are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from perception.incidents.entities import Entity
from perception.incidents.settings import IncidentSettings
from perception.incidents.things import Sighting
from perception.stages import wording
from spar.data.bounded import BoundedDict
from spar.records.perceived.incidents import Incident

JOINS = 1.0  # what must be shared at least
#: What an entity of a kind counts for by itself.
WEIGHTS: Final[Mapping[str, float]] = {
    "subject": 1.0, "service": 1.0, "program": 0.6, "container": 1.0, "file": 0.6, "person": 0.5, "address": 0.5,
    "host": 0.5,
}  # fmt: skip
#: What a known name counts for as a word in the middle of a text.
AS_A_WORD = 0.6
#: What the name that a line begins with counts for more in what the same sensor told.
SAME_SOURCE = 0.4
#: What other services than the incident's take away.
OTHER_SERVICE = 0.5
#: Incidents that may hold an entity before it tells nothing.
HOLDERS = 4
#: Things that are remembered, how many there must be before rarity is judged, and the share that is common.
REMEMBERED, ENOUGH, COMMON = 5_000, 20, 0.3
#: Kinds that are judged by their rarity among things; a service is what a trouble is about, however often it is named.
JUDGED = frozenset(("file", "person", "address"))

Key = tuple[str, str, str]  # session, kind of entity, name


class IncidentIndex:
    """Incidents by what they hold. `comparisons` counts how many were looked at, since the beginning."""

    def __init__(self) -> None:
        self.comparisons = 0
        self._of_thing: dict[str, str] = {}
        self._holders: dict[Key, dict[str, None]] = {}
        self._kept: dict[str, tuple[set[str], set[Key]]] = {}
        self._things: BoundedDict[str, None] = BoundedDict(REMEMBERED)
        self._named: BoundedDict[Key, int] = BoundedDict(4 * REMEMBERED)

    def hold(self, incident: Incident) -> None:
        """Have an incident found by what it holds now."""
        things, keys = self._kept.setdefault(incident.id, (set(), set()))
        for thing in incident.things.keys() - things:
            self._of_thing[thing] = incident.id
            things.add(thing)
        for key in _keys(incident):
            if key not in keys:
                keys.add(key)
                self._holders.setdefault(key, {})[incident.id] = None

    def forget(self, incident_id: str) -> None:
        """Have an incident found no more."""
        things, keys = self._kept.pop(incident_id, (set(), set()))
        for thing in things:
            if self._of_thing.get(thing) == incident_id:
                del self._of_thing[thing]
        for key in keys:
            holders = self._holders.get(key, {})
            holders.pop(incident_id, None)
            if not holders:
                self._holders.pop(key, None)

    def of_thing(self, thing: str) -> str | None:
        """Return the incident that holds a thing."""
        return self._of_thing.get(thing)

    def notice(self, sighting: Sighting) -> None:
        """Count the entities of a thing that was not seen before, by which the common ones are known."""
        if sighting.thing in self._things:
            return
        self._things[sighting.thing] = None
        session = sighting.perception.session
        for kind, name in sighting.found.entities:
            if kind in JUDGED:
                key = (session, kind, name)
                self._named[key] = self._named.get(key, 0) + 1

    def scores(self, sighting: Sighting) -> dict[str, tuple[float, list[str]]]:
        """Return for each incident that shares anything how much that is, and what."""
        scores: dict[str, tuple[float, list[str]]] = {}
        for (session, kind, name), weight in self._evidence(sighting).items():
            holders = self._holders.get((session, kind, name), {})
            if len(holders) > HOLDERS or self._is_common((session, kind, name)):
                continue
            for incident_id in holders:
                self.comparisons += 1
                score, shared = scores.get(incident_id, (0.0, []))
                scores[incident_id] = score + weight, [*shared, f"{kind} {name}"]
        return scores

    def _evidence(self, sighting: Sighting) -> dict[Key, float]:
        """Return what an incident may share with it, each with its weight."""
        session, found = sighting.perception.session, sighting.found
        evidence: dict[Key, float] = {}
        for word in found.words:
            for kind in ("service", "host", "container"):
                if (session, kind, word) in self._holders:
                    evidence[session, kind, word] = min(AS_A_WORD, WEIGHTS[kind])
        for kind, name in found.entities:
            # A host that is only taken to be meant adds nothing to what else is shared.
            evidence[session, kind, name] = 0.0 if sighting.is_placed and kind == "host" else WEIGHTS[kind]
            # The name that a line begins with is that of a service, where one is called so.
            other = {"program": "service", "service": "program"}.get(kind)
            if other is not None and (session, other, name) in self._holders:
                evidence[session, other, name] = WEIGHTS["service"]
                evidence.pop((session, "program", name) if kind == "program" else ("", "", ""), None)
        if sighting.perception.subject:
            evidence[session, "subject", _subject(sighting.perception.subject)] = WEIGHTS["subject"]
        return evidence

    def _is_common(self, key: Key) -> bool:
        total = len(self._things)
        return key[1] in JUDGED and total >= ENOUGH and self._named.get(key, 0) > COMMON * total


def incident_of(
    sighting: Sighting, index: IncidentIndex, get: Callable[[str], Incident | None], settings: IncidentSettings
) -> tuple[Incident | None, str]:
    """Return the incident that something belongs to, open or closed of late, and why.

    Args: get: returns the incident of an id, None for one that is not known any more.
    """

    def candidate(incident_id: str) -> Incident | None:
        incident = get(incident_id)
        return incident if incident is not None and _may_hold(incident, sighting, settings) else None

    holder = index.of_thing(sighting.thing)
    if holder is not None and (incident := candidate(holder)) is not None:
        return incident, "it is the same thing again"
    if sighting.state == "over" or sighting.rank == 0:
        return None, ""  # an end ends only what it is of
    return best(index, sighting, candidate) or (None, "")


def _may_hold(incident: Incident, sighting: Sighting, settings: IncidentSettings) -> bool:
    """Return whether an incident is near enough in time, and of the same session; no stranger opens one again that
    trusted sensors speak for."""
    perception = sighting.perception
    if incident.session != perception.session or not (incident.is_open or incident.heeds(perception.trust)):
        return False
    if incident.is_open and (sighting.thing in incident.things or incident.is_firing):
        return True
    apart = abs((sighting.heard_at - (incident.closed_at or incident.last_at)).total_seconds())
    return apart <= (settings.window if incident.is_open else settings.reopen)


def best(
    index: IncidentIndex, sighting: Sighting, candidate: Callable[[str], Incident | None]
) -> tuple[Incident, str] | None:
    """Return the incident that something belongs to and why, None if it belongs to none.

    Args: candidate: returns the incident of an id if it may belong to that at all.
    """
    services = _named(sighting.found.entities, "service")
    ranked: list[tuple[float, Incident, str]] = []
    on_the_host: list[tuple[Incident, str]] = []
    for incident_id, (weight, shared) in index.scores(sighting).items():
        incident = candidate(incident_id)
        if incident is None:
            continue
        others = incident.entities.get("service", ())
        score = weight - OTHER_SERVICE if services and others and services.isdisjoint(others) else weight
        if sighting.perception.source in incident.sources and any(each.startswith("program ") for each in shared):
            score += SAME_SOURCE
        why = f"it shares {', '.join(shared)}"
        if score >= JOINS:
            ranked.append((score, incident, why))
        elif any(each.startswith("host ") for each in shared) and (
            _is_of_host(sighting) or all(thing.kind.startswith("host.") for thing in incident.things.values())
        ):
            on_the_host.append((incident, why))
    if ranked:
        _, incident, why = max(ranked, key=lambda each: (each[0], each[1].last_at))
        return incident, why
    # What a host as a whole says belongs to the trouble of that host only while there is but one.
    return on_the_host[0] if len(on_the_host) == 1 else None


def _keys(incident: Incident) -> Iterator[Key]:
    for kind, names in incident.entities.items():
        for name in names:
            yield incident.session, kind, name
    if incident.subject:
        yield incident.session, "subject", _subject(incident.subject)


def _subject(subject: str) -> str:
    return subject if len(subject) <= 200 else wording.digest((subject,), 16).hex()


def _named(entities: Collection[Entity], kind: str) -> set[str]:
    return {name for each, name in entities if each == kind}


def _is_of_host(sighting: Sighting) -> bool:
    """Return whether a reading or an alert names nothing but a host: it is about the host as a whole."""
    return not sighting.is_log and all(kind in ("host", "address") for kind, _ in sighting.found.entities)
