"""Writes into the log what happens to single sensors, which know events and no logs."""

from __future__ import annotations

from spar.events import ErrorOccurred, SensorQuarantined, SensorRestored, TriggerMissed
from spar.health.error_reporting import Reports
from spar.loop.core import Core
from spar.observe.logs import get_logger

log = get_logger("spar.sensors")


def log_sensors(core: Core, reports: Reports, module: str) -> None:
    """Log failing, quarantined and restored sensors and missed triggers from now on.

    Whole phases log themselves. Args: module: the name of the sense module.
    """

    def failed(event: ErrorOccurred) -> None:
        part, reason = event.error.part, event.error.message
        if event.phase == "sense" and part != module:
            reports.say(log.warning, "sensor failed", event.error, sensor=part, reason=reason, policy=event.policy)

    def quarantined(event: SensorQuarantined) -> None:
        log.error("sensor quarantined", agent=core.name, sensor=event.sensor, reason=event.reason)

    def restored(event: SensorRestored) -> None:
        log.info("sensor restored", agent=core.name, sensor=event.sensor)

    def missed(event: TriggerMissed) -> None:
        log.warning("trigger missed", agent=core.name, sensor=event.trigger, due_at=event.due_at, reason=event.reason)

    core.events.subscribe(ErrorOccurred, failed)
    core.events.subscribe(SensorQuarantined, quarantined)
    core.events.subscribe(SensorRestored, restored)
    core.events.subscribe(TriggerMissed, missed)
