"""Channels with a store that only loads and saves values: no row is lost, and no answer is sent twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

from spar import Action, Agent, Perception
from spar.channels.conversations import OWNER, ChannelAttachment
from spar.channels.forwarding import Forwarding
from spar.errors import TransientError
from spar.ports.channel import ChannelSpec
from spar.ports.rows import OneValueRows
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


# -- what nodes leave to the one with the channels: each row is dealt with, whatever becomes of another one


class Rows:
    """Rows of other nodes; the first look at them fails."""

    def __init__(self, **rows: Any) -> None:
        self.rows, self.looks = rows, 0

    async def list(self) -> dict[str, Any]:
        self.looks += 1
        if self.looks == 1:
            raise TransientError("the database cannot be reached")
        return dict(self.rows)

    def drop(self, key: str) -> None:
        del self.rows[key]


class Answers:
    """Answers that take each end of a run but one."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def end(self, run_id: str, reply: str | None, into: str) -> None:
        self.ended.append(run_id)
        if run_id == "bad":
            raise ValueError("nobody knows why")

    async def settle_ended(self, before: set[str]) -> set[str]:
        return set()


async def test_a_row_that_fails_keeps_no_other_one_from_its_way(clock: VirtualClock) -> None:
    rows, answers = Rows(a={"run_id": "bad"}, b={"run_id": 7}, c={"run_id": "good"}), Answers()
    core: Any = SimpleNamespace(clock=clock, events=SimpleNamespace(subscribe=None))
    forwarding = Forwarding(core, None, (), rows, lambda: True)  # type: ignore[arg-type]
    taking = asyncio.create_task(forwarding.take(answers, {}))  # type: ignore[arg-type]
    await clock.sleep(10)
    rows.rows["d"] = {"run_id": "later"}
    await clock.sleep(10)
    taking.cancel()

    assert answers.ended == ["bad", "good", "later"]
    assert rows.rows.keys() == {"a", "b"}  # what cannot be read stays, too
