"""Writes into the log what happens to single sensors, which know events and no logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spar.events import ErrorOccurred, SensorQuarantined, SensorRestored, TriggerMissed
from spar.logs import get_logger

if TYPE_CHECKING:
    from spar.agent import Agent

log = get_logger("spar.sensors")


def log_sensors(agent: Agent) -> None:
    """Log failing, quarantined and restored sensors and missed triggers from now on; whole phases log themselves."""
    module = agent.modules["sense"].name

    def failed(event: ErrorOccurred) -> None:
        part, reason = event.error.part, event.error.message
        if event.phase == "sense" and part != module:
            agent.reports.say(
                log.warning, "sensor failed", event.error, sensor=part, reason=reason, policy=event.policy
            )

    def quarantined(event: SensorQuarantined) -> None:
        log.error("sensor quarantined", agent=agent.name, sensor=event.sensor, reason=event.reason)

    def restored(event: SensorRestored) -> None:
        log.info("sensor restored", agent=agent.name, sensor=event.sensor)

    def missed(event: TriggerMissed) -> None:
        log.warning("trigger missed", agent=agent.name, sensor=event.trigger, due_at=event.due_at, reason=event.reason)

    agent.events.subscribe(ErrorOccurred, failed)
    agent.events.subscribe(SensorQuarantined, quarantined)
    agent.events.subscribe(SensorRestored, restored)
    agent.events.subscribe(TriggerMissed, missed)
