"""Channels with a store that only loads and saves values: no row is lost, and no answer is sent twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from spar import Action, Agent, Perception
from spar.channels.conversations import OWNER, ChannelAttachment
from spar.ports.channel import ChannelSpec
from spar.ports.small_rows import OneValueRows
from spar.records.journal import RowChange
from spar.testing import MemoryChannel, VirtualClock

PEOPLE = ("alice", "bob", "carol")
SETTINGS = {"senders": {"allow": [{"senders": [f"chat:{name}" for name in PEOPLE]}]}}


class SlowStore:
    """A store of values by key, each use of which takes ten milliseconds."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.in_use: set[str] = set()

    async def store(self, experience: Any) -> None:
        await asyncio.sleep(0.01)

    async def load(self, key: str) -> Any:
        assert key not in self.in_use, "it is read while it is written"
        value = deepcopy(self.values.get(key))
        await asyncio.sleep(0.01)
        return value

    async def save(self, key: str, value: Any) -> None:
        self.in_use.add(key)
        value = deepcopy(value)
        await asyncio.sleep(0.01)
        self.values[key] = value
        self.in_use.discard(key)


async def echo(perceptions: Sequence[Perception], context: Any) -> Action | None:
    return Action(output=f"you said {context.run.goal}") if context.run else None


def agent_with(store: SlowStore, channel: MemoryChannel, clock: VirtualClock) -> Agent:
    attach = ["senders", ChannelAttachment([ChannelSpec("chat", channel)])]
    agent = Agent(plan=echo, memory=store, clock=clock, settings=SETTINGS, attach=attach)
    return agent


async def test_no_row_of_a_channel_is_lost_and_no_answer_is_sent_again(clock: VirtualClock) -> None:
    store, channel, later = SlowStore(), MemoryChannel(), MemoryChannel()
    async with agent_with(store, channel, clock):
        for name in PEOPLE:
            channel.say("hi", address=name)
        await clock.sleep(5.0)
    rows = [key.partition("/")[0] for key in store.values[f"{OWNER}:main"]]
    assert (rows.count("run"), rows.count("talk"), len(rows)) == (3, 3, 6)
    assert len(channel.sent) == 3

    async with agent_with(store, later, clock):
        await clock.sleep(5.0)
    assert later.sent == []


async def test_a_change_under_way_is_written_before_the_agent_has_stopped(clock: VirtualClock) -> None:
    store = SlowStore()
    agent = agent_with(store, MemoryChannel(), clock)
    async with agent:
        rows = agent.agent_state.rows_of("module")
        assert rows is not None
        for number in range(20):
            rows.keep(str(number), number)
    assert store.values["module:main"] == {str(number): number for number in range(20)}


async def test_the_changes_of_one_owner_are_made_in_turn_whoever_makes_them(clock: VirtualClock) -> None:
    store = SlowStore()
    parts = OneValueRows(store), OneValueRows(store)  # such as a sensor and its replacement
    changes = [RowChange(owner, str(number), number) for number in range(10) for owner in ("one", "two")]
    tasks = [asyncio.create_task(parts[number % 3 % 2].change([change])) for number, change in enumerate(changes)]
    await asyncio.sleep(0)
    assert await parts[0].rows("one") == {str(number): number for number in range(10)}
    assert clock.elapsed < 0.3  # two owners do not wait for one another
    await asyncio.gather(*tasks)
    assert store.values == {owner: {str(number): number for number in range(10)} for owner in ("one", "two")}
