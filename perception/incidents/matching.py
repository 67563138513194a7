"""Matching of perceptions with incidents, by the things and entities that they share.

Incidents are looked up by the things, subjects and entities that they hold; nothing is compared with all incidents. An
entity counts less or nothing when many incidents hold it or many things name it. In doubt two incidents stay apart,
because joining unrelated ones is worse.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from perception.incidents.entities import Entity
from perception.incidents.settings import IncidentSettings
from perception.incidents.things import Sighting
from perception.stages import wording
from spar.records.perceived import Incident

JOINS = 1.0  # least score for joining an incident
#: Weight of an entity, by its kind.
WEIGHTS: Final[Mapping[str, float]] = {
    "subject": 1.0, "service": 1.0, "program": 0.6, "container": 1.0, "file": 0.6, "person": 0.5, "address": 0.5,
    "host": 0.5,
}  # fmt: skip
#: Weight of a known name that is only a word of a text.
AS_A_WORD = 0.6
#: Additional weight of a program's name at the beginning of a line, for an incident of the same sensor.
SAME_SOURCE = 0.4
#: Deduction when the perception names only other services than the incident.
OTHER_SERVICE = 0.5
#: Largest number of incidents that may hold an entity which still counts.
HOLDERS = 4
#: Things that are remembered, the number that is needed to judge rarity, and the share from which a name is common.
REMEMBERED, ENOUGH, COMMON = 5_000, 20, 0.3
#: Kinds that count only where they are rare among things. A service always counts, because troubles are about services.
JUDGED = frozenset(("file", "person", "address"))

Key = tuple[str, str, str]  # session, kind of entity, name


class IncidentIndex:
    """Index of incidents by the things, the places and the entities that they hold. `comparisons` counts the incidents
    that were compared.

    Args: remembered: the things by which it judges whether a name is common.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self.comparisons, self._remembered = 0, remembered
        self._of_thing: dict[str, str] = {}
        self._holders: dict[Key, dict[str, None]] = {}
        self._indexed: dict[str, tuple[set[str], set[Key]]] = {}
        self._things: OrderedDict[str, list[Key]] = OrderedDict()  # with the names that they were counted under
        self._named: Counter[Key] = Counter()

    def hold(self, incident: Incident) -> None:
        """Index an incident by the things and entities that it holds now."""
        things, keys = self._indexed.setdefault(incident.id, (set(), set()))
        for thing in incident.things.keys() - things:
            self._of_thing[thing] = incident.id
            things.add(thing)
        for key in _keys(incident):
            if key not in keys:
                keys.add(key)
                self._holders.setdefault(key, {})[incident.id] = None

    def forget(self, incident_id: str) -> None:
        """Remove an incident from the index."""
        things, keys = self._indexed.pop(incident_id, (set(), set()))
        for thing in things:
            if self._of_thing.get(thing) == incident_id:
                del self._of_thing[thing]
        for key in keys:
            holders = self._holders.get(key, {})
            holders.pop(incident_id, None)
            if not holders:
                self._holders.pop(key, None)

    def holders_of(self, sighting: Sighting) -> list[str]:
        """Return the ids of the incidents that hold the thing, for the end of an unknown one of those that hold its
        place."""
        if (holder := self._of_thing.get(sighting.thing)) is not None:
            return [holder]
        at_place = self._holders.get((sighting.perception.session, "place", sighting.place), {})
        return list(at_place) if sighting.state == "over" else []

    def notice(self, sighting: Sighting) -> None:
        """Count the entities of a new thing, among the last `remembered` ones; the counts tell which are common."""
        if sighting.thing in self._things:
            return
        session = sighting.perception.session
        keys = [(session, kind, name) for kind, name in sighting.mentions.entities if kind in JUDGED]
        self._things[sighting.thing] = keys
        self._named.update(keys)
        if len(self._things) > self._remembered:
            _, former = self._things.popitem(last=False)
            for key in former:
                self._named[key] -= 1
                if not self._named[key]:
                    del self._named[key]

    def scores(self, sighting: Sighting) -> dict[str, tuple[float, list[str]]]:
        """Return a score and the shared entities for each incident that shares anything."""
        scores: dict[str, tuple[float, list[str]]] = {}
        for (session, kind, name), weight in self._evidence(sighting).items():
            holders = self._holders.get((session, kind, name), {})
            if len(holders) > HOLDERS or self.is_common((session, kind, name)):
                continue
            for incident_id in holders:
                self.comparisons += 1
                score, shared = scores.get(incident_id, (0.0, []))
                scores[incident_id] = score + weight, [*shared, f"{kind} {name}"]
        return scores

    def _evidence(self, sighting: Sighting) -> dict[Key, float]:
        """Return the entities that an incident may share with the perception, each with its weight."""
        session, mentions = sighting.perception.session, sighting.mentions
        evidence: dict[Key, float] = {}
        for word in mentions.words:
            for kind in ("service", "host", "container"):
                if (session, kind, word) in self._holders:
                    evidence[session, kind, word] = min(AS_A_WORD, WEIGHTS[kind])
        for kind, name in mentions.entities:
            # An assumed host adds no weight.
            evidence[session, kind, name] = 0.0 if sighting.is_placed and kind == "host" else WEIGHTS[kind]
            # A program at the beginning of a line counts as the service of the same name, if an incident holds one.
            other = {"program": "service", "service": "program"}.get(kind)
            if other is not None and (session, other, name) in self._holders:
                evidence[session, other, name] = WEIGHTS["service"]
                evidence.pop((session, "program", name) if kind == "program" else ("", "", ""), None)
        if sighting.perception.subject:
            evidence[session, "subject", _subject(sighting.perception.subject)] = WEIGHTS["subject"]
        return evidence

    @property
    def size(self) -> int:
        """Return the number of names that are counted."""
        return len(self._named)

    def is_common(self, key: Key) -> bool:
        """Return whether so many things bear a name that it joins nothing."""
        total = len(self._things)
        return key[1] in JUDGED and total >= ENOUGH and self._named[key] > COMMON * total


