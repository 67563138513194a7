"""The wall clock is set while the agent lives: no burst, nothing times out early, nothing comes twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perception.sense import Sense
from perception.sensors.schedule import ScheduleSensor
from spar import Agent, tool
from spar.events import LoopStarted
from spar.protocols import SensorSpec
from spar.testing import VirtualClock
from spar.types import Action, Call

EVERY, LASTS = 10.0, 60.0


@pytest.mark.parametrize(
    "jump",
    [
        timedelta(days=10),
        timedelta(days=-10),
        timedelta(seconds=40),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC),
    ],
    ids=["ten days ahead", "ten days back", "a little ahead", "1970", "2038"],
)
async def test_a_jump_of_the_wall_clock_makes_no_burst_and_no_early_timeout(clock: VirtualClock, jump: Any) -> None:
    ticks: list[float] = []
    lengths: list[float] = []
    starts: list[float] = []
    ids: list[str] = []

    async def plan(perceptions: Any) -> Any:
        ticks.extend(clock.elapsed for each in perceptions if each.source == "ticks")
        return Action((Call("work"),)) if not lengths and len(ticks) == 1 else None

    @tool(effect="once", timeout=LASTS + 5)
    async def work() -> str:
        began = clock.elapsed
        await clock.sleep(LASTS)
        lengths.append(clock.elapsed - began)
        return "done"

    def started(event: LoopStarted) -> None:
        starts.append(clock.elapsed)
        ids.append(event.cycle_id)

    ticking: Any = ScheduleSensor(interval=EVERY, text="tick")
    agent = Agent(sense=Sense([SensorSpec("ticks", ticking)]), plan=plan, tools=[work], clock=clock)
    agent.events.subscribe(LoopStarted, started)
    await agent.start()
    await clock.sleep(EVERY + 5)

    if isinstance(jump, datetime):
        clock.set_wall(jump)
    else:
        clock.jump_wall(jump.total_seconds())
    at = clock.elapsed
    await clock.sleep(200.0)
    await agent.stop()

    assert lengths == [LASTS], "the call had all its time"
    assert sum(tick > at for tick in ticks) <= 200 / EVERY + 1
    assert sum(start > at for start in starts) <= 202
    assert ids == sorted(set(ids)), "no id twice, and in order"
