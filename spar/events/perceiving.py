"""Events of sensors and incidents."""

from __future__ import annotations

from datetime import datetime

from spar.events.event import Event


class SensorQuarantined(Event):
    """A sensor failed too often and is not polled until it is tried again."""

    sensor: str
    reason: str


class SensorRestored(Event):
    """A sensor has left quarantine."""

    sensor: str


class TriggerMissed(Event):
    """A tick of a trigger did not run at `due_at`."""

    trigger: str
    due_at: datetime
    reason: str


class IncidentOpened(Event):
    """An incident was opened, or opened again; `why` is the reason. `cycle_id` is the cycle that gets its notice."""

    incident: str
    severity: str
    count: int
    why: str
    session: str = "main"
    cycle_id: str = ""


class IncidentChanged(Event):
    """Something new was added to an incident, its severity rose, or it grew past a threshold."""

    incident: str
    severity: str
    count: int
    why: str
    session: str = "main"
    cycle_id: str = ""


class IncidentClosed(Event):
    """An incident was closed; `why` is the reason."""

    incident: str
    severity: str
    count: int
    why: str
    session: str = "main"
    cycle_id: str = ""