def incident_of(
    sighting: Sighting, index: IncidentIndex, get: Callable[[str], Incident | None], settings: IncidentSettings
) -> tuple[Incident | None, str]:
    """Return the incident that a perception belongs to, open or closed lately, and the reason.

    Args: get: returns the incident of an id, None for an unknown one.
    """

    holders = index.holders_of(sighting)

    def candidate(incident_id: str) -> Incident | None:
        incident = get(incident_id)
        is_near = incident is not None and _may_hold(incident, sighting, settings, is_holder=incident_id in holders)
        return incident if is_near else None

    if holding := [incident for holder in holders if (incident := candidate(holder)) is not None]:
        return next((incident for incident in holding if incident.is_open), holding[0]), "it is the same thing again"
    if sighting.state == "over" or sighting.rank == 0:
        return None, ""  # an end belongs only to an incident that holds the same thing
    return best(index, sighting, candidate) or (None, "")


def _may_hold(incident: Incident, sighting: Sighting, settings: IncidentSettings, *, is_holder: bool) -> bool:
    """Return whether an incident is near enough in time and of the same session. An untrusted perception never reopens
    an incident of trusted sensors."""
    perception = sighting.perception
    if incident.session != perception.session or not (incident.is_open or incident.heeds(perception.trust)):
        return False
    if incident.is_open and (is_holder or incident.is_firing):
        return True
    distance = abs((sighting.heard_at - (incident.closed_at or incident.last_at)).total_seconds())
    return distance <= (settings.window if incident.is_open else settings.reopen)


def best(
    index: IncidentIndex, sighting: Sighting, candidate: Callable[[str], Incident | None]
) -> tuple[Incident, str] | None:
    """Return the incident that a perception belongs to and the reason, None if it belongs to none.

    Args: candidate: returns the incident of an id if the perception may belong to it at all.
    """
    services = _named(sighting.mentions.entities, "service")
    # A reading or an alert that names nothing but a host is about the host as a whole.
    is_of_host = not sighting.is_log and all(kind in ("host", "address") for kind, _ in sighting.mentions.entities)
    ranked: list[tuple[float, Incident, str]] = []
    on_the_host: list[tuple[Incident, str]] = []
    for incident_id, (weight, shared) in index.scores(sighting).items():
        incident = candidate(incident_id)
        if incident is None:
            continue
        others = incident.entities.get("service", ())
        score = weight - OTHER_SERVICE if services and others and services.isdisjoint(others) else weight
        if sighting.perception.source in incident.sources and any(name.startswith("program ") for name in shared):
            score += SAME_SOURCE
        why = f"it shares {', '.join(shared)}"
        if score >= JOINS:
            ranked.append((score, incident, why))
        elif any(name.startswith("host ") for name in shared) and (
            is_of_host or all(thing.kind.startswith("host.") for thing in incident.things.values())
        ):
            on_the_host.append((incident, why))
    if ranked:
        _, incident, why = max(ranked, key=lambda entry: (entry[0], entry[1].last_at))
        return incident, why
    # A perception about a whole host joins an incident of that host only if there is exactly one.
    return on_the_host[0] if len(on_the_host) == 1 else None


def _keys(incident: Incident) -> Iterator[Key]:
    for kind, names in incident.entities.items():
        for name in names:
            yield incident.session, kind, name
    for place in incident.states:
        yield incident.session, "place", place
    if incident.subject:
        yield incident.session, "subject", _subject(incident.subject)


def _subject(subject: str) -> str:
    return subject if len(subject) <= 200 else wording.digest((subject,), 16).hex()


def _named(entities: Collection[Entity], kind: str) -> set[str]:
    return {name for entity_kind, name in entities if entity_kind == kind}
