"""What of an agent outlives it: the numbers of its events above all, also when nobody stopped it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from spar import Agent, ErrorOccurred, Fault
from spar.testing import VirtualClock


class States:
    """A store that keeps states and counts what is written."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}
        self.saves = 0
        self.on_fault: Callable[[Fault | None], None] = lambda fault: None

    async def store(self, experience: Any) -> None:
        raise AssertionError("nothing is to be remembered")

    async def load(self, key: str) -> Any:
        return self.states.get(key)

    async def save(self, key: str, state: Any) -> None:
        self.saves += 1
        self.states[key] = state


async def test_no_number_of_an_event_is_used_again_after_the_process_was_killed(clock: VirtualClock) -> None:
    store = States()
    async with Agent(memory=store, clock=clock) as agent:
        await asyncio.sleep(30.0)
        agent.events.seq += 500_000  # a busy day
        at_the_kill = dict(store.states)
        used = agent.events.seq

        after = States()
        after.states = at_the_kill
        async with Agent(memory=after, clock=clock) as successor:
            assert successor.events.seq > used


async def test_numbers_are_reserved_again_when_an_agent_is_started_again(clock: VirtualClock) -> None:
    store = States()
    agent = Agent(memory=store, clock=clock)
    for _ in range(2):
        async with agent:
            agent.events.seq += 500_000
            assert store.states["agent:main"]["seq"] > agent.events.seq


async def test_an_idle_agent_writes_nothing_after_its_start(clock: VirtualClock) -> None:
    store = States()
    async with Agent(memory=store, clock=clock) as agent:
        begun = store.saves
        await asyncio.sleep(3600.0)
        assert agent.stats.total_cycles > 100
        assert store.saves == begun == 1


async def test_a_memory_that_cannot_write_is_reported_as_an_error(clock: VirtualClock) -> None:
    store = States()
    agent = Agent(memory=store, clock=clock)
    seen: list[ErrorOccurred] = []
    agent.on(ErrorOccurred)(seen.append)
    async with agent:
        store.on_fault(Fault("unavailable", "the disk is full", part="disk"))
        store.on_fault(None)

    assert [(e.cycle_id, e.phase, e.error.message, e.policy) for e in seen] == [
        ("", "memory", "the disk is full", "retry")
    ]


async def test_the_last_completed_cycle_has_a_time_of_day_and_before_it_there_is_none(clock: VirtualClock) -> None:
    agent = Agent(clock=clock, loop_interval=60.0)
    assert agent.last_completed_at == 0.0
    async with agent:
        await asyncio.sleep(90.0)
        assert abs(clock.now().timestamp() - 30.0 - agent.last_completed_at) < 1.0
