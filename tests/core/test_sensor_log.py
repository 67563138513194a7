"""A sensor that fails, is quarantined or comes back stands in the service's log."""

from __future__ import annotations

import io
import json

from perception.sense import Sense
from spar import Agent, Perception
from spar.logs import configure
from spar.protocols import SensorSpec
from spar.sensor_log import log_sensors
from spar.testing import ScriptedSensor, VirtualClock


async def test_a_dying_sensor_is_told_in_the_log(clock: VirtualClock) -> None:
    script = [OSError("the device is gone")] * 3 + [[Perception("back")]]
    dying = SensorSpec("dying", ScriptedSensor(script), every=1.0, max_failures=3, within=60.0, probe_after=100.0)
    agent = Agent(sense=Sense([dying]), clock=clock, loop_interval=1.0)
    out = io.StringIO()
    logs = configure("info", "json", stream=out)
    try:
        log_sensors(agent)
        async with agent:
            await clock.sleep(300)
    finally:
        logs.close()

    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    told = [(line["msg"], line.get("reason")) for line in lines if line.get("sensor") == "dying"]
    assert told[0] == ("sensor failed", "the device is gone")
    assert "sensor quarantined" in [message for message, _ in told]
    assert told[-1][0] == "sensor restored"
