"""Events of an agent's state, its alerts and its recovery."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from spar.events.event import Event


class StateChanged(Event):
    """The state of the agent has changed from `old` to `new`."""

    old: str
    new: str


class ConfigReloaded(Event):
    """The configuration was read again; `changed` keys apply now, `needs_restart` keys apply after the next start."""

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...] = ()


class HealthAlert(Event):
    """A health alert is open. `kind` is `stuck slow failing runs stalled blocked memory disk budget provider prompt
    cache sensor channel approval`; `since` is when the problem began; `session` is the session concerned ("": the whole
    agent), `what` tells alerts of one kind apart."""

    kind: str
    severity: Literal["warning", "critical"]
    message: str
    since: datetime | None = None
    cycle_id: str = ""
    alert_id: str = ""
    session: str = ""
    what: str = ""


class HealthRecovered(Event):
    """A health alert is closed; `duration` is the seconds for which it was open."""

    kind: str
    alert_id: str
    duration: float
    session: str = ""


class RecoveryStep(Event):
    """A step of recovery was taken: `back_off cancel abandon restart degrade restore pause quarantine shed drain`."""

    step: str
    part: str
    reason: str
    alert_id: str = ""
    session: str = ""


class NotifierFailed(Event):
    """A notifier could not send an alert, and is tried again; `waiting` is the number of notices that wait for it."""

    notifier: str
    reason: str
    waiting: int = 0


class NotifierRestored(Event):
    """A notifier that failed works again."""

    notifier: str


class Recovered(Event):
    """The start continued the work of an earlier process or attempt: `cycles` are continued, `items` are handed out
    again."""

    cycles: int
    items: int


class DeadLettered(Event):
    """Work that was cut off or failed too often was put aside; `item` is its id for `spar dead retry`."""

    item: str
    reason: str
    attempts: int = 0


class ContractViolation(Event):
    """A part, a server or a message has broken its contract."""

    part: str
    message: str
