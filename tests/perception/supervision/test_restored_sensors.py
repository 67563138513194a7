"""Sensors in quarantine, tried again by somebody's word instead of after their time."""

from __future__ import annotations

import pytest

from perception.sense import Sense
from spar import Agent
from spar.events import SensorQuarantined, SensorRestored
from spar.protocols import SensorSpec
from spar.testing import VirtualClock
from spar.types import Perception


class Broken:
    every = 1.0

    def __init__(self) -> None:
        self.is_well, self.polls = False, 0

    async def poll(self) -> list[Perception]:
        self.polls += 1
        if not self.is_well:
            raise OSError("no")
        return []


async def test_a_sensor_in_quarantine_is_tried_at_once_when_somebody_says_so(clock: VirtualClock) -> None:
    sensor = Broken()
    sense = Sense([SensorSpec("broken", sensor)])  # type: ignore[arg-type]
    agent = Agent(sense=sense, loop_interval=1.0, clock=clock)
    told: list[object] = []
    agent.events.subscribe(SensorQuarantined, told.append)
    agent.events.subscribe(SensorRestored, told.append)
    async with agent:
        sense.restore("broken")  # it is well as far as anybody knows: nothing happens
        await clock.sleep(60)
        assert [type(event) for event in told] == [SensorQuarantined]
        polls = sensor.polls
        sense.restore("broken")
        await clock.sleep(5)
        assert (sensor.polls, len(told)) == (polls + 1, 1)  # still broken: in quarantine as before
        sensor.is_well = True
        sense.restore("broken")
        await clock.sleep(5)
        assert [type(event) for event in told] == [SensorQuarantined, SensorRestored]
        assert sense.snapshot()["sensors"]["broken"]["state"] == "ok"


def test_a_sensor_that_is_not_there_cannot_be_restored() -> None:
    with pytest.raises(LookupError, match="no sensor 'x'; known: none"):
        Sense().restore("x")
