"""Contract of channels, and a channel in memory.

`await check_channel(MyChannel)` checks a channel against `spar.ports.channel`. The test plays the people: `provoke`
lets them write, `arrived` reads the messages to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from msgspec import Struct

from spar.clock import Clock
from spar.errors import PermanentError, TransientError
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
    """Message as people read it: its text is the latest one after edits."""

    reference: str
    address: str
    text: str
    message: Outgoing


class MemoryChannel:
    """Channel in memory: a test writes by `say` and reads `sent`.

    A message that was not acknowledged is offered again when receiving begins again. `acknowledged` are the ids of
    acknowledged messages, `typed` the addresses that saw the sign of writing, `edits` counts changes.

    Args: limits: its limits; fails: what `send` raises, one item for each call, None for a call that succeeds; after
    the list all calls succeed.
    """

    def __init__(self, limits: ChannelLimits | None = None, fails: Sequence[Exception | None] = ()) -> None:
        self._limits = limits or ChannelLimits(can_edit=True, edit_every=0.05, typing_every=1.0)
        self._fails = list(fails)
        self._waiting: dict[str, Incoming] = {}
        self._news = asyncio.Event()
        self.sent: list[SentMessage] = []
        self._by_id: dict[str, SentMessage] = {}
        self.acknowledged: list[str] = []
        self.accepted: list[Accepted] = []
        self.typed: list[str] = []
        self.attempts = self.edits = self.opened = 0

    @property
    def limits(self) -> ChannelLimits:
        """Return the limits of the channel."""
        return self._limits

    def say(self, text: str, address: str = "alice", *, id: str = "", **more: Any) -> str:
        """Write a message as a person. Returns: the id of the message."""
        message = Incoming(id or new_id(), address, text, **more)
        self._waiting[message.id] = message
        self._news.set()
        return message.id

    def texts(self, address: str = "alice") -> list[str]:
        """Return the present texts of the messages to an address."""
        return [message.text for message in self.sent if message.address == address]

    async def receive(self, context: ChannelContext) -> None:
        """Hand over the waiting messages and all later ones."""
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
        """Send a message; one whose id was sent before is not sent again."""
        self.attempts += 1
        await asyncio.sleep(0)
        error = self._fails.pop(0) if self._fails else None
        if error is not None:
            raise error
        if (known := self._by_id.get(message.id)) is not None:
            return known.reference
        sent = self._by_id[message.id] = SentMessage(f"m{len(self.sent)}", message.address, message.text, message)
        self.sent.append(sent)
        return sent.reference

    async def edit(self, reference: str, message: Outgoing) -> None:
        """Replace the text of a sent message. Raises: PermanentError for an unknown reference."""
        await asyncio.sleep(0)
        self.edits += 1
        for sent in self.sent:
            if sent.reference == reference:
                sent.text = message.text
                return
        last = self.sent[-1].reference if self.sent else "none"
        raise PermanentError(f"no message {reference!r:.100} was sent; the last is {last}")

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
    """Check a channel against `spar.ports.channel.Channel`. All channels of the factory talk to the same people.

    Args:
        address: a person whom it can send to.
        provoke: lets a person write a text, given the channel; arrived: returns the texts that people got, given it.
        make_unreachable: makes a channel whose messages cannot arrive.
        texts: texts that it must be able to send.
        home: the folders in its context.
    """
    harness = Harness("channel", clock, limit, grace)
    async with harness.opened(make_channel) as channel:
        limits = _legal(channel)
        await _receives(harness, channel, provoke, home)

    async with harness.opened(make_channel) as channel:

        def send(text: str, id: str) -> Any:
            return harness.run(channel.send, Outgoing(id, address, text[: limits.text] or "-"))

        mark, references = await harness.sends("channel.send()", send, texts)
        for reference in references:
            owed(isinstance(reference, str), f"channel.send() must return a text, found {described(reference)}")
        if limits.can_edit:
            owed(references[-1], "channel.send() of a channel that can edit must return a reference")
            edited = Outgoing(mark, address, f"edited {mark}")
            await harness.value("channel.edit()", harness.run(channel.edit, references[-1], edited))
            mark = edited.text
        if arrived is not None:
            received = [str(text) for text in await harness.value("arrived()", harness.run(arrived, channel))]
            owed(any(mark in text for text in received), f"what is sent must arrive, but {mark!r} did not")
        if limits.typing_every:
            await harness.value("channel.typing()", harness.run(channel.typing, address))
    if make_unreachable is not None:
        async with harness.opened(make_unreachable) as channel:
            _, error = await harness.outcome("send()", harness.run(channel.send, Outgoing(new_id(), address, "lost")))
            owed(error, "channel.send() must raise when the message cannot have arrived")
    await harness.is_clean()


def _legal(channel: Any) -> ChannelLimits:
    lacking = [method for method in METHODS if not callable(getattr(channel, method, None))]
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
    """Check that receiving ends when it is cancelled, and that a message without acknowledgement comes again as the
    same one."""
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
            await _until(harness, lambda: any(text in message.text for message in offered), f"must offer {why}")
        ids += [message.id for message in offered if text in message.text]
    owed(len(set(ids)) == 1, f"a message must have the same id each time that it is offered, found {sorted(set(ids))}")


@asynccontextmanager
async def _receiving(harness: Harness, channel: Any, context: ChannelContext) -> AsyncIterator[None]:
    """Receive like a supervisor: begin again after a failure, cancel at the end."""

    async def receive_again() -> None:
        while True:
            with suppress(Exception):
                await channel.receive(context)
            await harness.clock.sleep(0.05)

    task = asyncio.ensure_future(receive_again())
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
