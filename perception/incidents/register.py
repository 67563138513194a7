"""Register of incidents: opens, grows, closes and reopens them; bounded, and without a clock of its own.

A new thing in an incident is still passed on by itself, with the id of the incident in its attributes. A repeated
thing of an open incident is only counted there. Notices report growth past a threshold, a higher severity, the opening
and the closing. A separate trouble is never hidden in the incident of another.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, get_args

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from perception.incidents import evidence
from perception.incidents.deadlines import Deadlines
from perception.incidents.entities import Entity, named
from perception.incidents.matching import IncidentIndex, incident_of
from perception.incidents.notices import Outcome, closing_of, head_of, parts_of, passed_on
from perception.incidents.settings import IncidentSettings
from perception.incidents.things import Sighting, placed, sighting_of, tells_nothing
from perception.stages.dedup import MESSAGE, Decision, StageResult
from perception.stages.states import begins_of
from spar.ids import new_id
from spar.records.perceived import LAST, SEVERITIES, Incident, number_of
from spar.types import Perception

STAGE = "incidents"
_ERROR = SEVERITIES.index("error")

Change = Literal["opened", "changed", "closed"]
Ending = Literal["resolved", "quiet", "person", "room"]
ENDINGS: tuple[Ending, ...] = get_args(Ending)


class IncidentChange(Struct, frozen=True):
    """Change of an incident, for events and metrics; `ending` says how it was closed."""

    change: Change
    incident: Incident
    why: str
    ending: Ending | Literal[""] = ""


class BatchChanges(Struct, frozen=True):
    """Changes of a batch: the news to report, and the rows to store (None: to drop)."""

    news: tuple[IncidentChange, ...] = ()
    rows: dict[str, Any] = {}


class IncidentRegister:
    """Incidents of one pipeline, for one thread at a time.

    Args: now: returns the latest time that is believed; None: the times of the perceptions are believed.
    """

    def __init__(self, settings: IncidentSettings, now: Callable[[], datetime] | None = None) -> None:
        self.settings, self.now = settings, now
        #: Whether somebody calls `take`; else changes are dropped, so that they do not pile up.
        self.is_heard = True
        self.index = IncidentIndex()
        self.open: dict[str, Incident] = {}  # the quietest first
        self._untrusted: dict[str, Incident] = {}  # the open ones of untrusted sources, in the same order
        self.closed: dict[str, Incident] = {}  # the oldest first
        self._deadlines = Deadlines(settings)
        self._recent: deque[Incident] = deque()  # closed lately, so they may be reopened
        self.last = 0
        self.news: list[IncidentChange] = []
        self._touched: dict[str, Incident | None] = {}  # since the last `take`; None: dropped
        self._late: list[Perception] = []  # notices that no perception of the batch caused
        self._opens_at = SEVERITIES.index(settings.opens_at)

    @cached_property
    def _machine(self) -> Entity | None:
        """This machine, which perceptions without a place are about."""
        return named("host", self.settings.machine or platform.node())

    # -- perceptions

    def fold(self, perceptions: Sequence[Perception]) -> StageResult:
        """Let perceptions open incidents, join them or end them; return the perceptions that are passed on."""
        results: dict[int, list[Perception]] = {}
        decisions: list[Decision] = []
        # Judged in the order of time: a begin of high priority may stand before the end that came before it.
        for place in sorted(range(len(perceptions)), key=lambda place: perceptions[place].at):
            perception = perceptions[place]
            parts = parts_of(perception)
            if not any(self._takes_part(part) for part in parts):
                results[place] = [perception]
                continue
            outcomes = [self._judge(part) if self._takes_part(part) else Outcome(part) for part in parts]
            results[place] = passed_on(perception, outcomes)
            if not results[place]:
                head = head_of(perception, outcomes)
                into = "" if head.incident is None else head.incident.id
                decisions.append(Decision.on(perception, STAGE, head.why, into))
        remaining = [result for place in range(len(perceptions)) for result in results[place]]
        touched = sum(any(result is not perceptions[place] for result in results[place]) for place in results)
        late, self._late = self._late, []
        if not self.is_heard:
            self.news, self._touched = [], {}
        return StageResult([*remaining, *late], decisions, touched)

    def _takes_part(self, perception: Perception) -> bool:
        settings, kind = self.settings, perception.kind
        if kind == MESSAGE or tells_nothing(perception) or not settings.sensors.fits(perception.source):
            return False
        return settings.kinds.fits(kind) or any(settings.kinds.fits(begin) for begin in begins_of(kind))

    def _judge(self, perception: Perception) -> Outcome:
        sighting = placed(sighting_of(perception, None if self.now is None else self.now()), self._machine)
        self._expire_recent(sighting.heard_at)
        self.index.notice(sighting)
        incident, why = incident_of(sighting, self.index, self._get, self.settings)
        if incident is None:
            return self._open_incident(sighting) if self._may_open(sighting) else Outcome(perception)
        if sighting.state == "over" or sighting.rank == 0:
            return self._end_thing(incident, sighting) if sighting.state == "over" else Outcome(perception)
        if not incident.is_open:
            return self._reopen(incident, sighting, why)
        return self._grow(incident, sighting, why)

    def _get(self, incident_id: str) -> Incident | None:
        return self.open.get(incident_id) or self.closed.get(incident_id)

    def _may_open(self, sighting: Sighting) -> bool:
        least = max(self._opens_at, _ERROR) if sighting.is_log else self._opens_at
        return sighting.state != "over" and sighting.rank >= least

    # -- changes of incidents

    def _open_incident(self, sighting: Sighting) -> Outcome:
        self.last += 1
        perception, at = sighting.perception, sighting.heard_at
        incident = Incident(
            f"I-{self.last}", perception.session, sighting.text, sighting.severity, at, at,
            subject=perception.subject, trust=perception.trust,
        )  # fmt: skip
        self._put_last(incident)
        why = f"{sighting.severity} of {perception.source!r}, which belongs to no open incident"
        return self._begin(incident, sighting, "opened", why)

    def _reopen(self, incident: Incident, sighting: Sighting, why: str) -> Outcome:
        if not self._may_open(sighting):
            return Outcome(sighting.perception)
        self._put_last(incident)  # first here: somebody may list the incidents meanwhile
        del self.closed[incident.id]
        incident.state, incident.closed_at, incident.asked_by = "open", None, ""
        incident.ordinal += 1
        return self._begin(incident, sighting, "reopened", f"opened again, for the {incident.ordinal}. time: {why}")

    def _begin(self, incident: Incident, sighting: Sighting, did: str, why: str) -> Outcome:
        evidence.add(incident, sighting)
        evidence.add_step(incident, sighting.heard_at, did, why, sighting.perception)
        self._note_change(IncidentChange("opened", incident, why))
        self._hold(incident)
        self._make_room(sighting.heard_at)
        return Outcome(sighting.perception, incident, "incident.opened", why)

    def _grow(self, incident: Incident, sighting: Sighting, why: str) -> Outcome:
        perception, before = sighting.perception, incident.severity
        former = incident.things.get(sighting.thing)
        is_again = former is not None and former.state == "over"
        is_news = former is None or is_again or sighting.is_begin or evidence.is_changed(incident, sighting)
        is_worse = former is not None and SEVERITIES.index(former.severity) < sighting.rank
        evidence.add(incident, sighting)
        is_known = sighting.thing in incident.things
        self._hold(incident)
        is_raised = SEVERITIES.index(before) < SEVERITIES.index(incident.severity)
        if incident.heeds(perception.trust):
            self._put_last(incident)
        if is_raised:
            why = f"its severity rises from {before} to {incident.severity}: {why}"
        elif has_grown := incident.count >= self.settings.next_growth(incident.told):
            why = f"it has grown to {incident.count}: {why}"
        if is_raised or has_grown:
            incident.told = incident.count
            evidence.add_step(incident, sighting.heard_at, "raised" if is_raised else "grown", why, perception)
            self._note_change(IncidentChange("changed", incident, why))
            return Outcome(perception, incident, "incident.grown", why)
        if is_news or is_worse or not is_known:
            evidence.add_step(incident, sighting.heard_at, "again" if former is not None else "joined", why, perception)
            self._note_change(IncidentChange("changed", incident, why))
            return Outcome(perception, incident)
        self._touched[incident.id] = incident
        reason = f"grew incident {incident.id}: {why}, {incident.count + incident.strange} in all"
        return Outcome(perception, incident, None, reason, is_told=False)

    def _end_thing(self, incident: Incident, sighting: Sighting) -> Outcome:
        """Note the end of a thing; it closes the incident if nothing else of it goes on."""
        perception, ended = sighting.perception, evidence.ended_thing(incident, sighting)
        thing = incident.things.get(ended)
        if not incident.is_open or (thing is not None and sighting.at < thing.last_at):
            return Outcome(perception, incident)
        was_on, was_firing = thing is not None and thing.state != "over", incident.is_firing
        evidence.add(incident, replace(sighting, thing=ended))
        evidence.add_step(incident, sighting.heard_at, "over", "a thing of it is over", perception)
        self._hold(incident)
        if was_on and not incident.is_firing and (was_firing or not incident.may_go_on):
            why = "all that fired in it is over"
            self._close(incident, why, sighting.heard_at, "resolved", perception)
            return Outcome(perception, incident, "incident.closed", why)
        self._note_change(IncidentChange("changed", incident, "a thing of it is over"))
        return Outcome(perception, incident)

    def _put_last(self, incident: Incident) -> None:
        """Put an incident last among the open ones, which are in the order of their last news."""
        for incidents in (self.open, self._untrusted) if incident.trust == "untrusted" else (self.open,):
            incidents.pop(incident.id, None)
            incidents[incident.id] = incident

    def _hold(self, incident: Incident) -> None:
        """Note what an open incident holds now, and when it ends."""
        self.index.hold(incident)
        self._deadlines.note(incident)

    # -- closing by time or by a person

    def due_at(self) -> datetime | None:
        """Return the time at which the next incident is to be closed; a past time for one that a person wants
        closed."""
        first = self._deadlines.first()
        return None if first is None else first[0]

    def expire(self, now: datetime) -> list[Perception]:
        """Close the incidents that people want closed or that were quiet for long enough; return the notices."""
        notices: list[Perception] = []
        while (first := self._deadlines.first()) is not None and first[0] <= now:
            incident = first[1]
            if incident.asked_by:
                notices.append(self._end(incident, f"{incident.asked_by} closed it", now, "person"))
            elif self._deadlines.is_unsure(incident):
                within = f"{self.settings.settle:g} s of the start"
                why = f"all that fired in it is over, or was not told again within {within}"
                notices.append(self._end(incident, why, now, "resolved"))
            else:
                why = f"nothing new for {self._deadlines.patience(incident):g} s"
                notices.append(self._end(incident, why, now, "quiet"))
        return notices

    def ask_closing(self, incident_id: str, by: str, now: datetime) -> Incident:
        """Have an incident closed with the next cycle, because a person wants it.

        Raises: LookupError for an unknown incident; ValueError for a closed one.
        """
        incident = self._get(incident_id)
        if incident is None:
            known = ", ".join(self.open) or "none"
            raise LookupError(f"no incident {incident_id!r:.100}; open are: {known:.300}")
        if not incident.is_open:
            raise ValueError(f"incident {incident.id} is closed already: {incident.reason}")
        incident.asked_by = by
        self._deadlines.note(incident)
        evidence.add_step(incident, now, "asked", f"{by} wants it closed", None)
        self._touched[incident.id] = incident
        return incident

    def _end(self, incident: Incident, why: str, now: datetime, ending: Ending) -> Perception:
        self._close(incident, why, now, ending, None)
        return closing_of(incident, why, now, new_id)

    def _close(self, incident: Incident, why: str, at: datetime, ending: Ending, cause: Perception | None) -> None:
        self.closed[incident.id] = incident
        del self.open[incident.id]
        self._untrusted.pop(incident.id, None)
        self._deadlines.forget(incident.id)
        self._recent.append(incident)
        incident.state, incident.closed_at, incident.reason = "closed", at, why
        evidence.add_step(incident, at, "closed", why, cause)
        self._note_change(IncidentChange("closed", incident, why, ending))
        while len(self.closed) > self.settings.keep:
            oldest = next(iter(self.closed))
            del self.closed[oldest]
            self.index.forget(oldest)
            self._touched[oldest] = None

    def _expire_recent(self, now: datetime) -> None:
        """Remove incidents from the index that were closed too long ago, or before too many others, to be reopened."""
        recent = self._recent
        while recent and (
            recent[0].is_open or len(recent) > self.settings.open
            or (now - (recent[0].closed_at or now)).total_seconds() > self.settings.reopen
        ):  # fmt: skip
            incident = recent.popleft()
            if not incident.is_open:
                self.index.forget(incident.id)

    def _make_room(self, now: datetime) -> None:
        """Close the quietest incident while more are open than allowed; its notice comes with the next batch.

        Incidents of untrusted sources go first, except the newest incident. So a flood of them closes at most one
        incident of a trusted sensor.
        """
        while len(self.open) > self.settings.open:
            quietest = next(iter(self._untrusted.values()), None)
            if quietest is None or quietest is next(reversed(self.open.values())):
                quietest = next(iter(self.open.values()))
            why = f"more than {self.settings.open} were open, and it was quiet for longest"
            self._late.append(self._end(quietest, why, now, "room"))

    # -- rows

    @property
    def has_changes(self) -> bool:
        """Return whether anything changed since the last `take`."""
        return bool(self._touched)

    def restore(self, incidents: Sequence[Incident], last: int) -> None:
        """Load the incidents of an earlier process, the oldest first; incidents that were opened meanwhile stay.

        A sensor reports a high reading again if it is still high; if it is not, nothing reports that. So an incident
        in which nothing else fires ends after `settle` seconds, unless something of it fires again.
        """
        self.last = max([self.last, last, *map(number_of, incidents)])
        for incident in incidents:
            if self._get(incident.id) is not None:
                continue
            if incident.is_open:
                self._put_last(incident)
                for thing in incident.things.values():
                    is_reading = not thing.kind.startswith(("alert", "anomaly")) and incident.heeds(thing.trust)
                    if thing.state == "firing" and is_reading:
                        thing.state = "event"
                        self._deadlines.doubt(incident, incident.last_at if self.now is None else self.now())
                self._deadlines.note(incident)
            else:
                self.closed[incident.id] = incident
                self._recent.append(incident)
            self.index.hold(incident)

    def take(self) -> BatchChanges:
        """Return the changes since the last call, with the present state of the rows."""
        news, self.news = self.news, []
        touched, self._touched = self._touched, {}
        rows: dict[str, Any] = {
            key: None if incident is None else to_builtins(incident) for key, incident in touched.items()
        }
        if any(item.change == "opened" for item in news):
            rows[LAST] = self.last
        return BatchChanges(tuple(news), rows)

    def _note_change(self, change: IncidentChange) -> None:
        self.news.append(change)
        self._touched[change.incident.id] = change.incident
