"""Memory and disk that run short: what is said, what is given up, what is refused, and that it ends by itself."""

from __future__ import annotations

from typing import Any

import pytest

from spar import Agent
from spar.events import HealthAlert, HealthRecovered, RecoveryStep
from spar.health.relief import SHED_READINGS, Relief, Resources, disk_room, resident
from spar.health.resources import CALM, HARD_READINGS, LEAST_FREE, MIB, Pressure, ResourceBounds
from spar.testing import VirtualClock

GIB = 1024 * MIB


class Cached:
    """A plan module with a cache."""

    def __init__(self) -> None:
        self.entries = 100
        self.shed_count = 0

    async def plan(self, perceptions: Any) -> None:
        return None

    def shed(self) -> int:
        self.shed_count += 1
        given_up, self.entries = self.entries, 0
        return given_up


class Lab:
    """An agent, what is read of its process, and what was said about it."""

    def __init__(self, clock: VirtualClock, bounds: ResourceBounds, **modules: Any) -> None:
        self.memory, self.free, self.total = 100 * MIB, 50 * GIB, 100 * GIB
        self.agent = Agent(clock=clock, loop_interval=1.0, **modules)
        self.given_up: list[str] = []
        self.told: list[str] = []
        agent = self.agent
        resources = Resources(bounds, "/nowhere", agent.memory, lambda: self.memory, self._room)
        self.relief = Relief(agent.core, agent.health, agent.requests, resources, parts=agent.caches,
                             give_up=lambda: self.given_up.append("drain"))  # fmt: skip
        self.pressure = self.relief.pressure
        events = self.agent.events
        events.subscribe(HealthAlert, lambda event: self.told.append(f"{event.severity} {event.kind}"))
        events.subscribe(HealthRecovered, lambda event: self.told.append(f"recovered {event.kind}"))
        events.subscribe(RecoveryStep, lambda event: self.told.append(event.step))

    def _room(self, folder: str) -> tuple[int, int]:
        if self.free < 0:
            raise OSError(5, "Input/output error")
        return self.free, self.total

    def look(self, number: int = 1) -> list[str]:
        """Take so many readings; what was said because of them."""
        self.told.clear()
        for _ in range(number):
            self.relief.look()
        return list(self.told)


# -- memory -------------------------------------------------------------------------------------------------


async def test_above_the_soft_limit_caches_are_given_up_and_told_once_in_a_while(clock: VirtualClock) -> None:
    cached = Cached()
    lab = Lab(clock, ResourceBounds(), plan=cached)
    async with lab.agent:
        assert lab.look(10) == []
        lab.memory = 512 * MIB
        assert lab.look() == []  # the limit itself is within it
        lab.memory += 1
        assert lab.look() == ["warning memory", "shed"]
        assert (cached.entries, lab.pressure.shed) == (0, 100)
        assert lab.look(SHED_READINGS - 1) == []
        assert lab.look() == ["shed"]
        assert cached.shed_count == 2
        assert lab.given_up == []


async def test_the_alert_of_memory_closes_once_it_is_clearly_below_the_limit(clock: VirtualClock) -> None:
    lab = Lab(clock, ResourceBounds())
    async with lab.agent:
        lab.memory = 600 * MIB
        lab.look()
        lab.memory = 500 * MIB
        assert lab.look() == []
        assert "memory" in lab.agent.health.alerts
        lab.memory = 400 * MIB
        assert lab.look() == ["recovered memory"]
        assert lab.look() == []


async def test_above_the_hard_limit_for_too_long_the_process_gives_up_once(clock: VirtualClock) -> None:
    lab = Lab(clock, ResourceBounds())
    async with lab.agent:
        lab.memory = 2 * GIB
        assert lab.look(HARD_READINGS - 1) == ["warning memory", "shed"]
        assert lab.given_up == []
        assert lab.look() == ["critical memory", "drain"]
        assert lab.given_up == ["drain"]
        lab.look(50)
        assert lab.given_up == ["drain"]
        alert = lab.agent.health.alerts["memory"]
        assert alert.message == (
            "the process takes 2048.0 MiB of memory, more than 1024.0 MiB, and gives nothing back; "
            "it ends, to be started again"
        )


