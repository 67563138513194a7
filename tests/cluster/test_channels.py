"""Channels of an agent on several nodes: one of them has the channels, whichever ends; each message arrives once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from memory.postgres.cluster.decisions import partition_of
from memory.postgres.store import PostgresMemory
from spar import Action, Agent, Perception
from spar.channels import forwarding
from spar.channels.conversations import OWNER, ChannelAttachment, Channels
from spar.channels.notices import NoticeAttachment
from spar.errors import TransientError
from spar.events import MessageSent
from spar.health.reported import alert_quarantines
from spar.ports.channel import ChannelLimits, ChannelSpec, NotifierSpec, Outgoing
from spar.testing import MemoryChannel
from tests.cluster.test_doors import are_shared_out
from tests.cluster.test_losses import lose
from tests.waiting import until

pytestmark = pytest.mark.process

ALLOW = {"senders": {"allow": [{"senders": ["chat:*"], "trust": "untrusted"}]}}


class Gated(MemoryChannel):
    """Channel whose `send` waits until the test lets it. `sending` are the addresses that it is sending to, `ids` the
    ids of all messages that it was given."""

    def __init__(self) -> None:
        super().__init__(ChannelLimits())
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.sending: list[str] = []
        self.ids: list[str] = []

    async def send(self, message: Outgoing) -> str:
        self.sending.append(message.address)
        self.ids.append(message.id)
        await self.may_send.wait()
        return await super().send(message)


class Teller:
    """Notifier that notes the kinds of the notices that it tells."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def notify(self, title: str, text: str, *, urgency: str = "normal") -> None:
        self.told.append(title)


class World:
    """Nodes of one agent, and the one other side of their channels, which tells how often it was sent something."""

    def __init__(self, url: str, settings: Any) -> None:
        self.channel, self.teller = Gated(), Teller()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.agents: list[Agent] = []
        self._url, self._settings = url, settings

    def agent(self) -> Agent:
        async def plan(perceptions: Sequence[Perception], context: Any) -> Action | None:
            if context.run is None:
                return None
            await self.may_end.wait()
            return Action(output=f"you said {context.run.goal}")

        channels = ChannelAttachment([ChannelSpec("chat", self.channel, max_failures=1)])
        attach = ["senders", channels, NoticeAttachment([NotifierSpec("ops", self.teller)])]
        return Agent(plan=plan, memory=PostgresMemory(self._url, nodes=True), loop_interval="off", name="main",
                     settings=self._settings, attach=attach)  # fmt: skip

    @property
    def holder(self) -> int:
        """Return which agent has the channels."""
        (holder,) = (number for number, agent in enumerate(self.agents) if of(agent).supervisors)
        return holder

    def person(self, owner: int) -> str:
        """Return the address of a person whose conversation this agent has."""
        return next(name for name in (f"p{n}" for n in range(1_000)) if self.agents[owner].core.owns(f"chat:{name}"))

    async def answered(self, address: str, *texts: str) -> None:
        await until(lambda: len(self.channel.texts(address)) >= len(texts))
        assert self.channel.texts(address) == list(texts)
        assert len(set(self.channel.ids)) == len(self.channel.ids)  # nothing was sent twice, nor begun to be


def of(agent: Agent) -> Channels:
    return agent.attachments.get("channels")


@asynccontextmanager
async def world_on(url: str, number: int = 2, settings: Any = ALLOW) -> AsyncIterator[World]:
    """Run agents until all partitions are shared out, and one has the channels."""
    world = World(url, settings)
    async with AsyncExitStack() as stack:
        for _ in range(number):
            world.agents.append(await stack.enter_async_context(world.agent()))
        await until(lambda: are_shared_out(world.agents))
        await until(lambda: all(bool(of(agent).supervisors) == agent.core.owns(OWNER) for agent in world.agents))
        yield world


async def test_a_message_is_accepted_once_and_answered_once_whichever_node_has_the_conversation(url: str) -> None:
    async with world_on(url) as world:
        for owner in (0, 1):
            person = world.person(owner)
            world.channel.say("hello", person, id=f"m{owner}")
            await world.answered(person, "you said hello")
        world.channel.say("hello", world.person(0), id="m0")
        await until(lambda: len(world.channel.accepted) == 3)
        assert [accepted.status for accepted in world.channel.accepted] == ["accepted", "accepted", "known"]
        assert len(world.channel.sent) == 2


@pytest.mark.parametrize("end", ["stop", "drain", "lose"])
async def test_another_node_receives_and_sends_when_the_one_with_the_channels_ends(url: str, end: str) -> None:
    async with world_on(url) as world:
        first = world.holder
        people = [world.person(owner) for owner in (first, 1 - first)]
        world.may_end.clear()
        for person in people:
            world.channel.say("before", person)
        await until(lambda: len(world.channel.acknowledged) == 2)
        if end == "stop":
            stopping = asyncio.ensure_future(world.agents[first].stop())
        elif end == "drain":
            node = world.agents[first].memory.nodes
            await node.drain(node.ownership.token)
        else:
            await asyncio.to_thread(lose, url)
        world.may_end.set()
        if end == "stop":
            await stopping
        if end != "lose":  # one of two that join anew has them
            await until(lambda: bool(of(world.agents[1 - first]).supervisors))
        for person in people:
            world.channel.say("after", person)
        for person in people:
            await world.answered(person, "you said before", "you said after")


