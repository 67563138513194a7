"""Graphs of calls, and the least that carrying them out can cost: a countdown of dependencies on bare asyncio.

A graph is a tuple of dependencies for each call, by number. What carries one out is given a function to call with the
call's number; it checks nothing, tells nobody and stops at the first exception.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio

from benchmarks.harness import Batch

Dependencies = tuple[tuple[int, ...], ...]
Work = Callable[[int], Awaitable[int]]
CarryOut = Callable[[Dependencies, Work], Awaitable[object]]

LONGEST = 0.02  # seconds of a call in a layered graph


async def nothing(number: int) -> int:
    """The call that costs nothing itself."""
    return number


def independent(calls: int) -> Dependencies:
    return ((),) * calls


def chain(calls: int) -> Dependencies:
    return ((), *((number - 1,) for number in range(1, calls)))


def one_writer(calls: int) -> Dependencies:
    """Everybody needs what the first one wrote."""
    return ((), *((0,),) * (calls - 1))


@dataclass(frozen=True, eq=False)
class Layered:
    """A random graph: each call needs one to three of the layer before and sleeps for up to 20 ms."""

    dependencies: Dependencies
    seconds: tuple[float, ...]

    @classmethod
    def of(cls, calls: int, layers: int, seed: int = 7) -> Layered:
        pick = random.Random(seed)
        width = calls // layers
        dependencies: list[tuple[int, ...]] = []
        seconds: list[float] = []
        for number in range(calls):
            below = (number // width - 1) * width
            chosen = {pick.randrange(below, below + width) for _ in range(pick.randint(1, 3))} if below >= 0 else ()
            dependencies.append(tuple(sorted(chosen)))
            seconds.append(pick.uniform(0, LONGEST))
        return cls(tuple(dependencies), tuple(seconds))

    @property
    def critical_path(self) -> float:
        """Seconds of the longest way through: no schedule is shorter."""
        ends: list[float] = []
        for needed, own in zip(self.dependencies, self.seconds, strict=True):
            ends.append(own + max((ends[number] for number in needed), default=0.0))
        return max(ends)

    async def sleep(self, number: int) -> int:
        await asyncio.sleep(self.seconds[number])
        return number


def batch_of(carry_out: CarryOut, graph: Dependencies) -> Batch:
    """A contender whose unit is a call that does nothing: the whole graph as often as it takes."""

    async def batch(calls: int) -> int:
        times = -(-calls // len(graph))
        for _ in range(times):
            await carry_out(graph, nothing)
        return times * len(graph)

    return batch


def makespan_of(carry_out: CarryOut, graph: Layered) -> Batch:
    """A contender whose unit is the whole graph, its calls asleep for their time."""

    async def batch(times: int) -> None:
        for _ in range(times):
            await carry_out(graph.dependencies, graph.sleep)

    return batch


class _Countdown:
    """What all that follows keep: how many dependencies each call still has, and whom its end frees."""

    def __init__(self, graph: Dependencies) -> None:
        self.left = [len(needed) for needed in graph]
        self.users: list[list[int]] = [[] for _ in graph]
        for number, needed in enumerate(graph):
            for other in needed:
                self.users[other].append(number)

    def freed_by(self, number: int) -> list[int]:
        freed = []
        for user in self.users[number]:
            self.left[user] -= 1
            if not self.left[user]:
                freed.append(user)
        return freed


async def task_per_call(graph: Dependencies, work: Work) -> list[Any]:
    """Each call becomes a task once its last dependency has ended."""
    state = _Countdown(graph)
    results: list[Any] = [None] * len(graph)
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    tasks: set[asyncio.Task[None]] = set()
    todo = len(graph)

    async def run(number: int) -> None:
        nonlocal todo
        results[number] = await work(number)
        todo -= 1
        if state.users[number]:
            for user in state.freed_by(number):
                start(user)
        if not todo:
            done.set_result(None)

    def start(number: int) -> None:
        task = loop.create_task(run(number))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for number, needed in enumerate(graph):
        if not needed:
            start(number)
    await done
    return results


async def inline(graph: Dependencies, work: Work) -> list[Any]:
    """The same, but the task of an ended call goes on with the first call that this freed."""
    state = _Countdown(graph)
    results: list[Any] = [None] * len(graph)
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    tasks: set[asyncio.Task[None]] = set()
    todo = len(graph)

    async def run(number: int) -> None:
        nonlocal todo
        while True:
            results[number] = await work(number)
            todo -= 1
            if not todo:
                done.set_result(None)
            freed = state.freed_by(number) if state.users[number] else ()
            if not freed:
                return
            number, *others = freed
            for user in others:
                start(user)

    def start(number: int) -> None:
        task = loop.create_task(run(number))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for number, needed in enumerate(graph):
        if not needed:
            start(number)
    await done
    return results


async def anyio_group(graph: Dependencies, work: Work) -> list[Any]:
    """A task of an anyio group for each call that is ready."""
    state = _Countdown(graph)
    results: list[Any] = [None] * len(graph)
    async with anyio.create_task_group() as group:

        async def run(number: int) -> None:
            results[number] = await work(number)
            for user in state.freed_by(number):
                group.start_soon(run, user)

        for number, needed in enumerate(graph):
            if not needed:
                group.start_soon(run, number)
    return results
