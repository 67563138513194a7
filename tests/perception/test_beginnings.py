"""What a sensor notes at its very first start is kept, also where no cycle comes before the process ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from perception.sense import Sense
from perception.sensors.directory import DirectorySensor
from perception.sensors.schedule import ScheduleSensor
from perception.sensors.tail.sensor import TailSensor
from spar import Agent, Perception
from spar.events import TriggerMissed
from spar.protocols import Home, SensorContext, SensorSpec
from spar.testing import VirtualClock
from tests.doubles import heard


class _NoWatch:
    """Watch that sees nothing: the sensor looks by itself."""

    def __init__(self, root: str, identity: Any, hinted: Callable[[Any], None], **options: Any) -> None:
        self.identity, self.is_stale, self.error = identity, False, None

    def stop(self) -> None: ...


class _Directory(DirectorySensor):
    watch = _NoWatch  # type: ignore[assignment]


class _Numbers:
    """Sensor that is polled, and reports what has come since its first look."""

    every = 60.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def open(self, ctx: SensorContext) -> None:
        self._ctx, self._known = ctx, ctx.cursor

    async def poll(self) -> list[Perception]:
        count = len(list(self._folder.iterdir()))
        known, self._known = self._known, count
        self._ctx.checkpoint(count)
        return [] if known is None or known == count else [Perception(f"{count - known} more")]


SENSORS: dict[str, Callable[[Path, Home], Any]] = {
    "tail": lambda folder, home: TailSensor([str(folder / "app.log")], home=home),
    "directory": lambda folder, home: _Directory(str(folder), home=home, existing=False, settle=0),
    "schedule": lambda folder, home: ScheduleSensor(cron="0 12 * * *", text="noon"),
    "polled": lambda folder, home: _Numbers(folder),
}


@pytest.mark.parametrize(("sensor", "noticed"), [("tail", "a new line"), ("directory", "a new file"),
                                                 ("schedule", "noon"), ("polled", "1 more")])  # fmt: skip
async def test_what_comes_between_two_processes_is_noticed_though_the_first_had_no_cycle(
    sensor: str, noticed: str, clock: VirtualClock, tmp_path: Path
) -> None:
    folder, texts = tmp_path / "in", list[str]()
    folder.mkdir()
    (folder / "app.log").write_text("an old line\n")

    async def plan(perceptions: list[Perception]) -> None:
        texts.extend(perception.text for perception in perceptions)

    def agent_on(path: Path) -> Agent:
        home = Home(str(tmp_path), str(tmp_path), str(tmp_path))
        sense = Sense([SensorSpec("it", SENSORS[sensor](folder, home))])
        return Agent(sense=sense, plan=plan, memory=Memory.open(f"sqlite:///{path}/m.db"), clock=clock,
                     loop_interval="off", home=home)  # fmt: skip

    async with agent_on(tmp_path) as agent:
        await clock.sleep(6 * 3600)
        assert agent.stats.total_cycles == 0
    with (folder / "app.log").open("a") as log:
        log.write("a new line\n")
    if sensor != "tail":
        (folder / "new.txt").write_text("a new file")
    await clock.sleep(8 * 3600)

    agent = agent_on(tmp_path)
    missed = heard(agent, TriggerMissed)
    async with agent:
        await clock.sleep(120)
    assert texts.count(noticed) == 1
    assert len(missed) == (sensor == "schedule")
