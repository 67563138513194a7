"""Alerts for problems that other parts report by events: quarantined sensors and channels, approvals that wait too
long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from spar.clock import Timer
from spar.events import (
    ApprovalExpired,
    ApprovalRequested,
    ApprovalResolved,
    ChannelQuarantined,
    ChannelRestored,
    Event,
    SensorQuarantined,
    SensorRestored,
    StateChanged,
)
from spar.events.table import ROWS, data_of, sentence_of
from spar.health.alerts import Kind
from spar.health.health import Health
from spar.loop.core import Core
from spar.records.approvals import Approval

#: Seconds from an event about approvals until they are read here: the list of pending approvals is up to date by then.
_SOON = 0.5


def alert_quarantines(core: Core, health: Health) -> None:
    """Open an alert for each sensor and each direction of a channel in quarantine, with the sentence of its event, and
    close it at the end of the quarantine."""

    def follow(kind: Kind, names: tuple[str, ...], event: Event) -> None:
        what = "/".join(getattr(event, name) for name in names)
        if isinstance(event, (SensorQuarantined, ChannelQuarantined)):
            health.judge.alert(kind, sentence_of(ROWS[type(event)], data_of(event)), what=what)
        else:
            health.recovered(kind, what=what)

    for of_sensor in (SensorQuarantined, SensorRestored):
        core.events.subscribe(of_sensor, partial(follow, "sensor", ("sensor",)))
    for of_channel in (ChannelQuarantined, ChannelRestored):
        core.events.subscribe(of_channel, partial(follow, "channel", ("channel", "part")))


class ApprovalAlerts:
    """Alert while a call waits for approval for longer than `health.approval_after`. Args: pending: returns the calls
    that wait."""

    def __init__(self, core: Core, health: Health, pending: Callable[[datetime], Sequence[Approval]]) -> None:
        self._core, self._health, self._pending = core, health, pending
        self._timer: Timer | None = None
        for kind in (ApprovalRequested, ApprovalResolved, ApprovalExpired, StateChanged):
            core.events.subscribe(kind, self._on_event)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, StateChanged) and event.new in ("stopping", "stopped"):
            self._arm(None)
        elif not (isinstance(event, StateChanged) and event.new != "running"):
            self._arm(_SOON)

    def _arm(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        clock = self._core.clock
        self._timer = None if seconds is None else clock.call_at(clock.monotonic() + seconds, self._look)

    def _look(self) -> None:
        self._timer, limit, now = None, self._core.settings.health.approval_after, self._core.clock.now()
        pending = self._pending(now) if limit else []
        ages = [(now - approval.asked_at).total_seconds() for approval in pending]
        if old := [age for age in ages if age >= limit]:
            calls = "call waits" if len(old) == 1 else "calls wait"
            tools = ", ".join(dict.fromkeys(approval.call.tool for approval in pending[:5]))
            self._health.judge.alert("approval", f"{len(old)} {calls} for approval for more than {limit:g} s ({tools})")
        else:
            self._health.recovered("approval")
        if pending:  # look again when the next approval becomes too old, or at the end of one that is
            younger = [limit - age for age in ages if age < limit]
            self._arm(max(min(younger, default=60.0), _SOON))
