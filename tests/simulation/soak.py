"""A year in a few minutes: as many cycles as one likes, with nothing that grows: `python -m tests.simulation.soak`.

The agent, its executor, its reflection and its memory are real, and so are the clock, the threads and the file, which
lies in memory so that the disk is not measured. Each cycle notices something, does something and learns something;
every tenth is part of a run, some fail, some time out. Whoever drives it does not go faster than the memory writes.

`sample` is what must not grow: resident memory, open files, threads, tasks, children, bytes on disk. What is bounded
but fills (ended runs, the queue of the keeper, the log of the database) is full after the first fifth: the slope is
that of the rest, by least squares.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from acting import Executor
from memory import Memory
from spar import Action, Agent, Call, Context, Perception
from spar.protocols.tools import tool

KEPT = 1_000
EVERY = 10_000
PAGE = os.sysconf("SC_PAGE_SIZE")


class Sample(Struct, frozen=True):
    """What stands after so many `cycles`; `memory` and `disk` in bytes."""

    cycles: int
    memory: int
    files: int
    threads: int
    tasks: int
    children: int
    disk: int


class Soaked(Struct, frozen=True):
    """What a soak came to. `slopes` are per 1,000 cycles after the warm-up, of memory and disk in KiB."""

    cycles: int
    seconds: float
    samples: tuple[Sample, ...]
    lost: int
    open_runs: int

    @property
    def warm(self) -> tuple[Sample, ...]:
        return tuple(each for each in self.samples if each.cycles >= self.cycles / 5)

    def slope(self, name: str) -> float:
        unit = 1024.0 if name in ("memory", "disk") else 1.0
        return slope([(each.cycles / 1000.0, getattr(each, name) / unit) for each in self.warm])


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line that fits best; 0 for fewer than two points."""
    if len(points) < 2:
        return 0.0
    x0, y0 = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((x - x0) ** 2 for x, _ in points)
    return sum((x - x0) * (y - y0) for x, y in points) / spread if spread else 0.0


def sample(cycles: int, folder: Path) -> Sample:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    children = Path("/proc/self/task/self/children")
    return Sample(
        cycles,
        pages * PAGE,
        sum(1 for _ in Path("/proc/self/fd").iterdir()),
        threading.active_count(),
        len(asyncio.all_tasks()),
        len(children.read_text().split()) if children.exists() else 0,
        sum(file.stat().st_size for file in folder.iterdir()),
    )


class Treadmill:
    """The agent's world: something to notice in each cycle, as long as there are cycles to make."""

    def __init__(self, cycles: int, folder: Path, told: Callable[[Sample], object]) -> None:
        self._cycles, self._folder, self._told = cycles, folder, told
        self._every = min(EVERY, max(cycles // 20, 1))
        self.samples: list[Sample] = []
        self.over = asyncio.Event()
        self.count = 0
        self.agent: Agent

    async def sense(self) -> list[Perception]:
        self.count += 1
        while self.agent.agent_state.account["waiting"] > KEPT // 2 or self.agent.memory.snapshot()["queued"] > KEPT:
            await asyncio.sleep(0.001)
        if self.count % self._every == 0:
            gc.collect()
            self.samples.append(sample(self.count, self._folder))
            self._told(self.samples[-1])
        if self.count >= self._cycles:
            self.over.set()
            await asyncio.sleep(3600)
        if self.count % 10 == 0:
            await self.agent.submit(f"message {self.count}")
        if self.count % 1000 == 501:
            self.agent.push(Perception(f"pushed {self.count}", session=f"session {self.count}"))
        return [Perception(f"noticed {self.count}", source="treadmill", trust="trusted")]

    async def plan(self, perceptions: Sequence[Perception], context: Context) -> Action | None:
        if self.count % 500 == 7:
            raise RuntimeError("no plan")
        if self.count % 5000 == 9:
            await asyncio.sleep(60)
        output = "done" if context.run is not None else None
        return Action((Call("work", {"number": self.count}),), output=output, perceptions=tuple(perceptions))


@tool(effect="once", timeout=0.02)
async def work(number: int) -> str:
    if number % 100 == 3:
        raise ValueError("it does not work")
    if number % 50 == 4:
        await asyncio.sleep(0.0001)
    if number % 2000 == 5:
        await asyncio.sleep(60)
    return f"worked on {number}"


async def soak(cycles: int, folder: Path, told: Callable[[Sample], object] = lambda sample: None) -> Soaked:
    """Let an agent make so many cycles on a file in this folder."""
    treadmill = Treadmill(cycles, folder, told)
    settings: dict[str, Any] = {
        "agent": {"loop_interval": 0, "phases": {"plan": {"timeout": 0.05}, "sense": {"timeout": 0}}},
        "health": {"failing_after": 1000},
    }
    memory = Memory.open(
        f"sqlite:///{folder}/memory.db", durability="off", keep_cycles=KEPT, keep_experiences=KEPT, keep_bytes=64 << 20
    )
    executor = Executor([work])
    agent = treadmill.agent = Agent(
        sense=treadmill.sense, plan=treadmill.plan, act=executor, memory=memory, settings=settings
    )
    began = time.monotonic()
    async with agent:
        await treadmill.over.wait()
        seconds = time.monotonic() - began
        lost = agent.agent_state.account["lost"]
        await agent.stop(1.0)
    return Soaked(treadmill.count, seconds, tuple(treadmill.samples), lost, agent.runs.open)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="soak", description="Let an agent make many cycles and see what grows.")
    parser.add_argument("cycles", nargs="?", type=int, default=1_000_000)
    given = parser.parse_args(arguments)
    import loguru

    loguru.logger.remove()
    say = sys.stdout.write

    def told(found: Sample) -> None:
        say(
            f"{found.cycles:>9,} cycles: {found.memory / 2**20:7.1f} MiB, {found.files} files, "
            f"{found.threads} threads, {found.tasks} tasks, {found.children} children, "
            f"{found.disk / 2**20:6.1f} MiB on disk\n"
        )
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        soaked = asyncio.run(soak(given.cycles, Path(folder), told))
    names = ("memory", "files", "threads", "tasks", "children", "disk")
    slopes = ", ".join(f"{name} {soaked.slope(name):+.4f}" for name in names)
    is_flat = soaked.slope("memory") <= 1.0 and all(abs(soaked.slope(name)) < 0.01 for name in names[1:5])
    say(
        f"{soaked.cycles:,} cycles in {soaked.seconds:.0f} s ({soaked.cycles / soaked.seconds:,.0f}/s), lost "
        f"{soaked.lost}; per 1,000 cycles after the first fifth (memory and disk in KiB): {slopes}: "
        f"{'flat' if is_flat else 'NOT FLAT'}\n"
    )
    return 0 if is_flat and not soaked.lost else 1


if __name__ == "__main__":
    sys.exit(main())
