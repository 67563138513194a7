"""Supervisor of one channel: it receives and sends, each with its own back-off and quarantine.

Receiving and sending fail separately, because a channel that cannot be read may still be able to send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from spar.backoff import Backoff, Intensity
from spar.channels.deliveries import Deliveries, Delivery
from spar.channels.dispatcher import Dispatcher
from spar.errors import PermanentError, TransientError
from spar.events import ChannelQuarantined, ChannelRestored, ErrorOccurred, MessageDelivered, MessageUndeliverable
from spar.loop.core import Core
from spar.ports.channel import ChannelContext, ChannelSpec, Outgoing
from spar.ports.optional import Watchable, offers
from spar.types import Fault, replace

#: Seconds between attempts at a message, and of a channel that cannot send; short at first, because people wait.
ATTEMPTS = Backoff(1.0, 300.0)
#: Signs behind which a long text is cut, the best first.
ENDS: Final = ("\n\n", "\n", ". ", " ")


class Trouble:
    """Failures of one direction of a channel: their number in a row, back-off, quarantine.

    Args: probes: the seconds between attempts in quarantine, where they are less than `probe_after`.
    """

    def __init__(self, spec: ChannelSpec, part: str, core: Core, probes: Backoff | None = None) -> None:
        self.part, self._spec, self._core, self._probes = part, spec, core, probes
        self.state: Literal["ok", "backing_off", "quarantined"] = "ok"
        self.failures, self.last_error = 0, ""
        self._backoff, self._intensity = Backoff(), Intensity(max(spec.max_failures - 1, 0), spec.within)

    def failed(self, error: Exception) -> float:
        """Count a failure; return the seconds until the next attempt."""
        self.failures += 1
        fault = Fault.of(error, part=self._spec.name, phase=self.part)
        self.last_error = fault.message
        was_quarantined = self.state == "quarantined"
        is_quarantined = was_quarantined or not self._intensity.allow(self._core.clock.monotonic())
        policy = "quarantine" if is_quarantined else "retry"
        events = self._core.events
        events.publish(ErrorOccurred(cycle_id="", phase="channel", error=fault, policy=policy, exception=error))
        if is_quarantined and not was_quarantined:
            spec = self._spec
            reason = f"{spec.max_failures} failures within {spec.within:g} s; the last: {self.last_error}"
            events.publish(ChannelQuarantined(channel=spec.name, part=self.part, reason=reason))
        self.state = "quarantined" if is_quarantined else "backing_off"
        wait = asked_pause(error)
        if not is_quarantined:
            return max(self._backoff.delay(self.failures), wait)
        probe = self._spec.probe_after
        return max(probe if self._probes is None else min(probe, self._probes.delay(self.failures)), wait)

    def went_well(self) -> None:
        """Reset the failures."""
        if self.state == "quarantined":
            self._intensity.reset()
            self._core.events.publish(ChannelRestored(channel=self._spec.name, part=self.part))
        self.state, self.failures = "ok", 0

    def snapshot(self) -> dict[str, Any]:
        """Return the state, JSON-able."""
        return {"state": self.state, "failures": self.failures, "last_error": self.last_error}


def asked_pause(error: Exception) -> float:
    """Return the pause in seconds that the other side asked for."""
    return (error.retry_after or 0.0) if isinstance(error, TransientError) else 0.0


class ChannelSupervisor(Dispatcher[Delivery]):
    """One supervised channel. Errors of the channel are published and counted, not raised, except by `send`, `edit`
    and `typing`.

    Args: safe: returns once all changes of rows are on disk, so that a crash repeats one message at most.

    Attributes: counts: numbers of messages `sent` and `failed` for good, and of received ones by their outcome.
    """

    close_within = 3.0

    def __init__(self, spec: ChannelSpec, core: Core, deliveries: Deliveries, context: ChannelContext,
                 safe: Callable[[], Awaitable[None]]) -> None:  # fmt: skip
        super().__init__(f"channel {spec.name!r}", core)
        self.spec, self.deliveries, self._safe = spec, deliveries, safe
        self._context = replace(context, ready=self._is_ready)
        self.receiving, self.sending = Trouble(spec, "receive", core), Trouble(spec, "send", core, ATTEMPTS)
        self.counts = dict.fromkeys(("accepted", "known", "refused", "sent", "failed"), 0)
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

    def deliver(self, delivery: Delivery) -> None:
        """Enqueue a message; one that waits already or was put aside stays as it is."""
        if self.deliveries.add(delivery):
            self.wake()

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the channel, JSON-able."""
        return {
            "receiving": self.receiving.snapshot(),
            "sending": self.sending.snapshot(),
            "waiting": len(self.deliveries.items),
            "undelivered": len(self.deliveries.failed),
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

    # -- receiving

    def _is_ready(self) -> None:
        self.receiving.went_well()

    async def _receive(self) -> None:
        while True:
            try:
                await self._call(self.spec.channel.receive(self._context), None)
                raise TransientError(f"channel {self.spec.name!r} has stopped receiving")
            except Exception as error:
                pause = self.receiving.failed(error)
            await self._clock.sleep(pause)

    # -- sending

    def _next(self) -> tuple[Delivery | None, float | None]:
        return self.deliveries.next(self._clock.monotonic())

    async def _send(self, delivery: Delivery) -> None:
        """Send the unsent parts of a message; the first part replaces the draft."""
        texts = pieces(delivery.text, self.spec.channel.limits.text)
        if (settled := self.shown.pop(delivery.id, None)) is not None:
            delivery = replace(delivery, reference=await settled() or delivery.reference)
            self.deliveries.went_on(delivery)
        for number, text in enumerate(texts[delivery.sent :], delivery.sent + 1):
            id = delivery.id if number == 1 else f"{delivery.id}/{number}"
            message = Outgoing(id, delivery.address, text, delivery.kind, delivery.reply, delivery.session,
                               delivery.run_id, number, len(texts))  # fmt: skip
            if number > 1 or not delivery.reference or not await self._edited(delivery.reference, message):
                await self.send(message)
            if number < len(texts):
                delivery = replace(delivery, sent=number)
                self.deliveries.went_on(delivery)

    async def _sent(self, delivery: Delivery) -> None:
        self.sending.went_well()
        self.counts["sent"] += 1
        self.deliveries.sent(delivery)
        self._core.events.publish(
            MessageDelivered(channel=self.spec.name, message_id=delivery.id, address=delivery.address,
                             run_id=delivery.run_id, session=delivery.session, attempts=delivery.attempts + 1)
        )  # fmt: skip
        await self._safe()

    def _failed(self, delivery: Delivery, error: Exception) -> float:
        if isinstance(error, PermanentError):
            self._give_up(delivery, str(error))
            return 0.0
        pause, why = self.sending.failed(error), self.sending.last_error
        if (age := (self._clock.now() - delivery.at).total_seconds()) >= self.spec.give_up_after:
            self._give_up(delivery, f"tried for {age:.0f} s: {why}")
        else:
            wait = max(ATTEMPTS.delay(delivery.attempts + 1), asked_pause(error))
            self.deliveries.put_off(delivery, why, self._clock.monotonic() + wait)
        return pause if self.sending.state == "quarantined" else 0.0

    def _give_up(self, delivery: Delivery, why: str) -> None:
        failed = self.deliveries.put_aside(delivery, why)
        self.counts["failed"] += 1
        self._core.log.error("message not delivered", agent=self._core.name, channel=self.spec.name, id=failed.id,
                             address=failed.address, reason=why)  # fmt: skip
        self._core.events.publish(
            MessageUndeliverable(channel=self.spec.name, message_id=failed.id, address=failed.address,
                                 run_id=failed.run_id, session=failed.session, reason=why)
        )  # fmt: skip

    async def _edited(self, reference: str, message: Outgoing) -> bool:
        """Replace the draft by the answer; return False when the draft can no longer be edited."""
        try:
            await self.edit(reference, message)
        except PermanentError:
            return False
        return True

    # -- calling

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
