"""The contract of channels, and a channel in memory.

`await check_channel(MyChannel)` holds one to what `spar.ports.channel` says of it.
A test says what people do on the other side: `provoke` has them write, `arrived` reads what they were sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from msgspec import Struct

from spar.clock import Clock
from spar.errors import TransientError
from spar.ids import new_id
from spar.ports.channel import (
    LONGEST_ADDRESS,
    LONGEST_ID,
    METHODS,
    Accepted,
    ChannelContext,
    ChannelLimits,
    Incoming,
    Outgoing,
)
from spar.protocols import Home
from spar.testing.duties import ODD_TEXTS, Harness, are_json, described, is_duration, owed

Answer = Literal["keep", "fail", "hang"]


class SentMessage(Struct):
    """A message as people read it: its text is the last one that was put there."""

    reference: str
    address: str
    text: str
    message: Outgoing


class MemoryChannel:
    """A channel without another side: a test writes by `say` and reads `sent`.

    A message that was not acknowledged is offered again when receiving begins anew. `acknowledged` are the ids of those
    that were, `typed` the addresses that were shown that the agent writes, `edits` counts changes.

    Args: limits: its limits; fails: what `send` raises, one for each call, None for one that succeeds; after the list
        all succeed.
    """

    def __init__(self, limits: ChannelLimits | None = None, fails: Sequence[Exception | None] = ()) -> None:
        self._limits = limits or ChannelLimits(can_edit=True, edit_every=0.05, typing_every=1.0)
        self._fails = list(fails)
        self._waiting: dict[str, Incoming] = {}
        self._news = asyncio.Event()
        self.sent: list[SentMessage] = []
        self.acknowledged: list[str] = []
        self.accepted: list[Accepted] = []
        self.typed: list[str] = []
        self.attempts = self.edits = self.opened = 0

    @property
    def limits(self) -> ChannelLimits:
        """The limits of the channel."""
        return self._limits

    def say(self, text: str, address: str = "alice", *, id: str = "", **more: Any) -> str:
        """Have somebody write. Returns: the id of the message."""
        message = Incoming(id or new_id(), address, text, **more)
        self._waiting[message.id] = message
        self._news.set()
        return message.id

    def texts(self, address: str = "alice") -> list[str]:
        """Return what somebody has been sent, as it reads now."""
        return [each.text for each in self.sent if each.address == address]

    async def receive(self, context: ChannelContext) -> None:
        """Hand over what waits, and what comes."""
        self.opened += 1
        context.ready()
        while True:
            self._news.clear()
            for message in list(self._waiting.values()):
                self.accepted.append(await context.accept(message))
                self._waiting.pop(message.id, None)
                self.acknowledged.append(message.id)
            if not self._waiting:
                await self._news.wait()

    async def send(self, message: Outgoing) -> str:
        """Send a message; one whose id was sent before is passed on once."""
        self.attempts += 1
        await asyncio.sleep(0)
        error = self._fails.pop(0) if self._fails else None
        if error is not None:
            raise error
        known = next((each for each in self.sent if each.message.id == message.id), None)
        if known is not None:
            return known.reference
        self.sent.append(SentMessage(f"m{len(self.sent)}", message.address, message.text, message))
        return self.sent[-1].reference

    async def edit(self, reference: str, message: Outgoing) -> None:
        """Put another text in the place of one that was sent. Raises: LookupError."""
        await asyncio.sleep(0)
        self.edits += 1
        next(each for each in self.sent if each.reference == reference).text = message.text

    async def typing(self, address: str) -> None:
        """Show that the agent is writing."""
        self.typed.append(address)


async def check_channel(
    make_channel: Callable[[], Any],
    *,
    address: str = "alice",
    provoke: Callable[[Any, str], Any] | None = None,
    arrived: Callable[[Any], Any] | None = None,
    make_unreachable: Callable[[], Any] | None = None,
    texts: Sequence[str] = ODD_TEXTS[1:],
    home: Home | None = None,
    clock: Clock | None = None,
    limit: float = 5.0,
    grace: float = 0.5,
) -> None:
    """Hold a channel to `spar.ports.channel.Channel`. The factory opens the same other side each time.

    Args:
        address: somebody whom it can send to.
        provoke: has somebody write a text, given the channel; arrived: the texts that people were sent, given it.
        make_unreachable: makes a channel whose messages cannot arrive.
        texts: what it must be able to send.
        home: the folders that its context names.
    """
    harness = Harness("channel", clock, limit, grace)
    async with harness.opened(make_channel) as channel:
        limits = _legal(channel)
        await _receives(harness, channel, provoke, home)

    async with harness.opened(make_channel) as channel:

        async def send(text: str, id: str = "") -> str:
            message = Outgoing(id or new_id(), address, text[: limits.text] or "-")
            reference = await harness.value(f"channel.send() of {text[:30]!r}", harness.run(channel.send, message))
            owed(isinstance(reference, str), f"channel.send() must return a text, found {described(reference)}")
            assert isinstance(reference, str)
            return reference

        for text in texts:
            await send(text)
        mark = f"mark {new_id()}"
        reference = await send(mark, mark)
        await send(mark, mark)  # as after a crash
        await harness.cut("channel.send()", lambda: harness.run(channel.send, Outgoing(new_id(), address, "cut")))
        if limits.can_edit:
            owed(reference, "channel.send() of a channel that can edit must return a reference")
            edited = Outgoing(mark, address, f"edited {mark}")
            await harness.value("channel.edit()", harness.run(channel.edit, reference, edited))
            mark = edited.text
        if arrived is not None:
            found = [str(each) for each in await harness.value("arrived()", harness.run(arrived, channel))]
            owed(any(mark in each for each in found), f"what is sent must arrive, but {mark!r} did not")
        if limits.typing_every:
            await harness.value("channel.typing()", harness.run(channel.typing, address))
    if make_unreachable is not None:
        async with harness.opened(make_unreachable) as channel:
            _, error = await harness.outcome("send()", harness.run(channel.send, Outgoing(new_id(), address, "lost")))
            owed(error, "channel.send() must raise when the message cannot have arrived")
    await harness.is_clean()


def _legal(channel: Any) -> ChannelLimits:
    lacking = [each for each in METHODS if not callable(getattr(channel, each, None))]
    owed(not lacking, f"a channel must have {', '.join(METHODS)}, but has no {', '.join(lacking)}")
    limits = channel.limits
    owed(isinstance(limits, ChannelLimits), f"channel.limits must be ChannelLimits, found {described(limits)}")
    assert isinstance(limits, ChannelLimits)
    owed(limits.text >= 1, f"limits.text must be 1 character at least, found {limits.text!r}")
    for name in ("edit_every", "typing_every", "every"):
        owed(is_duration(getattr(limits, name)), f"limits.{name} must be seconds from 0, found {limits!r}")
    return limits


async def _receives(harness: Harness, channel: Any, provoke: Callable[[Any, str], Any] | None,
                    home: Home | None) -> None:  # fmt: skip
    """Receiving ends when it is cancelled; a message that was not acknowledged comes again, as the same one."""
    offered: list[Incoming] = []
    how: Answer = "fail"

    async def accept(message: Incoming) -> Accepted:
        _legal_message(message)
        offered.append(message)
        if how == "fail":
            raise TransientError("no room")
        if how == "hang":
            await asyncio.Event().wait()
        return Accepted("accepted", new_id())

    context = ChannelContext("contract", harness.clock, accept, home=home)
    await harness.cut("channel.receive()", lambda: channel.receive(context))
    if provoke is None:
        return
    text = f"hello {new_id()}"
    await harness.value("provoke()", harness.run(provoke, channel, text))
    ids: list[str] = []
    answers: tuple[Answer, ...] = ("fail", "hang", "keep")
    for how in answers:
        offered.clear()
        async with _receiving(harness, channel, context):
            why = "a message that was written" if how == "fail" else "a message that was not acknowledged"
            await _until(harness, lambda: any(text in each.text for each in offered), f"must offer {why}")
        ids += [each.id for each in offered if text in each.text]
    owed(len(set(ids)) == 1, f"a message must have the same id each time that it is offered, found {sorted(set(ids))}")


@asynccontextmanager
async def _receiving(harness: Harness, channel: Any, context: ChannelContext) -> AsyncIterator[None]:
    """Receive as a supervisor does it: begun anew when it fails, cancelled at the end."""

    async def kept() -> None:
        while True:
            with suppress(Exception):
                await channel.receive(context)
            await harness.clock.sleep(0.05)

    task = asyncio.ensure_future(kept())
    try:
        yield
    finally:
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=harness.grace)
        owed(done, f"channel.receive() must end within {harness.grace:g} s of its cancellation")


async def _until(harness: Harness, is_so: Callable[[], bool], duty: str) -> None:
    ends_at = harness.clock.monotonic() + harness.limit
    while not is_so():
        owed(harness.clock.monotonic() < ends_at, f"channel.receive() {duty}, but did not within {harness.limit:g} s")
        await harness.clock.sleep(0.02)


def _legal_message(message: Any) -> None:
    owed(isinstance(message, Incoming), f"channel must hand over an Incoming, found {described(message)}")
    sizes = ((message.id, LONGEST_ID, "id"), (message.address, LONGEST_ADDRESS, "address"))
    for value, most, name in sizes:
        is_legal = isinstance(value, str) and 0 < len(value) <= most
        owed(is_legal, f"the {name} of a message must have 1 to {most} characters, found {value!r:.60}")
    owed(isinstance(message.text, str), f"the text of a message must be text, found {described(message.text)}")
    are_json("reply and attributes of a message", message.reply, message.attributes)
