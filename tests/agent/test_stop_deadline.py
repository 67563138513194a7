"""One deadline bounds all of a stop: hooks, cycles in hand, flushing, saving, closing; a second stop shortens it."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from memory import Memory
from spar import Action, Agent, Context, Experience, Perception, Reflection, tool
from spar.events import ErrorOccurred, RunEnded, StateChanged
from spar.hooks import HookContext
from spar.service.metrics import Metrics
from spar.testing import Hang, RecordingStore, ScriptedActor, ScriptedPlanner, ScriptedSense, VirtualClock
from spar.types import ActionResult, Call

GRACE = 0.5


class Part:
    """A module of every phase that hangs in closing, or says when it closed."""

    def __init__(self, log: list[str], name: str, hang: Hang | None = None) -> None:
        self.log, self.name, self.hang = log, name, hang

    async def __aenter__(self) -> Part:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.log.append(f"closing {self.name}")
        if self.hang is not None:
            await self.hang.wait()
        self.log.append(f"closed {self.name}")

    async def sense(self) -> list[Any]:
        return []

    async def plan(self, perceptions: Any) -> None:
        return None

    async def act(self, action: Any) -> ActionResult:
        return ActionResult(action)


class SlowStore(RecordingStore):
    """A store of which one method hangs."""

    def __init__(self, method: str, hang: Hang) -> None:
        super().__init__()
        self.method, self.hang = method, hang

    async def store(self, experience: Experience) -> None:
        await (self.hang.wait() if self.method == "store" else super().store(experience))

    async def flush(self) -> None:
        await (self.hang.wait() if self.method == "flush" else super().flush())

    async def save(self, key: str, value: Any) -> None:
        await (self.hang.wait() if self.method == "save" and self.is_asked else super().save(key, value))

    is_asked = False


async def stopped(agent: Agent, clock: VirtualClock, deadline: float | None) -> float:
    """Seconds that a stop takes."""
    began = clock.monotonic()
    await agent.stop(deadline)
    assert agent.state == "stopped"
    return round(clock.monotonic() - began, 6)


@pytest.mark.parametrize("ignores", [False, True])
@pytest.mark.parametrize("modules", [("sense",), ("sense", "plan"), ("sense", "plan", "act")])
@pytest.mark.parametrize("deadline", [0.0, 0.3, 5.0])
async def test_modules_that_hang_in_closing_hold_a_stop_no_longer_than_its_deadline_and_a_grace(
    clock: VirtualClock, modules: tuple[str, ...], deadline: float, ignores: bool
) -> None:
    log: list[str] = []
    with Hang(ignore_cancel=ignores) as hang:
        agent = Agent(**{name: Part(log, name, hang) for name in modules}, clock=clock)
        await agent.start()

        assert await stopped(agent, clock, deadline) <= deadline + GRACE

    assert {line for line in log if line.startswith("closing")} == {f"closing {name}" for name in modules}


async def test_without_a_deadline_closing_has_a_bound_of_its_own_for_all_modules_together(clock: VirtualClock) -> None:
    log: list[str] = []
    with Hang() as hang:
        agent = Agent(sense=Part(log, "sense", hang), plan=Part(log, "plan", hang), clock=clock)
        await agent.start()

        assert 10.0 <= await stopped(agent, clock, None) <= 10.0 + GRACE


async def test_modules_close_side_by_side_and_the_memory_after_them(clock: VirtualClock) -> None:
    log: list[str] = []

    class Memory(RecordingStore):
        async def __aexit__(self, *exc: object) -> None:
            log.append("closing memory")

    with Hang() as hang:
        agent = Agent(sense=Part(log, "sense"), plan=Part(log, "plan", hang), act=Part(log, "act"), memory=Memory(),
                      clock=clock)  # fmt: skip
        await agent.start()
        await agent.stop(0.3)

    assert log == ["closing act", "closed act", "closing plan", "closing sense", "closed sense", "closing memory"]


@pytest.mark.parametrize("point", ["service_stop", "session_end"])
async def test_a_hook_that_hangs_holds_a_stop_no_longer(clock: VirtualClock, point: str) -> None:
    agent = Agent(plan=ScriptedPlanner([None]), loop_interval="off", clock=clock)

    @agent.hook(point)
    async def hangs(ctx: HookContext) -> None:
        await clock.sleep(3600)

    await agent.start()
    await agent.wait((await agent.submit("hi", session="a")).run_id)
    await clock.sleep(0.1)

    assert await stopped(agent, clock, 0.3) <= 0.3 + GRACE


async def test_it_is_stopping_before_anybody_is_asked_and_no_further_cycle_begins(clock: VirtualClock) -> None:
    agent = Agent(sense=ScriptedSense(), loop_interval=0.01, clock=clock)
    seen: list[tuple[str, int]] = []

    @agent.hook("service_stop")
    async def asked(ctx: HookContext) -> None:
        seen.append((agent.state, agent.stats.total_cycles))
        await clock.sleep(5)
        seen.append((agent.state, agent.stats.total_cycles))

    await agent.start()
    await clock.sleep(0.055)
    await agent.stop()

    assert [state for state, _ in seen] == ["stopping", "stopping"]
    assert seen[1][1] - seen[0][1] <= 1  # the one in hand


@pytest.mark.parametrize("method", ["store", "flush", "save"])
async def test_a_store_that_hangs_holds_a_stop_no_longer(clock: VirtualClock, method: str) -> None:
    async def reflect(result: ActionResult) -> Reflection:
        return Reflection(result, experiences=[Experience("s")])

    with Hang() as hang:
        store = SlowStore(method, hang)
        agent = Agent(sense=ScriptedSense(["x"]), plan=ScriptedPlanner([[Call("x")]]), act=ScriptedActor(),
                      reflect=reflect, memory=store, clock=clock)  # fmt: skip
        await agent.start()
        await clock.sleep(0.1)
        store.is_asked = True

        assert await stopped(agent, clock, 0.3) <= 0.3 + 2 * GRACE


@pytest.mark.parametrize("what", ["closing", "hook", "cycle"])
async def test_a_second_stop_shortens_the_first(clock: VirtualClock, what: str) -> None:
    log: list[str] = []
    states: list[str] = []
    with Hang() as hang:
        sense = ScriptedSense([hang]) if what == "cycle" else Part(log, "sense", hang if what == "closing" else None)
        agent = Agent(sense=sense, clock=clock, settings={"agent": {"phases": {"sense": {"timeout": 0}}}})
        agent.events.subscribe(StateChanged, lambda event: states.append(event.new))
        if what == "hook":
            agent.hooks.add("service_stop", lambda ctx: hang.wait())
        await agent.start()
        await clock.sleep(0.1)
        began = clock.monotonic()
        first = asyncio.ensure_future(agent.stop())
        await clock.sleep(1.0)

        await agent.stop(0.0)
        await first

        assert round(clock.monotonic() - began, 6) <= 1.0 + 2 * GRACE
    assert states == ["running", "stopping", "stopped"]
    await agent.start()
    await agent.stop()  # a deadline that is over does not count for the next stop


async def test_what_is_left_behind_is_said(clock: VirtualClock) -> None:
    told: list[ErrorOccurred] = []
    with Hang(ignore_cancel=True) as hang:
        agent = Agent(sense=Part([], "sense", hang), clock=clock)
        agent.events.subscribe(ErrorOccurred, told.append)
        await agent.start()
        await agent.stop(1.0)

    assert [(event.phase, event.error.part, event.error.message) for event in told] == [
        ("close", "Part", "Part did not close within 1.5 s")
    ]


# -- what has stopped is let go of: nothing of the process keeps an agent, its runs or its memory


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
    return [weakref.ref(each) for each in (agent, memory, metrics, agent.setup.modules["act"].part)]


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