async def test_the_node_that_hands_the_channels_over_first_finishes_what_it_is_sending(url: str) -> None:
    async with world_on(url) as world:
        first = world.holder
        person = world.person(1 - first)
        world.channel.may_send.clear()
        world.channel.say("one", person)
        world.channel.say("two", person)
        await until(lambda: bool(world.channel.sending) and len(world.channel.acknowledged) == 2)
        node = world.agents[first].memory.nodes
        await node.drain(node.ownership.token)
        await until(lambda: bool(node.ownership.leaving) and not world.agents[first].core.owns(OWNER))
        await until(lambda: set(node.ownership.partitions) == {partition_of("main", OWNER)})
        assert not of(world.agents[1 - first]).supervisors
        world.channel.may_send.set()
        await world.answered(person, "you said one", "you said two")
        await until(lambda: bool(of(world.agents[1 - first]).supervisors) and not node.ownership.partitions)
        assert world.channel.sending == [person, person]


async def test_a_quarantine_is_an_alert_of_the_node_with_the_channels_alone(url: str) -> None:
    async with world_on(url) as world:
        first, person = world.holder, world.person(1 - world.holder)
        health = world.agents[first].health
        alert_quarantines(world.agents[first].core, health)
        world.channel._fails = [TransientError("no way")]
        world.channel.say("hello", person)
        await until(lambda: "channel" in health.kinds)
        assert [row["attempts"] for row in await of(world.agents[1 - first]).ask("failed")] == [1]
        node = world.agents[first].memory.nodes
        await node.drain(node.ownership.token)
        await until(lambda: bool(world.channel.texts(person)))
        assert "channel" not in health.kinds

        async def has_none_failed() -> bool:  # its row goes a moment after it was sent
            return await of(world.agents[first]).ask("failed") == []

        await until(has_none_failed)


async def test_the_notices_of_all_nodes_are_sent_once_and_are_seen_at_each(url: str) -> None:
    async with world_on(url) as world:
        for number, kind in enumerate(("disk", "memory")):
            world.agents[number].health.judge.alert(kind, "in trouble")
        await until(lambda: len(world.teller.told) == 2)
        assert sorted(title.rpartition(" ")[2] for title in world.teller.told) == ["disk", "memory"]
        for agent in world.agents:

            async def are_counted(agent: Agent = agent) -> bool:  # a moment after they were told
                (state,) = await of(agent).ask("notifiers")
                return (state["name"], state["sent"]) == ("ops", 2)

            await until(are_counted)


async def test_what_is_told_to_a_conversation_at_another_node_is_sent_and_a_run_that_its_end_was_not_left_is_settled(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "LOOKS", 1)
    async with world_on(url) as world:
        other = world.agents[1 - world.holder]
        person = world.person(1 - world.holder)
        world.channel.say("hello", person)
        await world.answered(person, "you said hello")
        other.events.publish(MessageSent(run_id="", session="main", route=f"chat:{person}", text="news"))
        await world.answered(person, "you said hello", "news")
        of(other)._forwarding.close()  # as if the node had ended between the end of the run and its row
        world.channel.say("again", person)
        await world.answered(person, "you said hello", "news", "you said again")


async def test_channels_and_senders_are_asked_at_any_node(url: str) -> None:
    settings = {"senders": {"unknown": "ignore"}}
    async with world_on(url, settings=settings) as world:
        holder, other = world.agents[world.holder], world.agents[1 - world.holder]
        person = world.person(0)
        world.channel.say("let me in", person)
        await until(lambda: len(world.channel.acknowledged) == 1)
        (waiting,) = await other.attachments.get("senders").rows()
        assert sorted(agent.attachments.get("senders").waiting for agent in world.agents) == [0, 1]
        assert waiting.id == f"chat:{person}"
        allowed = await other.attachments.get("senders").ask("allow", sender=waiting.id, by="ada")
        assert [agent.attachments.get("senders").waiting for agent in world.agents] == [0, 0]
        assert (allowed.status, allowed.by) == ("allowed", "ada")
        world.channel.say("hello", person)
        await world.answered(person, "you said hello")
        assert of(other).snapshot()["chat"]["receiving"]["state"] == "elsewhere"

        async def is_counted() -> bool:  # a moment after it was sent
            state = (await of(other).ask("list"))["chat"]
            return (state["receiving"]["state"], state["sent"]) == ("ok", 1)

        await until(is_counted)
        assert await of(other).ask("test", name="chat", address=person) == ""
        with pytest.raises(LookupError, match="no channel named 'mail'; known: chat"):
            await of(other).ask("test", name="mail", address=person)
        with pytest.raises(LookupError, match="was put aside"):
            await of(other).ask("retry", id="nothing")
        assert await of(other).ask("failed") == []
        session = f"chat:{person}"
        rows = other.memory.rows
        assert f"talk/{session}" in await rows(f"{OWNER}:main")
        await other.conversations.resets.forget(session, "ada")
        assert f"talk/{session}" not in await rows(f"{OWNER}:main")
        assert session not in of(holder)._talks
