"""What has stopped is let go of: nothing of the process keeps an agent, its runs or its memory."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from memory import Memory
from spar import Action, Agent, Call, Context, Perception, tool
from spar.events import RunEnded
from spar.service.metrics import Metrics
from spar.testing import VirtualClock


@tool(effect="read")
async def look() -> str:
    return "nothing"


async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
    if context.run is None:
        return None
    return Action((Call("look"),)) if context.run.number == 1 else Action(output="done")


async def lived(path: Path, clock: VirtualClock, *, ends_badly: bool) -> list[weakref.ref[Any]]:
    """References to what an agent was made of that has served messages and been stopped."""
    memory = Memory(f"sqlite:///{path / 'memory.db'}")
    agent = Agent(plan=plan, act=Executor([look]), memory=memory, clock=clock, loop_interval=0.1)
    metrics = Metrics(lambda: [agent], "1")
    metrics.registry.collect()

    @agent.on(RunEnded)
    def heard(event: Any) -> None: ...

    async with agent:
        runs = [await agent.submit("hello", session=session) for session in ("main", "bob")]
        for run in runs:
            await agent.wait(run.run_id, 60)
        await agent.submit("one more", session="ann")
        if ends_badly:
            await agent.stop(0.0)
    return [weakref.ref(each) for each in (agent, memory, metrics, agent.modules["act"].part)]


@pytest.mark.parametrize("ends_badly", [False, True])
async def test_an_agent_that_has_stopped_is_kept_by_nobody(
    clock: VirtualClock, tmp_path: Path, ends_badly: bool
) -> None:
    kept = await lived(tmp_path, clock, ends_badly=ends_badly)
    await clock.sleep(3600)
    for thread in threading.enumerate():
        if thread.name == "memory-writer":  # it ends after the memory was closed
            thread.join()
    for _ in range(2):  # what has a last word to say is let go of after it
        gc.collect()
    assert [each() for each in kept] == [None] * len(kept)
