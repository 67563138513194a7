"""Keeping of incidents: their rows, written with the cycle that deals with them, their events, and their ends in time.

What a batch changes in incidents is taken with the batch, so that no cycle writes what another one has still to be
told of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import to_builtins

from perception.incidents.evidence import dealt
from perception.incidents.register import ENDINGS, IncidentRegister, Taken
from spar.clock import Timer
from spar.data.bounded import BoundedDict
from spar.events import ErrorOccurred, IncidentChanged, IncidentClosed, IncidentOpened
from spar.protocols import Host, ModuleRows
from spar.records.journal import RowChange
from spar.records.perceived.incidents import LAST, ROWS, SEVERITIES, Incident, incidents_in, owner_of
from spar.types import Fault, Perception

NEVER = float("inf")
SOON = 0.001  # seconds until what ends at once is closed
#: Batches whose changes wait for their cycle; of more the oldest are written at once.
WAITING = 1_000

_EVENTS = {"opened": IncidentOpened, "changed": IncidentChanged, "closed": IncidentClosed}


class Incidents:
    """The incidents of one sense module.

    Args: register: where they are; process: the pipeline's work, which has them fold what comes.
    """

    def __init__(
        self, register: IncidentRegister, process: Callable[[Sequence[Perception]], list[Perception]], host: Host
    ) -> None:
        self._register, self._process, self._host = register, process, host
        self._rows: ModuleRows | None = host.rows(ROWS)
        self._owner = owner_of(host.agent)
        self._has_loaded = False
        self._taken: dict[int, tuple[list[Perception], Taken]] = {}  # by batch that came out, until it is passed on
        self._of_cycle: BoundedDict[str, list[RowChange]] = BoundedDict(WAITING)
        self._timer: Timer | None = None
        self.due = NEVER  # when the next one ends by itself, monotonic seconds
        self.opened = Counter[str]()  # by severity
        self.closed = Counter[str]()  # by how
        register.now, register.is_heard = host.clock.now, True

    # -- batches

    def process(self, batch: Sequence[Perception]) -> list[Perception]:
        """Have the pipeline process a batch; what is due to be closed ends with it. Callable in a thread."""
        perceptions = self._process(batch)
        if self.is_due:
            perceptions = [*perceptions, *self._register.expire(self._host.clock.now())]
        if self._register.has_changes:
            self._taken[id(perceptions)] = perceptions, self._register.take()
        return perceptions

    def passed(self, perceptions: list[Perception], cycle_id: str) -> None:
        """Note that a cycle has got a batch: what changed with it is told, and kept with that cycle."""
        found = self._taken.pop(id(perceptions), None) if self._taken else None
        if found is None:
            if self.is_due:
                self._set_timer()  # the clock of the day is a little behind the other one
            return
        taken = found[1]
        for told in taken.news if perceptions else ():
            dealt(told.incident, cycle_id)
            if (row := taken.rows.get(told.incident.id)) is not None:
                row["cycles"] = list(told.incident.cycles)
        changes = [RowChange(self._owner, key, row, is_dropped=row is None) for key, row in taken.rows.items()]
        if len(self._of_cycle) >= WAITING and cycle_id not in self._of_cycle:
            self.write(next(iter(self._of_cycle)))
        self._of_cycle[cycle_id] = [*self._of_cycle.get(cycle_id, ()), *changes]
        if self._host.journal is None:
            self.write(cycle_id)
        for told in taken.news:
            incident = told.incident
            if told.change == "opened":
                self.opened[incident.severity] += 1
            elif told.change == "closed":
                self.closed[told.ending] += 1
            self._host.events.publish(_EVENTS[told.change](
                incident=incident.id, severity=incident.severity, count=incident.count, why=told.why,
                session=incident.session, cycle_id=cycle_id,
            ))  # fmt: skip
        self._set_timer()

    def rescue(self) -> None:
        """Write what batches have changed of which nothing comes any more."""
        for perceptions, _ in list(self._taken.values()):
            self.passed(perceptions, "")
        self.write("")

    def rows_of(self, cycle_id: str) -> list[RowChange]:
        """Return the changes of rows that belong to a cycle, once."""
        return self._of_cycle.pop(cycle_id, []) if self._of_cycle else []

    def write(self, cycle_id: str) -> None:
        """Write the changes that belong to a cycle by themselves."""
        for change in self.rows_of(cycle_id):
            if self._rows is None:
                return
            if change.is_dropped:
                self._rows.drop(change.key)
            else:
                self._rows.keep(change.key, change.value)

    # -- what is kept

    async def load(self) -> None:
        """Take up the incidents of an earlier process, once. What cannot be read is told, and left as it is.

        Raises nothing: what the store raises is told.
        """
        if self._rows is None or self._has_loaded:
            return
        try:
            rows = await self._rows.list()
        except Exception as error:  # tried again with the next opening
            fault = Fault.of(error, part="incidents", phase="sense")
            self._host.events.publish(ErrorOccurred(cycle_id="", phase="sense", error=fault, policy="skip"))
            return
        self._has_loaded = True
        incidents, strange = incidents_in(rows)
        last = rows.get(LAST)
        self._register.restore(incidents, last if isinstance(last, int) else 0)
        for key in strange:
            self._host.tell_problem(f"incident {key}", "its row cannot be read by this release", is_note=True)
        self._set_timer()

    # -- their ends in time

    @property
    def is_due(self) -> bool:
        """Return whether an incident is to be closed now."""
        return self.due <= self._host.clock.monotonic()

    def close(self) -> None:
        """Let go of the timer."""
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
        """Return the incidents that are known, the oldest first. Callable from any thread."""
        return [*list(self._register.closed.values()), *list(self._register.open.values())]

    def ask_closing(self, incident_id: str, by: str) -> Incident:
        """Have an incident closed with the next cycle; that it is wanted is kept at once.

        Raises: LookupError for one that is not known; ValueError for one that is closed.
        """
        incident = self._register.ask_closing(incident_id, by, self._host.clock.now())
        if self._rows is not None:
            self._rows.keep(incident.id, to_builtins(incident))
        self._set_timer()
        self._host.wake()
        return incident

    def figures(self) -> dict[str, Any]:
        """Return how many there are, JSON-able."""
        open_now = Counter(incident.severity for incident in list(self._register.open.values()))
        return {
            "open": {severity: open_now[severity] for severity in SEVERITIES},
            "opened": {severity: self.opened[severity] for severity in SEVERITIES},
            "closed": {ending: self.closed[ending] for ending in ENDINGS},
        }
