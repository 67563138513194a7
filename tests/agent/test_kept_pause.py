"""A pause outlives the process: the next one comes back paused and says so, until somebody resumes."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Agent
from spar.observe.sink import configure
from spar.testing import RecordingStore, ScriptedSense, VirtualClock


def agent_on(store: Any, clock: VirtualClock) -> Agent:
    return Agent(sense=ScriptedSense(), memory=store, clock=clock, loop_interval=1.0)


async def test_the_next_process_is_paused_and_says_so_until_somebody_resumes(clock: VirtualClock) -> None:
    store, out = RecordingStore(), io.StringIO()
    former = agent_on(store, clock)
    await former.start()
    await former.pause()  # and its process dies

    logs = configure("info", "json", stream=out)
    try:
        agent = agent_on(store, clock)
        await agent.start()
    finally:
        logs.close()
    assert agent.state == "paused"
    (line,) = [line for line in map(json.loads, out.getvalue().splitlines()) if line["msg"] == "still paused"]
    assert "spar resume" in line["reason"]
    await clock.sleep(5)
    assert agent.stats.total_cycles == 0

    await agent.resume()
    await clock.sleep(5)
    assert agent.stats.total_cycles > 0
    await agent.stop()

    third = agent_on(store, clock)
    await third.start()
    assert third.state == "running"
    await third.stop()
    await former.stop()


async def test_a_start_may_go_on_all_the_same(clock: VirtualClock) -> None:
    store = RecordingStore()
    former = agent_on(store, clock)
    await former.start()
    await former.pause()  # and its process dies

    agent = agent_on(store, clock)
    await agent.start(resume=True)
    assert agent.state == "running"
    await agent.stop()

    third = agent_on(store, clock)
    await third.start()
    assert third.state == "running"
    await third.stop()


async def test_a_start_in_the_same_process_is_somebody_who_resumes(clock: VirtualClock) -> None:
    store = RecordingStore()
    agent = agent_on(store, clock)
    await agent.start()
    await agent.pause()
    await agent.stop()

    await agent.start()

    assert agent.state == "running"
    await agent.stop()
    third = agent_on(store, clock)
    await third.start()
    assert third.state == "running"
    await third.stop()


async def test_an_agent_that_came_back_paused_can_be_run_stepped_and_stopped(clock: VirtualClock) -> None:
    store = RecordingStore()
    former = agent_on(store, clock)
    await former.start()
    await former.pause()  # and its process dies

    agent = agent_on(store, clock)
    await agent.start()
    assert await agent.step_sense() == []
    running = asyncio.ensure_future(agent.run())
    await clock.sleep(1)
    assert (agent.state, running.done()) == ("paused", False)
    await agent.resume()
    await clock.sleep(1)
    await agent.stop()
    await running


@pytest.mark.parametrize("is_paused", [True, False])
async def test_the_pause_of_a_service_outlives_its_stop_and_that_of_a_program_does_not(
    clock: VirtualClock, tmp_path: Path, is_paused: bool
) -> None:
    agent = agent_on(Memory.open(f"sqlite:///{tmp_path}/m.db"), clock)
    agent.ends_pause = not is_paused
    async with agent:
        await agent.pause()
        await agent.resume()
        await agent.pause()

    following = agent_on(Memory.open(f"sqlite:///{tmp_path}/m.db"), clock)
    await following.start()
    assert following.state == ("paused" if is_paused else "running")
    await following.stop()


async def test_without_a_memory_nothing_is_kept(clock: VirtualClock) -> None:
    agent = agent_on(None, clock)
    await agent.start()
    await agent.pause()
    await agent.stop()
    await agent.start()
    assert agent.state == "running"
    await agent.stop()
