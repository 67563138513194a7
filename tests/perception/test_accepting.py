"""What a sensor accepts for somebody else is on disk before that one is told."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from perception import Sense
from perception.sense import BUFFER
from spar import Action, Agent, Context, Perception
from spar.agent.submission import INBOX_LIMIT, SOURCE_LIMIT
from spar.errors import InboxFullError
from spar.protocols import SensorContext, SensorSpec
from spar.testing import VirtualClock
from tests.waiting import until


class Webhook:
    """A sensor whose senders forget what they were told has arrived."""

    context: SensorContext

    async def open(self, ctx: SensorContext) -> None:
        self.context = ctx


async def test_what_was_accepted_is_there_after_the_process_has_died(tmp_path: Path) -> None:
    hook, seen = Webhook(), list[str]()

    async def plan(perceptions: list[Perception]) -> None:
        seen.extend(perception.text for perception in perceptions)

    def agent(folder: Path, sensor: Webhook) -> Agent:
        memory = Memory.open(f"sqlite:///{folder}/m.db")
        return Agent(sense=Sense([SensorSpec("hook", sensor)]), plan=plan, loop_interval="off", memory=memory)

    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    async with agent(before, hook) as first:
        await first.pause()
        alert = Perception("disk full")
        assert hook.context.push(Perception("only pushed"))
        assert await hook.context.accept(alert)
        assert not await hook.context.accept(alert)
        shutil.copytree(before, after)  # what a process leaves that dies now
        assert seen == []
    async with agent(after, Webhook()) as second:
        await second.resume()  # the pause is on disk, too
        await until(lambda: seen)

    assert seen[-1:] == ["disk full"]


async def test_many_at_once_of_one_source_are_not_more_than_may_wait(tmp_path: Path) -> None:
    async def plan(perceptions: list[Perception]) -> None:
        return None

    memory = Memory.open(f"sqlite:///{tmp_path}/m.db")
    async with Agent(sense=Sense(), plan=plan, loop_interval="off", memory=memory) as agent:
        await agent.pause()
        alerts = [Perception(f"alert {number}", source="hook") for number in range(SOURCE_LIMIT + 50)]
        taken = await asyncio.gather(*(agent.accept(each) for each in alerts), return_exceptions=True)

    assert sum(each is True for each in taken) == SOURCE_LIMIT
    assert all(isinstance(each, (bool, InboxFullError)) for each in taken)


@pytest.mark.parametrize("has_memory", [True, False])
async def test_a_perception_is_known_by_its_id_and_by_its_key(tmp_path: Path, has_memory: bool) -> None:
    memory = Memory.open(f"sqlite:///{tmp_path}/m.db") if has_memory else None
    hook = Webhook()
    async with Agent(sense=Sense([SensorSpec("hook", hook)]), loop_interval="off", memory=memory):
        accept, first = hook.context.accept, Perception("a")

        assert await accept(first, key="k")
        assert not await accept(first)
        assert not await accept(first, key="l")
        assert not await accept(Perception("b"), key="k")
        assert await accept(Perception("b"), key="l")  # what was refused has left nothing
        assert await accept(Perception("b"))


async def test_without_a_journal_what_finds_no_room_is_refused_and_not_said_to_be_known() -> None:
    seen = 0

    async def plan(perceptions: list[Perception]) -> None:
        nonlocal seen
        seen += len(perceptions)

    async with Agent(sense=Sense(), plan=plan, loop_interval="off") as agent:
        await agent.pause()
        for number in range(INBOX_LIMIT):
            assert agent.push(Perception(f"{number}"))
        late = Perception("one more")
        with pytest.raises(InboxFullError):
            await agent.accept(late)
        await agent.resume()
        while seen < INBOX_LIMIT:
            await asyncio.sleep(0)
        assert await agent.accept(late)


# -- a flood is bounded: what matters comes through, what does not is counted by reason, and people are heard


LINES, ALERTS = 30_000, 60


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
