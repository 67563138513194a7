"""What a sensor accepts for somebody else is on disk before that one is told."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from memory import Memory
from perception import Sense
from spar import Agent, Perception
from spar.agent.submission import SOURCE_LIMIT
from spar.errors import InboxFullError
from spar.protocols import SensorContext, SensorSpec


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
        while not seen:
            await asyncio.sleep(0.005)

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
