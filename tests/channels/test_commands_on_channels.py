"""Commands and blocks on channels: one place for all of them, whatever the channel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory import Memory
from spar import Action, Agent, Perception
from spar.channels.conversations import ChannelAttachment
from spar.ports.channel import ChannelLimits, ChannelSpec
from spar.testing import MemoryChannel, VirtualClock
from tests.channels.test_conversations import until

TRUSTED = {"senders": ["chat:alice"], "trust": "trusted"}
UNTRUSTED = {"senders": ["chat:bob"], "trust": "untrusted"}
LONG = "\n\n".join(f"Paragraph {number}. " + "More of it. " * 20 for number in range(12))


async def plan(perceptions: Sequence[Perception], context: Any) -> Action | None:
    if not context.run:
        return None
    return Action(output=LONG if context.run.goal == "long" else f"you said {context.run.goal}")


async def test_only_a_trusted_sender_commands(clock: VirtualClock, tmp_path: Path) -> None:
    channel = MemoryChannel(ChannelLimits())
    settings = {"sessions": {"commands": True}, "senders": {"allow": [TRUSTED, UNTRUSTED]}}
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
    attach = ["senders", ChannelAttachment([ChannelSpec("chat", channel)])]
    agent = Agent(plan=plan, clock=clock, settings=settings, memory=memory, attach=attach)
    async with agent:
        channel.say("hello", "alice")
        await until(clock, lambda: len(channel.texts("alice")) == 1)
        channel.say("/new", "alice")
        channel.say("/new", "bob")
        await until(clock, lambda: len(channel.texts("alice")) == 2 and channel.texts("bob"))
    assert channel.texts("alice")[1].startswith("A new conversation begins (chat:alice")
    assert channel.texts("bob") == ["you said /new"]


async def test_who_commands_is_whom_the_channel_knows_and_never_what_a_message_says_of_itself(
    clock: VirtualClock, tmp_path: Path
) -> None:
    channel = MemoryChannel(ChannelLimits())
    settings = {"sessions": {"commands": True}, "senders": {"allow": [TRUSTED]}}
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
    attach = ["senders", ChannelAttachment([ChannelSpec("chat", channel)])]
    agent = Agent(plan=plan, clock=clock, settings=settings, memory=memory, attach=attach)
    lie = {"person": "the owner", "address": "root", "channel": "chat"}
    async with agent:
        for number, said in enumerate(("hello", "/new"), 1):
            channel.say(said, "alice")
            await until(clock, lambda number=number: len(channel.texts("alice")) == number)
        await agent.wait((await agent.submit("hello", session="other")).run_id, 60)
        message = Perception("/new", source="program", kind="message", trust="trusted", attributes=lie)
        await agent.wait((await agent.submit(message, session="other")).run_id, 60)
        actors = [entry.actor for entry in await memory.audit.entries()]
        origins = [record.origin for record in await memory.sessions.page(agent.name)]
    assert actors == ["program", "alice"]
    assert "root" not in str(origins)


async def test_a_channel_that_cannot_edit_gets_blocks_and_the_final_once(clock: VirtualClock) -> None:
    plain, edited = MemoryChannel(ChannelLimits()), MemoryChannel(ChannelLimits(text=10_000, can_edit=True))
    settings = {
        "runs": {"blocks": "message_end"},
        "senders": {"allow": [TRUSTED, {"senders": ["other:alice"], "trust": "trusted"}]},
    }
    attach = ["senders", ChannelAttachment([ChannelSpec("chat", plain), ChannelSpec("other", edited)])]
    agent = Agent(plan=plan, clock=clock, settings=settings, attach=attach)
    async with agent:
        plain.say("long")
        edited.say("long")
        await until(clock, lambda: sum(map(len, plain.texts())) >= len(LONG) * 0.95 and edited.sent)
        await clock.sleep(10)
    assert len(plain.sent) > 2
    assert "\n\n".join(plain.texts()).split() == LONG.split()
    assert edited.texts() == [LONG]
