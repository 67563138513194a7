"""Seeded simulations: nothing is breached under faults, all is well after them, and a seed says everything."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from memory import Memory
from spar import Agent
from spar.events import LoopCompleted, LoopStarted, RunAccepted, RunEnded, StateChanged
from spar.ports.rows import in_time
from spar.testing import VirtualClock
from spar.threads import Threads
from spar.types import utcnow
from tests.simulation.invariants import Trace, Watch
from tests.simulation.loop import Killed, SeededLoop, SteadyWriter, running
from tests.simulation.service import folder
from tests.simulation.simulate import simulate

#: Seeds that the gate plays, and how many things happen in each: of the first 40 the five that lead to the most kinds
#: of steps, states, events, processes and kills for their time; `make simulate` plays others.
SEEDS, STEPS = (2, 5, 13, 26, 30), 60


# -- the scheduler


def order_of(seed: int | None) -> tuple[list[object], float]:
    """In which order tasks, timers and threads of one moment come, and how long it took."""
    seen: list[object] = []

    async def task(number: int) -> None:
        for turn in range(3):
            await asyncio.sleep(0)
            seen.append((number, turn))
        await asyncio.sleep(1.0)
        seen.append(number)

    async def play() -> float:
        clock = VirtualClock(patience=0.0)
        threads = Threads("probe", clock)

        async def in_thread(number: int) -> None:
            seen.append(f"thread {await threads.run(lambda: number)}")

        await asyncio.gather(*(task(number) for number in range(4)), *(in_thread(number) for number in range(4)))
        return clock.elapsed

    with running(SeededLoop(seed)) as loop:
        return seen, loop.run_until_complete(play())


def test_the_same_seed_gives_the_same_order_and_another_seed_another() -> None:
    assert order_of(1) == order_of(1)
    assert len({str(order_of(seed)) for seed in range(10)}) == 10


def test_without_a_seed_the_order_is_asyncios_own() -> None:
    seen, elapsed = order_of(None)
    assert seen[:4] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert elapsed == 1.0


def test_callbacks_keep_their_order_and_steps_do_not_overtake_them() -> None:
    for seed in range(10):
        seen: list[str] = []

        async def play(seen: list[str] = seen) -> None:
            loop = asyncio.get_running_loop()
            for number in range(5):
                loop.call_soon(seen.append, f"callback {number}")
            await asyncio.gather(*(step(number, seen) for number in range(5)))

        async def step(number: int, seen: list[str]) -> None:
            seen.append(f"step {number}")

        with running(SeededLoop(seed)) as loop:
            loop.run_until_complete(play())
        assert seen[:5] == [f"callback {number}" for number in range(5)]


def test_a_killed_process_says_nothing_of_what_its_tasks_begin_as_they_go(recwarn: pytest.WarningsRecorder) -> None:
    async def ask() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await in_time(asyncio.sleep(0))

    async def live(loop: SeededLoop) -> None:
        asking = asyncio.ensure_future(ask())
        await asyncio.sleep(0)
        loop.killed_at = loop.turns + 1
        await asking

    with running(SeededLoop()) as loop, pytest.raises(Killed):
        loop.run_until_complete(live(loop))
    assert not recwarn.list


def test_a_killed_process_leaves_what_was_committed_and_not_what_was_held_up() -> None:
    with folder() as path:

        async def live(loop: SeededLoop) -> None:
            VirtualClock(patience=0.0)
            memory = Memory.open(f"sqlite:///{path}/memory.db", durability="process")
            writer = SteadyWriter(memory)
            writers.append(writer)
            loop.writers.append(writer)
            await memory.__aenter__()
            await memory.save("first", 1)
            await asyncio.sleep(0)
            writer.hold()
            await memory.save("second", 2)
            loop.killed_at = loop.turns + 5
            while True:
                await asyncio.sleep(1.0)

        writers: list[SteadyWriter] = []
        loop = SeededLoop(1)
        with running(loop):
            with pytest.raises(Killed):
                loop.run_until_complete(live(loop))
            (path / "copy.db").write_bytes((path / "memory.db").read_bytes())
            (path / "copy.db-wal").write_bytes((path / "memory.db-wal").read_bytes())
            writers[0].drop()

        async def look() -> list[object]:
            async with Memory.open(f"sqlite:///{path}/copy.db") as memory:
                return [await memory.load("first"), await memory.load("second")]

        assert asyncio.run(look()) == [1, None]


# -- what is watched


async def told(clock: VirtualClock, tell: Callable[[Agent], None]) -> str:
    agent = Agent(clock=clock)
    watch = Watch(Trace())
    watch.follow(agent)
    tell(agent)
    return "; ".join(watch.breaches)


def two_at_once(agent: Agent) -> None:
    for cycle in "ab":
        agent.events.publish(LoopStarted(cycle_id=cycle, started_at=utcnow()))


def another_ended(agent: Agent) -> None:
    agent.events.publish(LoopStarted(cycle_id="a", started_at=utcnow()))
    agent.events.publish(LoopCompleted(cycle_id="b", completed_at=utcnow(), duration=0.0, outcome="idle"))


def ended_twice(agent: Agent) -> None:
    agent.events.publish(RunAccepted(run_id="r", session="main"))
    for _ in range(2):
        agent.events.publish(RunEnded(run_id="r", status="ok"))


def out_of_nothing(agent: Agent) -> None:
    agent.events.publish(StateChanged(old="created", new="paused"))


def the_same_number(agent: Agent) -> None:
    agent.events.publish(StateChanged(old="created", new="running"))
    agent.events.seq -= 1
    agent.events.publish(StateChanged(old="running", new="pausing"))


@pytest.mark.parametrize(
    ("tell", "breach"),
    [
        (two_at_once, "two cycles at once"),
        (another_ended, "not the one in hand"),
        (ended_twice, "ended 2 times"),
        (out_of_nothing, "created became paused"),
        (the_same_number, "has seq 1 after 1"),
    ],
)
async def test_what_must_not_be_is_noticed(clock: VirtualClock, tell: Callable[[Agent], None], breach: str) -> None:
    assert breach in await told(clock, tell)


# -- the simulations


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_breached_under_faults_and_all_is_well_after_them(seed: int) -> None:
    report = simulate(seed, STEPS)
    trail = "\n".join(report.trace)
    assert not report.trouble, f"{report}\n{trail}"


@pytest.mark.unobserved
def test_the_same_seed_gives_the_same_trace_also_in_another_process() -> None:
    here = simulate(3, STEPS)  # after other tests, while the other process begins with it
    command = [sys.executable, "-m", "tests.simulation.simulate", "3", str(STEPS)]
    there = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )  # fmt: skip
    assert f"seed 3: {here.trouble or 'fine'} · digest {here.digest}" in there.stdout, there.stdout + there.stderr
