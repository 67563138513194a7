"""Storage of incidents: their rows, written with the cycle that handles them, their events, and their closing in time.

The changes of a batch are taken together with the batch. So a cycle never writes changes that belong to a later cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import to_builtins

from perception.incidents.evidence import add_cycle
from perception.incidents.register import ENDINGS, BatchChanges, IncidentRegister
from spar.clock import Timer
from spar.data.bounded import BoundedDict
from spar.events import ErrorOccurred, IncidentChanged, IncidentClosed, IncidentOpened
from spar.protocols import Host, ModuleRows
from spar.records.journal import RowChange
from spar.records.perceived import LAST, ROWS, SEVERITIES, Incident, incidents_in, number_of, owner_of
from spar.types import Perception

NEVER = float("inf")
SOON = 0.001  # seconds until an incident that is already due is closed
#: Cycles whose changes may wait to be written; when there are more, the oldest are written at once.
WAITING = 1_000

_EVENTS = {"opened": IncidentOpened, "changed": IncidentChanged, "closed": IncidentClosed}


class Incidents:
    """Incidents of one sense module.

    Args: register: holds the incidents; process: runs the pipeline, which folds perceptions into incidents.
    """

    def __init__(
        self, register: IncidentRegister, process: Callable[[Sequence[Perception]], list[Perception]], host: Host
    ) -> None:
        self._register, self._process, self._host = register, process, host
        self._rows: ModuleRows | None = host.rows(ROWS)
        self._owner = owner_of(host.agent)
        self._has_loaded = False
        #: By the id of the resulting batch, until it is passed on.
        self._changes_of_batch: dict[int, tuple[list[Perception], BatchChanges]] = {}
        self._of_cycle: BoundedDict[str, list[RowChange]] = BoundedDict(WAITING)
        self._timer: Timer | None = None
        self.due = NEVER  # when the next incident is to be closed, monotonic seconds
        self.opened = Counter[str]()  # by severity
        self.closed = Counter[str]()  # by ending
        register.now, register.is_heard = host.clock.now, True

    # -- batches

    def process(self, batch: Sequence[Perception]) -> list[Perception]:
        """Process a batch in the pipeline, and close the incidents that are due. It may be called in a thread."""
        perceptions = self._process(batch)
        if self.is_due:
            perceptions = [*perceptions, *self._register.expire(self._host.clock.now())]
        if self._register.has_changes:
            self._changes_of_batch[id(perceptions)] = perceptions, self._register.take()
        return perceptions

    def passed(self, perceptions: list[Perception], cycle_id: str) -> None:
        """Note that a cycle has received a batch: publish the changes of the batch, and store them with that cycle."""
        entry = self._changes_of_batch.pop(id(perceptions), None) if self._changes_of_batch else None
        if entry is None:
            if self.is_due:
                self._set_timer()  # the wall clock is a little behind the monotonic clock
            return
        changes = entry[1]
        for change in changes.news if perceptions else ():
            add_cycle(change.incident, cycle_id)
            if (row := changes.rows.get(change.incident.id)) is not None:
                row["cycles"] = list(change.incident.cycles)
        row_changes = [RowChange(self._owner, key, row, is_dropped=row is None) for key, row in changes.rows.items()]
        if len(self._of_cycle) >= WAITING and cycle_id not in self._of_cycle:
            self.write(next(iter(self._of_cycle)))
        self._of_cycle[cycle_id] = [*self._of_cycle.get(cycle_id, ()), *row_changes]
        if self._host.journal is None:
            self.write(cycle_id)
        for change in changes.news:
            incident = change.incident
            self.opened[incident.severity] += change.change == "opened"
            self.closed[change.ending] += change.change == "closed"
            self._host.events.publish(_EVENTS[change.change](
                incident=incident.id, severity=incident.severity, count=incident.count, why=change.why,
                session=incident.session, cycle_id=cycle_id,
            ))  # fmt: skip
        self._set_timer()

    def rescue(self) -> None:
        """Write the changes of batches that will not be passed on any more."""
        for perceptions, _ in list(self._changes_of_batch.values()):
            self.passed(perceptions, "")
        self.write("")

    def rows_of(self, cycle_id: str) -> list[RowChange]:
        """Return the changes of rows that belong to a cycle, and forget them."""
        return self._of_cycle.pop(cycle_id, []) if self._of_cycle else []

    def write(self, cycle_id: str) -> None:
        """Write the changes of a cycle now, without waiting for its end."""
        for change in self.rows_of(cycle_id):
            if self._rows is None:
                return
            if change.is_dropped:
                self._rows.drop(change.key)
            else:
                self._rows.keep(change.key, change.value)

    # -- loading

    async def load(self) -> None:
        """Load the incidents of an earlier process, once. A row that cannot be read is reported and left as it is.

        Raises nothing: an error of the store is published.
        """
        if self._rows is None or self._has_loaded:
            return
        try:
            rows = await self._rows.list()
        except Exception as error:  # the next opening loads them again
            self._host.events.publish(ErrorOccurred.of(error, "incidents", "sense", "skip"))
            return
        self._has_loaded = True
        incidents, unreadable = incidents_in(rows)
        last = rows.get(LAST)
        self._register.restore(incidents, last if isinstance(last, int) else 0)
        for key in unreadable:
            self._host.tell_problem(f"incident {key}", "its row cannot be read by this release", is_note=True)
        self._set_timer()

    # -- the timer

    @property
    def is_due(self) -> bool:
        """Return whether an incident is to be closed now."""
        return self.due <= self._host.clock.monotonic()

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        self.close()
        clock, at = self._host.clock, self._register.due_at()
        self.due = NEVER if at is None else clock.monotonic() + max((at - clock.now()).total_seconds(), SOON)
        if at is not None:
            self._timer = clock.call_at(self.due, self._host.wake)

    # -- for people

    def list(self) -> list[Incident]:
        """Return the known incidents, the oldest first. It may be called from any thread."""
        register = self._register
        # The open ones before and after the closed ones: an incident may be closed or opened again meanwhile.
        known = (list(incidents.values()) for incidents in (register.open, register.closed, register.open))
        by_id = {incident.id: incident for incidents in known for incident in incidents}
        return sorted(by_id.values(), key=lambda incident: (incident.is_open, number_of(incident)))

    def ask_closing(self, incident_id: str, by: str) -> Incident:
        """Have an incident closed with the next cycle; the wish is stored at once.

        Raises: LookupError for an unknown incident; ValueError for a closed one.
        """
        incident = self._register.ask_closing(incident_id, by, self._host.clock.now())
        if self._rows is not None:
            self._rows.keep(incident.id, to_builtins(incident))
        self._set_timer()
        self._host.wake()
        return incident

    def figures(self) -> dict[str, Any]:
        """Return the numbers of incidents, JSON-able."""
        open_now = Counter(incident.severity for incident in list(self._register.open.values()))
        return {
            "open": {severity: open_now[severity] for severity in SEVERITIES},
            "opened": {severity: self.opened[severity] for severity in SEVERITIES},
            "closed": {ending: self.closed[ending] for ending in ENDINGS},
        }
