"""Load, memory and disks: changes of level, reminders, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from perception import Pipeline
from perception.sensors.host import HostSensor, measured
from spar.errors import ConfigError
from spar.protocols import SensorContext
from spar.testing import VirtualClock, check_sensor
from spar.types import Perception


class Readings:
    """What the machine shall say; a reading that is an exception is raised."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"host.load": 0.1, "host.memory": 0.3, "/": 0.5, "/data": 0.5}

    def __call__(self, kind: str, path: str) -> float:
        value = self.values[path or kind]
        if isinstance(value, Exception):
            raise value
        return value


class Watched:
    """An opened sensor over given readings."""

    def __init__(self, clock: VirtualClock, **options: Any) -> None:
        self.readings = Readings()
        self.reported: list[dict[str, Any]] = []
        self.sensor = HostSensor(read=self.readings, **options)
        self.context = SensorContext(
            "machine", clock, lambda perception: True, report=lambda name, **fields: self.reported.append(fields)
        )

    async def look(self, **values: float | Exception) -> list[Perception]:
        names = {"load": "host.load", "memory": "host.memory", "disk": "/", "data": "/data"}
        self.readings.values |= {names[name]: value for name, value in values.items()}
        return self.sensor.poll()


async def watched(clock: VirtualClock, **options: Any) -> Watched:
    found = Watched(clock, **options)
    await found.sensor.open(found.context)
    return found


async def test_a_quiet_machine_is_not_worth_a_word(clock: VirtualClock) -> None:
    host = await watched(clock)

    assert await host.look() == []
    assert await host.look(load=1.49, memory=0.89) == []
    assert await host.look(load=float("nan")) == []


async def test_readings_are_handed_over_for_those_who_want_them(clock: VirtualClock) -> None:
    host = await watched(clock, readings=True)

    looked = await host.look(load=0.4)

    assert [(one.kind, one.attributes["series"], one.attributes["value"]) for one in looked] == [
        ("host.load", "load", 0.4),
        ("host.memory", "memory", 0.3),
        ("host.disk", "disk /", 0.5),
    ]
    assert Pipeline().process(looked) == []  # the usual is not worth a word


async def test_going_high_and_coming_back_are_told_once_each_also_of_a_value_that_trembles(clock: VirtualClock) -> None:
    host = await watched(clock, hysteresis=0.05)

    (high,) = await host.look(memory=0.93)
    assert await host.look(memory=0.95) == []
    (normal,) = await host.look(memory=0.5)
    assert await host.look(memory=0.5) == []

    assert (high.kind, high.subject, high.source, high.trust) == ("host.memory", "host.memory", "machine", "trusted")
    assert high.content == "memory is high: 93% in use, the threshold is 90%"
    assert high.attributes == {"value": 0.93, "threshold": 0.9, "level": "high", "unit": "share", "reminder": False}
    assert normal.content == "memory is back to normal: 50% in use"
    assert normal.attributes["level"] == "normal"
    assert high.key != normal.key
    told = [len(await host.look(disk=value)) for value in (0.9, 0.89, 0.91, 0.86, 0.9, 0.84, 0.89)]
    assert told == [1, 0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize(("remind", "reminders"), [(300.0, 1), (0.0, 0)])
async def test_while_it_stays_high_it_is_told_again_after_a_restart_and_as_often_as_that_is_wanted(
    clock: VirtualClock, remind: float, reminders: int
) -> None:
    host = await watched(clock, remind=remind)

    (first,) = await host.look(load=2.0)
    await clock.advance(299)
    assert await host.look(load=2.5) == []
    await clock.advance(1)
    again = await host.look(load=3.0)

    assert [(item.content, item.attributes["reminder"], item.key != first.key) for item in again] == [
        ("load is high: 3.00 per cpu, the threshold is 1.50", True, True)
    ] * reminders
    await host.sensor.open(host.context)
    assert len(await host.look(load=3.0)) == 1


async def test_each_disk_has_a_level_of_its_own_and_one_that_is_gone_is_told_once_and_silences_nothing(
    clock: VirtualClock,
) -> None:
    host = await watched(clock, disks=["/", "/data"])
    gone = FileNotFoundError("no /data")

    first = await host.look(data=gone, memory=0.99)
    second = await host.look(memory=0.1)
    both = await host.look(disk=0.95, data=0.99)
    await host.look(data=gone)

    assert [item.subject for item in first] == ["host.memory"]
    assert [item.attributes["level"] for item in second] == ["normal"]
    assert [(item.subject, item.kind) for item in both] == [
        ("host.disk /", "host.disk"),
        ("host.disk /data", "host.disk"),
    ]
    assert [fields["error"].message for fields in host.reported] == ["no /data"] * 2
    assert host.reported[0]["error"].part == "machine"


async def test_when_nothing_can_be_read_the_poll_fails(clock: VirtualClock) -> None:
    host = await watched(clock)
    broken = OSError("no /proc")

    with pytest.raises(OSError, match="no /proc"):
        await host.look(load=broken, memory=broken, disk=broken)


def test_a_hysteresis_above_a_threshold_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"found 0\.95") as error:
        HostSensor(hysteresis=0.95)

    assert error.value.path == ("hysteresis",)


@pytest.mark.parametrize(("kind", "path"), [("host.load", ""), ("host.memory", ""), ("host.disk", "/")])
def test_this_machine_can_be_measured(kind: str, path: str) -> None:
    value = measured(kind, path)

    assert 0 <= value < 1_000 if kind == "host.load" else 0 < value <= 1


async def test_it_keeps_the_contract_of_a_sensor(clock: VirtualClock) -> None:
    readings = Readings()

    def provoke() -> None:
        readings.values["host.memory"] = 0.99

    await check_sensor(lambda: HostSensor(read=readings), provoke=provoke, clock=clock)
