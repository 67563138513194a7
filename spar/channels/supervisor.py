"""Supervisor of one channel: it receives and sends, each with its own back-off and quarantine.

Receiving and sending fail separately, because a channel that cannot be read may still be able to send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from spar.channels.outbox import Outbox, Trouble, TurnRows
from spar.errors import PermanentError, TransientError
from spar.loop.core import Core
from spar.ports.channel import ChannelContext, ChannelSpec, Outgoing
from spar.ports.optional import Watchable, offers
from spar.records.deliveries import Delivery
from spar.types import replace

#: Signs behind which a long text is cut, the best first.
ENDS: Final = ("\n\n", "\n", ". ", " ")


class ChannelSupervisor(Outbox):
    """One supervised channel. Errors of the channel are published and counted, not raised, except by `send`, `edit`
    and `typing`. `counts` has the received messages, too, by their outcome."""

    close_within = 3.0

    def __init__(self, spec: ChannelSpec, core: Core, rows: TurnRows, context: ChannelContext) -> None:
        super().__init__(f"channel {spec.name!r}", spec, core, rows, Trouble(spec, "send", core, self.attempts))
        self.spec, self.receiving = spec, Trouble(spec, "receive", core)
        self._context = replace(context, ready=self.receiving.went_well)
        self.counts = {"accepted": 0, "known": 0, "refused": 0, **self.counts}
        #: Functions that return the reference of the draft which an answer replaces, by the answer's id.
        self.shown: dict[str, Callable[[], Awaitable[str]]] = {}
        self._turn = asyncio.Lock()  # a channel gets one call at a time, besides receiving

    @property
    def every(self) -> float:
        return self.spec.channel.limits.every

    def start(self) -> None:
        """Begin to receive and to send; call in the event loop."""
        super().start()
        self._spawn(self._receive(), "receive")

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the channel, JSON-able."""
        return {
            "receiving": self.receiving.snapshot(),
            "sending": self.sending.snapshot(),
            "waiting": len(self.items),
            "undelivered": len(self.failed),
            "left_behind": self.left_behind,
            **self._channel_report(),
            **self.counts,
        }

    def _channel_report(self) -> dict[str, Any]:
        """Return the channel's own report."""
        channel = self.spec.channel
        if not offers(channel, Watchable):
            return {}
        try:
            return dict(channel.snapshot())
        except Exception as error:  # anybody may have written the channel; show the other facts
            return {"error": f"{error!r:.200}"}

    async def _receive(self) -> None:
        while True:
            try:
                await self._call(self.spec.channel.receive(self._context), None)
                raise TransientError(f"channel {self.spec.name!r} has stopped receiving")
            except Exception as error:
                pause = self.receiving.failed(error)
            await self._clock.sleep(pause)

    # -- sending

    async def _send(self, delivery: Delivery) -> None:
        """Send the unsent parts of a message; the first part replaces the draft."""
        texts = pieces(delivery.text, self.spec.channel.limits.text)
        if (settled := self.shown.pop(delivery.id, None)) is not None:
            delivery = replace(delivery, reference=await settled() or delivery.reference)
            self._keep(delivery)
        for number, text in enumerate(texts[delivery.sent :], delivery.sent + 1):
            id = delivery.id if number == 1 else f"{delivery.id}/{number}"
            message = Outgoing(id, delivery.address, text, delivery.kind, delivery.reply, delivery.session,
                               delivery.run_id, number, len(texts))  # fmt: skip
            if number > 1 or not delivery.reference or not await self._edited(delivery.reference, message):
                await self.send(message)
            if number < len(texts):
                delivery = replace(delivery, sent=number)
                self._keep(delivery)

    async def _send_test(self, address: str) -> None:
        text = f"This is a test of the channel {self.spec.name!r}. Nothing is wrong."
        await self.send(Outgoing(self._clock.new_id(), address, text, "note"))

    async def _edited(self, reference: str, message: Outgoing) -> bool:
        """Replace the draft by the answer; return False when the draft can no longer be edited."""
        try:
            await self.edit(reference, message)
        except PermanentError:
            return False
        return True

    async def send(self, message: Outgoing) -> str:
        """Send a message now. Raises: the errors of the channel."""
        async with self._turn:
            return str(await self._call(self.spec.channel.send(message), self.spec.timeout) or "")

    async def edit(self, reference: str, message: Outgoing) -> None:
        """Change a message now. Raises: the errors of the channel."""
        async with self._turn:
            await self._call(self.spec.channel.edit(reference, message), self.spec.timeout)

    async def typing(self, address: str) -> None:
        """Show that the agent is writing. Raises: the errors of the channel."""
        await self._call(self.spec.channel.typing(address), self.spec.timeout)


def pieces(text: str, most: int) -> list[str]:
    """Return a text in pieces of at most `most` characters, which together are the whole. A piece ends at a paragraph,
    a line, a sentence or a word, if one ends in its second half."""
    parts: list[str] = []
    start = 0
    while len(text) - start > most:
        end = start + most
        for sign in ENDS:
            at = text.rfind(sign, start + most // 2, end)
            if at >= 0:
                end = at + len(sign)
                break
        parts.append(text[start:end])
        start = end
    parts.append(text[start:])
    return parts
