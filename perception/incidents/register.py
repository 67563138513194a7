"""Register of incidents: opens, grows, closes and reopens them; bounded, and without a clock of its own.

What is new in an incident still arrives by itself, with the incident that it belongs to in its attributes; what
repeats a thing of an open one is counted there and arrives no more. Growth past a threshold, a higher severity, the
opening and the closing are told by notices. Nothing that is its own trouble disappears in another's.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Literal, get_args

from msgspec import Struct, to_builtins

from perception.incidents import evidence
from perception.incidents.entities import named
from perception.incidents.matching import IncidentIndex, incident_of
from perception.incidents.notices import closing_of, linked, notice_of
from perception.incidents.settings import IncidentSettings
from perception.incidents.things import Sighting, placed, seen, tells_nothing
from perception.stages.dedup import MESSAGE, Decision, StageResult
from spar.ids import new_id
from spar.records.perceived.incidents import LAST, SEVERITIES, Incident, number_of
from spar.types import Perception

STAGE = "incidents"
_ERROR = SEVERITIES.index("error")

Change = Literal["opened", "changed", "closed"]
Ending = Literal["resolved", "quiet", "person", "room"]
ENDINGS: tuple[Ending, ...] = get_args(Ending)


class Told(Struct, frozen=True):
    """A change of an incident, for events and figures; `ending` says how a closing came about."""

    change: Change
    incident: Incident
    why: str
    ending: Ending | Literal[""] = ""


class Taken(Struct, frozen=True):
    """Changes of a batch: what is told of them, and the rows as they are to be kept (None: dropped)."""

    news: tuple[Told, ...] = ()
    rows: dict[str, Any] = {}


class IncidentRegister:
    """The incidents of one pipeline, for one thread at a time.

    Args: now: returns the latest time that is believed; None: the times of the perceptions are.
    """

    def __init__(self, settings: IncidentSettings, now: Callable[[], datetime] | None = None) -> None:
        self.settings, self.now = settings, now
        #: Whether somebody takes what changes; else it is forgotten, and not gathered for ever.
        self.is_heard = True
        self.index = IncidentIndex()
        self.open: dict[str, Incident] = {}
        self.closed: dict[str, Incident] = {}  # the oldest first
        self._recent: deque[Incident] = deque()  # closed of late, so that they may be opened again
        self.last = 0
        self.news: list[Told] = []
        self._touched: dict[str, Incident | None] = {}  # since the rows were taken; None: gone
        #: Incidents of which all that fires is over but readings that an earlier process heard: since when it is not
        #: known whether these are high yet.
        self._unsure: dict[str, datetime] = {}
        self._late: list[Perception] = []  # notices that no perception of the batch caused
        self._opens_at = SEVERITIES.index(settings.opens_at)
        self._machine = named("host", settings.machine or platform.node())

    # -- what comes in

    def fold(self, perceptions: Sequence[Perception]) -> StageResult:
        """Have perceptions open incidents, belong to them or end them; returns what still arrives."""
        if not any(self._takes_part(perception) for perception in perceptions):
            return StageResult(list(perceptions))
        kept: list[Perception] = []
        decisions: list[Decision] = []
        touched = 0
        for perception in perceptions:
            if not self._takes_part(perception):
                kept.append(perception)
                continue
            outcome = self._judge(seen(perception, None if self.now is None else self.now()))
            if isinstance(outcome, Decision):
                decisions.append(outcome)
            else:
                touched += outcome is not perception
                kept.append(outcome)
        kept += self._late
        self._late = []
        if not self.is_heard:
            self.news, self._touched = [], {}
        return StageResult(kept, decisions, touched)

    def _takes_part(self, perception: Perception) -> bool:
        of, kind = self.settings, perception.kind
        if kind == MESSAGE or tells_nothing(perception):
            return False
        return of.kinds.fits(kind) and of.sensors.fits(perception.source)

    def _judge(self, sighting: Sighting) -> Perception | Decision:
        sighting = placed(sighting, self._machine)
        self._let_go(sighting.heard_at)
        self.index.notice(sighting)
        incident, why = incident_of(sighting, self.index, self._get, self.settings)
        if incident is None:
            return self._opened(sighting) if self._may_open(sighting) else sighting.perception
        if sighting.state == "over" or sighting.rank == 0:
            return self._over(incident, sighting) if sighting.state == "over" else sighting.perception
        if not incident.is_open:
            return self._opened_again(incident, sighting, why)
        return self._grown(incident, sighting, why)

    def _get(self, incident_id: str) -> Incident | None:
        return self.open.get(incident_id) or self.closed.get(incident_id)

    def _may_open(self, sighting: Sighting) -> bool:
        least = max(self._opens_at, _ERROR) if sighting.is_log else self._opens_at
        return sighting.state != "over" and sighting.rank >= least

    # -- what becomes of it

    def _opened(self, sighting: Sighting) -> Perception:
        self.last += 1
        perception = sighting.perception
        at = sighting.heard_at
        incident = Incident(
            f"I-{self.last}", perception.session, sighting.text, sighting.severity, at, at,
            subject=perception.subject, trust=perception.trust,
        )  # fmt: skip
        self.open[incident.id] = incident
        why = f"{sighting.severity} of {perception.source!r}, which belongs to no open incident"
        evidence.add(incident, sighting)
        evidence.tell(incident, sighting.heard_at, "opened", why, perception)
        self._changed(Told("opened", incident, why))
        self.index.hold(incident)
        self._make_room(sighting.heard_at)
        return notice_of("incident.opened", incident, perception, why)

    def _opened_again(self, incident: Incident, sighting: Sighting, why: str) -> Perception | Decision:
        if not self._may_open(sighting):
            return sighting.perception
        del self.closed[incident.id]
        self.open[incident.id] = incident
        incident.state, incident.closed_at, incident.asked_by = "open", None, ""
        incident.ordinal += 1
        said = f"opened again, for the {incident.ordinal}. time: {why}"
        evidence.add(incident, sighting)
        evidence.tell(incident, sighting.heard_at, "reopened", said, sighting.perception)
        self._changed(Told("opened", incident, said))
        self.index.hold(incident)
        self._make_room(sighting.heard_at)
        return notice_of("incident.opened", incident, sighting.perception, said)

    def _grown(self, incident: Incident, sighting: Sighting, why: str) -> Perception | Decision:
        perception, before = sighting.perception, incident.severity
        former = incident.things.get(sighting.thing)
        is_news = former is None or (former.state == "over" and sighting.state == "firing")
        is_worse = former is not None and SEVERITIES.index(former.severity) < sighting.rank
        evidence.add(incident, sighting)
        is_known = sighting.thing in incident.things
        self.index.hold(incident)
        is_raised = SEVERITIES.index(before) < SEVERITIES.index(incident.severity)
        if incident.heeds(perception.trust):  # so that the one that is quiet for longest is the first
            self.open[incident.id] = self.open.pop(incident.id)
        if is_raised:
            why = f"its severity rises from {before} to {incident.severity}: {why}"
        elif has_grown := incident.count >= self.settings.next_told(incident.told):
            why = f"it has grown to {incident.count}: {why}"
        if is_raised or has_grown:
            incident.told = incident.count
            evidence.tell(incident, sighting.heard_at, "raised" if is_raised else "grown", why, perception)
            self._changed(Told("changed", incident, why))
            return notice_of("incident.grown", incident, perception, why)
        if is_news or is_worse or not is_known:
            evidence.tell(incident, sighting.heard_at, "again" if former is not None else "joined", why, perception)
            self._changed(Told("changed", incident, why))
            return linked(perception, incident)
        self._touched[incident.id] = incident
        reason = f"grew incident {incident.id}: {why}, {incident.count + incident.strange} in all"
        return Decision(perception.id, perception.source, STAGE, reason, perception.at, incident.id)

    def _over(self, incident: Incident, sighting: Sighting) -> Perception:
        """Note the end of a thing; it ends the incident if nothing else of it fires."""
        perception, thing = sighting.perception, incident.things.get(sighting.thing)
        if thing is None or not incident.is_open or sighting.at < thing.last_at:
            return linked(perception, incident)
        was_firing = incident.is_firing
        evidence.add(incident, sighting)
        evidence.tell(incident, sighting.heard_at, "over", "a thing of it is over", perception)
        if was_firing and not incident.is_firing:
            why = "all that fired in it is over"
            self._close(incident, why, sighting.heard_at, "resolved", perception)
            return notice_of("incident.closed", incident, perception, why)
        self._changed(Told("changed", incident, "a thing of it is over"))
        return linked(perception, incident)

    # -- what ends by itself, or by a person

    def due_at(self) -> datetime | None:
        """Return when the next incident is quiet for long enough to be closed; at once for one that is to be."""
        # A list: a thread may work on a batch meanwhile, and open one.
        return min(map(self._ends_at, list(self.open.values())), default=None)

    def expire(self, now: datetime) -> list[Perception]:
        """Close what people want closed and what has been quiet for long enough; returns the notices."""
        notices: list[Perception] = []
        for incident in list(self.open.values()):
            if self._ends_at(incident) > now:
                continue
            if incident.asked_by:
                notices.append(self._ended(incident, f"{incident.asked_by} closed it", now, "person"))
            elif self._is_unsure(incident):
                within = f"{self.settings.settle:g} s of the start"
                why = f"all that fired in it is over, or was not told again within {within}"
                notices.append(self._ended(incident, why, now, "resolved"))
            else:
                why = f"nothing new for {self._patience(incident):g} s"
                notices.append(self._ended(incident, why, now, "quiet"))
        return notices

    def ask_closing(self, incident_id: str, by: str, now: datetime) -> Incident:
        """Have an incident closed with the next cycle, on the word of a person.

        Raises: LookupError for one that is not known; ValueError for one that is closed.
        """
        incident = self._get(incident_id)
        if incident is None:
            known = ", ".join(self.open) or "none"
            raise LookupError(f"no incident {incident_id!r:.100}; open are: {known:.300}")
        if not incident.is_open:
            raise ValueError(f"incident {incident.id} is closed already: {incident.reason}")
        incident.asked_by = by
        evidence.tell(incident, now, "asked", f"{by} wants it closed", None)
        self._touched[incident.id] = incident
        return incident

    def _is_unsure(self, incident: Incident) -> bool:
        return incident.id in self._unsure and not incident.is_firing

    def _patience(self, incident: Incident) -> float:
        return self.settings.quiet_firing if incident.is_firing else self.settings.quiet

    def _ends_at(self, incident: Incident) -> datetime:
        if incident.asked_by:
            return incident.opened_at
        if self._is_unsure(incident):
            return self._unsure[incident.id] + timedelta(seconds=self.settings.settle)
        return incident.last_at + timedelta(seconds=self._patience(incident))

    def _ended(self, incident: Incident, why: str, now: datetime, ending: Ending) -> Perception:
        self._close(incident, why, now, ending, None)
        return closing_of(incident, why, now, new_id)

    def _close(self, incident: Incident, why: str, at: datetime, ending: Ending, cause: Perception | None) -> None:
        del self.open[incident.id]
        self._unsure.pop(incident.id, None)
        self.closed[incident.id] = incident
        self._recent.append(incident)
        incident.state, incident.closed_at, incident.reason = "closed", at, why
        evidence.tell(incident, at, "closed", why, cause)
        self._changed(Told("closed", incident, why, ending))
        while len(self.closed) > self.settings.keep:
            oldest = next(iter(self.closed))
            del self.closed[oldest]
            self.index.forget(oldest)
            self._touched[oldest] = None

    def _let_go(self, now: datetime) -> None:
        """Have incidents found no more that were closed too long ago, or too many ago, to be opened again."""
        recent = self._recent
        while recent and (
            recent[0].is_open or len(recent) > self.settings.open
            or (now - (recent[0].closed_at or now)).total_seconds() > self.settings.reopen
        ):  # fmt: skip
            incident = recent.popleft()
            if not incident.is_open:
                self.index.forget(incident.id)

    def _make_room(self, now: datetime) -> None:
        """Close the one that was quiet for longest while more are open than may be; it is told with the next batch.

        Of those before the newest the ones that a stranger opened go first: a flood of them ends at most one that a
        trusted sensor speaks for.
        """
        while len(self.open) > self.settings.open:
            former = islice(self.open.values(), len(self.open) - 1)
            strange = (each for each in former if each.trust == "untrusted")
            quietest = next(strange, None) or next(iter(self.open.values()))
            why = f"more than {self.settings.open} were open, and it was quiet for longest"
            self._late.append(self._ended(quietest, why, now, "room"))

    # -- what is kept

    @property
    def has_changes(self) -> bool:
        """Return whether rows changed since they were taken."""
        return bool(self._touched)

    def restore(self, incidents: Sequence[Incident], last: int) -> None:
        """Take up incidents of an earlier process, the oldest first; what was opened here meanwhile stays.

        A reading that was high is told again by its sensor if it still is; if it is not, nobody says so. So an incident
        in which nothing else fires ends after `settle` seconds, unless something of it fires again.
        """
        self.last = max([self.last, last, *map(number_of, incidents)])
        for incident in incidents:
            if self._get(incident.id) is not None:
                continue
            if incident.is_open:
                self.open[incident.id] = incident
                for thing in incident.things.values():
                    is_reading = not thing.kind.startswith("alert") and incident.heeds(thing.trust)
                    if thing.state == "firing" and is_reading:
                        thing.state = "event"
                        self._unsure[incident.id] = incident.last_at if self.now is None else self.now()
            else:
                self.closed[incident.id] = incident
                self._recent.append(incident)
            self.index.hold(incident)

    def take(self) -> Taken:
        """Return what changed since it was last taken, as it stands now; it is not given twice."""
        news, self.news = self.news, []
        touched, self._touched = self._touched, {}
        rows: dict[str, Any] = {
            key: None if incident is None else to_builtins(incident) for key, incident in touched.items()
        }
        if any(told.change == "opened" for told in news):
            rows[LAST] = self.last
        return Taken(tuple(news), rows)

    def _changed(self, told: Told) -> None:
        self.news.append(told)
        self._touched[told.incident.id] = told.incident
