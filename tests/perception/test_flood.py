"""A flood is bounded: what matters comes through, what does not is counted by reason, and people are heard."""

from __future__ import annotations

import asyncio
from typing import Any

from perception.sense import BUFFER, Sense
from spar import Action, Agent, Context
from spar.protocols import SensorContext, SensorSpec
from spar.testing import VirtualClock
from spar.types import Perception

LINES, ALERTS = 60_000, 60


class Flood:
    """Hands over all at once, as a thread would between two turns of the loop."""

    async def open(self, ctx: SensorContext) -> None:
        self.context = ctx

    def pour(self, begin: int) -> None:
        for number in range(begin, begin + LINES // ALERTS):
            self.context.push(Perception(f"request {number} served in {number % 90}ms", kind="log.line"))
        self.context.push(Perception({"status": "firing", "alert": f"Thing{begin}Down"}, kind="alert", key=str(begin)))


class Planner:
    def __init__(self) -> None:
        self.alerts: list[str] = []
        self.lines = 0

    async def plan(self, perceptions: list[Perception], context: Context) -> Action | None:
        self.alerts += [each.content["alert"] for each in perceptions if each.kind in ("alert", "incident.opened")]
        self.lines += sum(each.kind == "log.line" for each in perceptions)
        return Action(output="heard") if context.run is not None else None


class Early:
    """Pushes as soon as it is open, and never again."""

    async def open(self, ctx: SensorContext) -> None:
        asyncio.get_running_loop().call_soon(self._push, ctx)

    def _push(self, ctx: SensorContext) -> None:
        for number in range(3):
            ctx.push(Perception(f"early {number}", kind="note"))


async def test_what_a_sensor_pushes_before_there_are_sessions_begins_a_cycle(clock: VirtualClock) -> None:
    seen: list[str] = []

    async def plan(perceptions: list[Perception], context: Context) -> Action | None:
        seen.extend(each.text for each in perceptions)
        return None

    async with Agent(sense=Sense([SensorSpec("early", Early())]), plan=plan, clock=clock, loop_interval="off"):
        await clock.sleep(5)
    assert sorted(seen) == ["early 0", "early 1", "early 2"]


async def test_what_matters_comes_through_and_all_else_is_counted_by_reason(clock: VirtualClock) -> None:
    flood, planner = Flood(), Planner()
    sense = Sense([SensorSpec("flood", flood)])
    agent = Agent(sense=sense, plan=planner, clock=clock, loop_interval=0.1)
    async with agent:
        for begin in range(0, LINES, LINES // ALERTS):
            flood.pour(begin)
            assert sense.snapshot()["sensors"]["flood"]["waiting"] <= 2 * BUFFER
            if begin == LINES // 2:
                receipt = await agent.submit("are you there?", session="chat")
        answer = await agent.wait(receipt.run_id)
        await settled(sense)
        await asyncio.sleep(1.0)

    counts: dict[str, Any] = sense.snapshot()["pipeline"]
    shed = sense.snapshot()["sensors"]["flood"]["shed"]
    assert answer.output == "heard"
    assert len(planner.alerts) == len(set(planner.alerts)) == ALERTS
    assert shed["refused"] > 0
    measured = counts["anomaly"]["measured"]
    assert shed["refused"] + counts["templates"]["dropped"] + planner.lines == LINES
    assert measured == counts["templates"].get("added", 0)


async def settled(sense: Sense) -> None:
    while sense.snapshot()["sensors"]["flood"]["waiting"]:
        await asyncio.sleep(0.1)
