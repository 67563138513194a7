"""Deadlines of the open incidents: when each ends if nothing new comes, and which is the first.

News mostly put an end off. The entry of an incident is then moved when it is the first, so that a perception costs the
same however many incidents are open.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from datetime import datetime, timedelta

from perception.incidents.settings import IncidentSettings
from spar.records.perceived import Incident

#: Outdated entries beyond which all are sorted anew, besides one for each incident.
_SPARE = 64

_Entry = tuple[datetime, int, str, Incident]  # when an incident ends, the order of entries


class Deadlines:
    """Deadlines of the incidents of one register. It may be used in several threads."""

    def __init__(self, settings: IncidentSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []  # a heap
        self._noted: dict[str, _Entry] = {}  # the entry that counts, by the id of its incident
        self._number = itertools.count()
        #: Restored incidents in which only readings of an earlier process were firing, with the time since when it is
        #: unknown whether these readings are still high.
        self._unsure: dict[str, datetime] = {}

    def note(self, incident: Incident) -> None:
        """Note that an incident is open or has changed."""
        at = self._end_of(incident)
        with self._lock:
            noted = self._noted.get(incident.id)
            if noted is not None and noted[0] <= at:
                return
            self._noted[incident.id] = entry = at, next(self._number), incident.id, incident
            heapq.heappush(self._entries, entry)
            if len(self._entries) > 2 * len(self._noted) + _SPARE:
                self._entries = list(self._noted.values())
                heapq.heapify(self._entries)

    def doubt(self, incident: Incident, since: datetime) -> None:
        """Note that it is unknown whether a restored incident goes on."""
        self._unsure[incident.id] = since

    def forget(self, incident_id: str) -> None:
        """Forget a closed incident."""
        with self._lock:
            self._noted.pop(incident_id, None)
            self._unsure.pop(incident_id, None)

    def first(self) -> tuple[datetime, Incident] | None:
        """Return the incident that ends first, and when; a past time for one that a person wants closed."""
        while (entry := self._earliest()) is not None:
            at, incident = entry[0], entry[3]
            if (end := self._end_of(incident)) <= at:
                return end, incident
            with self._lock:
                if self._entries and self._entries[0] is entry:
                    self._noted[incident.id] = later = end, next(self._number), incident.id, incident
                    heapq.heapreplace(self._entries, later)
        return None

    def _earliest(self) -> _Entry | None:
        """Return the earliest entry that counts; drop those before it."""
        with self._lock:
            while self._entries and self._noted.get(self._entries[0][2]) is not self._entries[0]:
                heapq.heappop(self._entries)
            return self._entries[0] if self._entries else None

    def is_unsure(self, incident: Incident) -> bool:
        """Return whether it is unknown whether an incident goes on."""
        return incident.id in self._unsure and not incident.is_firing

    def patience(self, incident: Incident) -> float:
        """Return the seconds without news after which an incident ends."""
        return self._settings.quiet_firing if incident.is_firing else self._settings.quiet

    def _end_of(self, incident: Incident) -> datetime:
        if incident.asked_by:
            return incident.opened_at
        if self.is_unsure(incident):
            return self._unsure[incident.id] + timedelta(seconds=self._settings.settle)
        return incident.last_at + timedelta(seconds=self.patience(incident))
