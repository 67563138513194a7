"""Row 13: a call arrives while a hundred others run: the time from when it could start to its first line.

It could start when it was put into the stream, or when what it needs had ended if that was later. Three streams:

    independent   a call every 2 ms that needs nothing
    waiting       a call every 3 ms that needs the one before, which still runs
    silent        pairs: the second needs the first, which ends while the stream says nothing for 40 ms
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from benchmarks import call_peers, table
from benchmarks.calling import executor_of, heard_events, reads
from benchmarks.harness import Effort, frozen
from benchmarks.table import Line, amount, shown
from spar import Call

BUSY, BUSY_FOR = 100, 0.05
clock = time.perf_counter


@dataclass(frozen=True)
class Mode:
    """A stream of `calls`: what the call of a number needs, the seconds that it takes, and those before it is put."""

    calls: int
    needs: Callable[[int], tuple[int, ...]]
    takes: float
    pause: Callable[[int], float]

    def shortened(self) -> Mode:
        return replace(self, calls=6)


MODES = {
    "independent": Mode(150, lambda number: (), 0.0, lambda number: 0.002),
    "waiting": Mode(100, lambda number: (number - 1,) if number else (), 0.004, lambda number: 0.003),
    "silent": Mode(
        40, lambda number: (number - 1,) if number % 2 else (), 0.005, lambda number: 0.04 * (1 - number % 2)
    ),
}


@dataclass
class Stream:
    """One playing of a mode: the calls as they are put, and when what happened."""

    mode: Mode
    queue: asyncio.Queue[int | None] = field(default_factory=asyncio.Queue)
    put: dict[int, float] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)

    @property
    def busy(self) -> range:
        """The numbers of the calls that run all the time."""
        return range(self.mode.calls, self.mode.calls + BUSY)

    def needs(self, number: int) -> tuple[int, ...]:
        return self.mode.needs(number) if number < self.mode.calls else ()

    async def work(self, number: int) -> int:
        """The tool, whoever calls it."""
        self.started[number] = clock()
        if number < self.mode.calls:
            await asyncio.sleep(self.mode.takes)
        else:
            await asyncio.sleep(BUSY_FOR * (number - self.mode.calls + 1) / BUSY)  # so that they do not wake at once
            while len(self.ended) < self.mode.calls:  # noqa: ASYNC110 - timers that go off are the point
                await asyncio.sleep(BUSY_FOR)
        self.ended[number] = clock()
        return number

    async def feed(self) -> None:
        """Put the calls, those first that run all the time."""
        for number in self.busy:
            self.queue.put_nowait(number)
        await asyncio.sleep(2 * BUSY_FOR)
        for number in range(self.mode.calls):
            if pause := self.mode.pause(number):
                await asyncio.sleep(pause)
            self.put[number] = clock()
            self.queue.put_nowait(number)
        await asyncio.sleep(10 * self.mode.takes)
        self.queue.put_nowait(None)

    async def arrivals(self) -> AsyncIterator[int]:
        while (number := await self.queue.get()) is not None:
            yield number

    def latencies(self) -> list[float]:
        """Seconds of each call that the mode is about."""
        seconds = []
        for number, put in self.put.items():
            needed = self.needs(number)
            if needed or self.mode.needs(1) == ():
                ready = max([put, *(self.ended[other] for other in needed)])
                seconds.append(self.started[number] - ready)
        return seconds


Player = Callable[[Stream], Awaitable[object]]


async def raw(stream: Stream) -> None:
    """A countdown that grows while it runs, with a task for each call that is ready."""
    left: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    tasks: set[asyncio.Task[None]] = set()

    async def run(number: int) -> None:
        await stream.work(number)
        for user in users.pop(number, ()):
            left[user] -= 1
            if not left[user]:
                start(user)

    def start(number: int) -> None:
        task = asyncio.get_running_loop().create_task(run(number))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async for number in stream.arrivals():
        blockers = [other for other in stream.needs(number) if other not in stream.ended]
        left[number] = len(blockers)
        for other in blockers:
            users.setdefault(other, []).append(number)
        if not blockers:
            start(number)
    while tasks:
        await asyncio.wait(tasks)


async def spar(stream: Stream) -> None:
    """Parameters validated, results written to the state, references read, three events of each call received."""
    events, _ = heard_events()

    async def calls() -> AsyncIterator[Call]:
        async for number in stream.arrivals():
            yield Call("work", {"number": number, **reads(stream.needs(number))}, output_path=f"†state.v{number}")

    result = await executor_of(stream.work, events).run(calls())
    if result.status != "ok":
        raise RuntimeError(f"the run came back {result.status}: {result.errors[:1]}")


def llmcompiler() -> Player:
    """Raises: ImportError without a checkout."""
    unit = call_peers.scheduling_unit()

    async def play(stream: Stream) -> None:
        queue: asyncio.Queue[object] = asyncio.Queue()
        fetching = asyncio.create_task(unit.TaskFetchingUnit().aschedule(queue, None))
        async for number in stream.arrivals():
            queue.put_nowait(call_peers.task_of(unit, number, stream.needs(number), stream.work))
        queue.put_nowait(None)
        await fetching

    return play


async def measure(effort: Effort) -> list[Line]:
    players: dict[str, Player] = {"raw": raw, "spar": spar}
    missing = ""
    try:
        players["LLMCompiler"] = llmcompiler()
    except ImportError as error:
        missing = f"not installed ({error.name})"
    lines: list[Line] = []
    for title, mode in MODES.items():
        quick = effort.is_quick
        rounds = await played(players, mode.shortened() if quick else mode, 1 if quick else 5)
        lines += lines_of(f"streamed call, {title}", rounds, missing, is_silent=title == "silent")
    return lines


async def played(players: Mapping[str, Player], mode: Mode, rounds: int) -> dict[str, list[list[float]]]:
    """The latencies of each player in each round."""
    latencies: dict[str, list[list[float]]] = {name: [] for name in players}
    order = random.Random(1)
    with frozen():
        for _ in range(rounds):
            for name in order.sample(list(players), len(players)):
                gc.collect()
                stream = Stream(mode)
                async with asyncio.TaskGroup() as group:
                    group.create_task(stream.feed())
                    await players[name](stream)
                latencies[name].append(sorted(stream.latencies()))
    return latencies


def lines_of(title: str, rounds: dict[str, list[list[float]]], missing: str, *, is_silent: bool) -> list[Line]:
    p50 = {name: [statistics.median(each) for each in of] for name, of in rounds.items()}
    p99 = {name: at(0.99, sorted(chain.from_iterable(of))) for name, of in rounds.items()}
    both = {
        name: f"{table.number(statistics.median(p50[name]) * 1e6)} / {table.number(p99[name] * 1e6)} µs"
        for name in rounds
    }

    def against(name: str, label: str, owed: float | None = None, moonshot: float | None = None) -> Line:
        is_limit = name == "raw"
        name_of_line = f"{title}, p50 / p99"
        line = Line(
            13, name_of_line, both["spar"], label, owed=owed, moonshot=moonshot, remark=missing, is_limit=is_limit
        )
        if name not in rounds:
            return line
        ratios = [own / other for own, other in zip(p50["spar"], p50[name], strict=True)]
        spread = f"{shown(min(ratios))}–{shown(max(ratios))}"
        return replace(line, other=both[name], value=statistics.median(ratios), spread=spread)

    return [
        against("raw", "raw countdown", owed=2.2, moonshot=1.6),
        amount(13, f"{title}, p99", p99["spar"] * 1e6, "µs", owed=1000, moonshot=250),
        against("LLMCompiler", "LLMCompiler aschedule", owed=0.01 if is_silent else None),
    ]


def at(share: float, ordered: list[float]) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
