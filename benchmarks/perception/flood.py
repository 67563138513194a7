"""A flood: 100,000 perceptions a second are offered to an agent for a minute, while people talk with it.

`python -m benchmarks.perception.flood [--seconds 60]`; the table takes ten seconds of it. A thousandth of what is
offered are alerts, each a thing of its own; the rest are lines of a log. The agent is first heard without any flood.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import resource
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.beat import Beat, beating
from benchmarks.harness import as_served
from benchmarks.perception.quality import Quality
from perception.sense import Sense
from spar import Action, Agent, Context
from spar.protocols import SensorContext, SensorSpec
from spar.types import Perception

RATE = 100_000  # offered in a second
TICK = 0.01  # seconds between two bursts
ALERTS = 1_000  # one of so many is an alert
TALK = 0.1  # seconds between two messages


class Source:
    """A sensor that is handed the flood by a thread."""

    def __init__(self) -> None:
        self.push: Any = None

    async def open(self, ctx: SensorContext) -> None:
        self.push = ctx.push


@dataclass
class Heard:
    """Seconds that messages waited for their answer, beats of the loop, and the alerts that were planned for."""

    waits: list[float] = field(default_factory=list)
    beats: Sequence[Beat] = ()
    alerts: int = 0

    @property
    def longest_pause(self) -> float:
        """The longest time that the loop was late by its own fault, in seconds."""
        return max(beat.own for beat in self.beats)


@dataclass
class Flood:
    """The counts of a flood, and the agent before and during it."""

    idle: Heard
    flooded: Heard
    offered: int
    alerts: int
    seconds: float
    shed: dict[str, int]
    grown: float  # megabytes of the process, from the first tenth of the flood to its end


class Planner:
    """Answers messages, and counts alerts."""

    def __init__(self) -> None:
        self.alerts = 0

    async def plan(self, perceptions: list[Perception], context: Context) -> Action | None:
        self.alerts += sum(perception.kind in ("alert", "incident.opened") for perception in perceptions)
        return Action(output="heard") if context.run is not None else None


def measure(data: Path) -> list[Quality]:
    """Measure ten seconds of it; `data` is not needed."""
    flood = asyncio.run(flooded(10.0))
    pause = (flood.flooded.longest_pause - flood.idle.longest_pause) * 1e3
    waits = [statistics.median(heard.waits) * 1e3 for heard in (flood.idle, flood.flooded)]
    shed = ", ".join(f"{number:,} {reason}" for reason, number in flood.shed.items() if number)
    return [
        Quality("flood: share of alerts that came through", flood.flooded.alerts / flood.alerts, 1.0,
                remark=f"{flood.offered / flood.seconds:,.0f}/s offered for {flood.seconds:.0f} s; shed: {shed}"),
        Quality("flood: 50 ms beside the loop's longest pause beyond idle", 50 / max(pause, 1.0), 1.0,
                remark=f"{pause:.0f} ms; grown by {flood.grown:.0f} MB; "
                f"an answer takes {waits[1]:.0f} ms, idle {waits[0]:.0f} ms"),
    ]  # fmt: skip


async def flooded(seconds: float) -> Flood:
    """Hear the agent, as the service has it, for a while without and then with the flood."""
    with as_served():
        return await _flooded(seconds)


async def _flooded(seconds: float) -> Flood:
    source, planner = Source(), Planner()
    agent = Agent(sense=Sense([SensorSpec("flood", source)]), plan=planner, loop_interval=0.05)
    async with agent:
        idle = await _heard(agent, min(seconds, 5.0))
        end, counts = threading.Event(), [0, 0]
        thread = threading.Thread(target=_offer, args=(source.push, end, counts), daemon=True)
        began = time.monotonic()
        thread.start()
        await asyncio.sleep(seconds / 10)
        before = _megabytes()
        during = await _heard(agent, seconds * 0.9)
        end.set()
        await asyncio.to_thread(thread.join)
        took, grown = time.monotonic() - began, _megabytes() - before
        sense: Any = agent.setup.modules["sense"].part
        for _ in range(600):  # what still waits
            await asyncio.sleep(0.1)
            if not sense.snapshot()["sensors"]["flood"]["waiting"]:
                break
        await asyncio.sleep(0.5)
        during.alerts = planner.alerts
        shed = sense.snapshot()["sensors"]["flood"]["shed"]
        pipeline = {
            name: sum(of.get(fate, 0) for fate in ("dropped", "cut")) for name, of in sense.pipeline.counts.items()
        }
    return Flood(idle, during, counts[0], counts[1], took, {**shed, **pipeline}, grown)


def _offer(push: Any, end: threading.Event, counts: list[int]) -> None:
    lines = [
        Perception(f"request {i} for /page/{i % 77} served in {i % 90}ms", source="flood", kind="log.line")
        for i in range(RATE // 10)
    ]
    endless = itertools.cycle(lines)
    began, due = time.monotonic(), 0
    while not end.is_set():
        due = int((time.monotonic() - began) * RATE)
        for number in range(counts[0], min(due, counts[0] + RATE // 10)):
            if number % ALERTS:
                push(next(endless))
            else:
                alert = {"status": "firing", "alert": f"Thing{number}Down"}
                push(Perception(alert, source="flood", kind="alert", key=f"alert {number}"))
                counts[1] += 1
            counts[0] += 1
        end.wait(TICK)


async def _heard(agent: Agent, seconds: float) -> Heard:
    """Talk with the agent for so long."""
    heard = Heard()
    with beating() as beats:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            asked = time.monotonic()
            receipt = await agent.submit("hello", session="chat")
            await agent.wait(receipt.run_id)
            heard.waits.append(time.monotonic() - asked)
            await asyncio.sleep(TALK)
        heard.beats = list(beats)
    return heard


def _megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.perception.flood", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    flood = asyncio.run(flooded(parser.parse_args().seconds))
    print(f"offered        {flood.offered:,} in {flood.seconds:.1f} s, {flood.offered / flood.seconds:,.0f}/s")
    print(f"alerts         {flood.flooded.alerts:,} of {flood.alerts:,} came through")
    for reason, number in flood.shed.items():
        print(f"{reason:<14} {number:,}")
    print(f"grown          {flood.grown:.1f} MB")
    for name, heard in (("idle", flood.idle), ("flooded", flood.flooded)):
        waits = sorted(heard.waits)
        print(f"{name:<14} longest pause {heard.longest_pause * 1e3:.1f} ms; {len(waits)} answers, median "
              f"{statistics.median(waits) * 1e3:.1f} ms, longest {waits[-1] * 1e3:.1f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
