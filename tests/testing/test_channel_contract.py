"""Contract of channels: the one in memory keeps it, and each duty that is broken is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from spar.errors import ContractError, PermanentError, TransientError
from spar.ports.channel import ChannelContext, ChannelLimits, ChannelSpec, Outgoing
from spar.testing import MemoryChannel, check_channel


def _say(channel: MemoryChannel, text: str) -> None:
    channel.say(text)


async def test_channel_in_memory_keeps_the_contract() -> None:
    await check_channel(
        MemoryChannel,
        provoke=_say,
        arrived=lambda channel: channel.texts(),
        make_unreachable=lambda: MemoryChannel(fails=[TransientError("down")] * 10),
    )


async def test_a_message_that_was_never_sent_cannot_be_edited() -> None:
    channel = MemoryChannel()
    with pytest.raises(PermanentError, match="no message 'm7' was sent; the last is none"):
        await channel.edit("m7", Outgoing("2", "alice", "new"))
    reference = await channel.send(Outgoing("1", "alice", "old"))
    await channel.edit(reference, Outgoing("2", "alice", "new"))

    assert channel.texts() == ["new"]


class Deaf(MemoryChannel):
    """Takes nothing in."""

    async def receive(self, context: ChannelContext) -> None:
        await asyncio.Event().wait()


class Forgetful(MemoryChannel):
    """Acknowledges before it is on disk."""

    async def receive(self, context: ChannelContext) -> None:
        while True:
            for message in list(self._waiting.values()):
                self._waiting.clear()
                await context.accept(message)
            await asyncio.sleep(0.01)


class Deceiving(MemoryChannel):
    """Says that it has sent what it has not."""

    async def send(self, message: Outgoing) -> str:
        return "x"

    async def edit(self, reference: str, message: Outgoing) -> None:
        self.edits += 1


class Speechless(MemoryChannel):
    """Returns no reference."""

    async def send(self, message: Outgoing) -> Any:
        await super().send(message)


class Deathless(MemoryChannel):
    """Goes on when it is cancelled."""

    async def receive(self, context: ChannelContext) -> None:
        for _ in range(40):
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue


@pytest.mark.parametrize(
    ("channel", "told"),
    [
        (Deaf, "must offer a message that was written"),
        (Forgetful, "must offer a message that was not acknowledged"),
        (Deceiving, "what is sent must arrive"),
        (Speechless, "must return a text"),
        (Deathless, "must let its cancellation through"),
    ],
)
async def test_broken_duty_is_told(channel: type[MemoryChannel], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        await check_channel(
            channel, provoke=_say, arrived=lambda each: [m.text for m in each.sent], limit=0.3, grace=0.1
        )


async def test_limits_are_judged() -> None:
    with pytest.raises(AssertionError, match=r"limits\.text"):
        await check_channel(lambda: MemoryChannel(ChannelLimits(text=0)))


def test_a_spec_names_what_is_no_channel() -> None:
    no_channel: Any = object()
    with pytest.raises(ContractError, match="receive, send, edit, typing, found"):
        ChannelSpec("x", no_channel)