async def test_a_peak_above_the_hard_limit_passes(clock: VirtualClock) -> None:
    lab = Lab(clock, ResourceBounds())
    async with lab.agent:
        for _ in range(10):
            lab.memory = 2 * GIB
            lab.look(HARD_READINGS - 1)
            lab.memory = GIB
            lab.look()
        assert lab.given_up == []


async def test_without_limits_nothing_is_ever_too_much(clock: VirtualClock) -> None:
    lab = Lab(clock, ResourceBounds(0, 0, 0))
    async with lab.agent:
        lab.memory, lab.free = 1000 * GIB, 0
        assert lab.look(100) == []
        assert (lab.given_up, lab.pressure.refusal()) == ([], "")


async def test_with_a_hard_limit_alone_caches_are_given_up_above_it(clock: VirtualClock) -> None:
    lab = Lab(clock, ResourceBounds(0, GIB, 0))
    async with lab.agent:
        lab.memory = 2 * GIB
        assert lab.look(HARD_READINGS) == ["warning memory", "shed", "critical memory", "drain"]


async def test_a_cache_that_cannot_be_given_up_keeps_no_other_from_it(clock: VirtualClock) -> None:
    cached, more = Cached(), Cached()
    more.entries = 7

    class Broken:
        def shed(self) -> int:
            raise RuntimeError("no")

    lab = Lab(clock, ResourceBounds(), plan=cached)
    agent = lab.agent
    resources = Resources(ResourceBounds(), "/", memory=lambda: GIB, room=lambda folder: (GIB, GIB))
    relief = Relief(agent.core, agent.health, agent.requests, resources, give_up=lambda: None,
                    parts=lambda: (*agent.caches(), Broken(), more))  # fmt: skip
    async with lab.agent:
        relief.look()
    assert relief.pressure.shed == 107


# -- disk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("least", "total", "expected"),
    [
        (None, 100 * GIB, LEAST_FREE),
        (None, 10 * LEAST_FREE, LEAST_FREE // 2),
        (None, 2 * MIB, int(2 * MIB * 0.05)),
        (7 * MIB, 2 * MIB, 7 * MIB),
        (0, 100 * GIB, 0),
    ],
)
def test_how_much_must_be_free(least: int | None, total: int, expected: int) -> None:
    pressure = Pressure(ResourceBounds(min_free_disk=least))
    pressure.take_disk(expected, total)
    assert (pressure.least_free, pressure.refusal()) == (expected, "")
    if expected:
        pressure.take_disk(expected - 1, total)
        assert pressure.refusal()


async def test_below_the_least_free_room_nothing_is_accepted_until_there_is_room_again(clock: VirtualClock) -> None:
    lab = Lab(clock, ResourceBounds(min_free_disk=100 * MIB))
    async with lab.agent:
        lab.free = 99 * MIB
        assert lab.look() == ["critical disk"]
        assert lab.agent.health.pressure.refusal() == (
            "the disk of the state directory has 99.0 MiB free, less than 100.0 MiB (service.min_free_disk); "
            "nothing new is accepted until there is room"
        )
        lab.free = 105 * MIB
        assert lab.look() == []
        assert lab.pressure.refusal()
        lab.free = 111 * MIB
        assert lab.look() == ["recovered disk"]
        assert lab.pressure.refusal() == ""


async def test_a_disk_that_cannot_be_read_says_nothing_about_its_room(clock: VirtualClock) -> None:
    lab = Lab(clock, ResourceBounds(min_free_disk=100 * MIB))
    async with lab.agent:
        lab.free = -1
        assert lab.look(3) == []
        assert lab.pressure.refusal() == ""
        lab.free = 1
        assert lab.look() == ["critical disk"]


# -- the readings themselves --------------------------------------------------------------------------------


def test_the_readings_of_this_process_are_plausible(tmp_path: Any) -> None:
    before = resident()
    assert 10 * MIB < before < 100 * GIB
    ballast = bytearray(b"x" * 64 * MIB)
    assert resident() - before > 48 * MIB
    assert len(ballast)
    free, total = disk_room(str(tmp_path))
    assert 0 <= free <= total > MIB


def test_an_agent_whose_process_nobody_watches_is_calm() -> None:
    agent = Agent()
    assert agent.health.pressure is CALM
    assert CALM.refusal() == ""
    assert agent.health.snapshot()["pressure"]["memory_bytes"] == 0
