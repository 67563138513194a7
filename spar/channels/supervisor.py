"""Supervisor of one channel: it receives and sends, each with its own back-off and quarantine.

Anybody may have written the channel: it may fail, hang or ignore its cancellation, and none of that may reach another
channel, a session or the loop. Receiving and sending fail separately, because a channel that cannot be read may still
be able to send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from spar.backoff import Backoff, Intensity
from spar.channels.deliveries import Deliveries, Delivery
from spar.channels.pieces import pieces
from spar.errors import PermanentError, TransientError
from spar.events import ChannelQuarantined, ChannelRestored, ErrorOccurred, MessageDelivered, MessageUndeliverable
from spar.loop.core import Core
from spar.ports.channel import ChannelContext, ChannelSpec, Outgoing
from spar.ports.optional import Watchable, offers
from spar.types import Fault, replace

R = TypeVar("R")

#: Seconds for the message that is being sent when the agent stops; if it is cut off, the next start sends it again.
CLOSE_WITHIN = 3.0
#: Seconds between the cancellation of a call and leaving it behind.
GRACE = 0.5
#: Seconds between attempts at a message, and of a channel that cannot send; short at first, because people wait.
ATTEMPTS = Backoff(1.0, 300.0)


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


class ChannelSupervisor:
    """One supervised channel. Errors of the channel are published and counted, not raised, except by `send`, `edit`
    and `typing`.

    Args: safe: returns once all changes of rows are on disk, so that a crash repeats one message at most.

    Attributes: counts: numbers of messages `sent` and `failed` for good, and of received ones by their outcome.
    """

    def __init__(self, spec: ChannelSpec, core: Core, deliveries: Deliveries, context: ChannelContext,
                 safe: Callable[[], Awaitable[None]]) -> None:  # fmt: skip
        self.spec, self._core, self._clock = spec, core, core.clock
        self.deliveries, self._safe = deliveries, safe
        self._context = replace(context, ready=self._is_ready)
        self.receiving, self.sending = Trouble(spec, "receive", core), Trouble(spec, "send", core, ATTEMPTS)
        self.counts = dict.fromkeys(("accepted", "known", "refused", "sent", "failed"), 0)
        self.left_behind = 0
        #: Functions that return the reference of the draft which an answer replaces, by the answer's id.
        self.shown: dict[str, Callable[[], Awaitable[str]]] = {}
        self._news, self._rests = asyncio.Event(), asyncio.Event()
        self._rests.set()  # it is set while nothing is being sent
        self._is_closing = False
        self._turn = asyncio.Lock()  # a channel gets one call at a time, besides receiving
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to receive and to send; call in the event loop."""
        self._tasks = [
            asyncio.create_task(work, name=f"channel {self.spec.name}: {name}")
            for name, work in (("receive", self._receive()), ("send", self._send()))
        ]

    async def close(self) -> None:
        """End all tasks. The message that is being sent gets `CLOSE_WITHIN` seconds; unsent ones wait for the next
        start."""
        self._is_closing = True
        try:
            for task in self._tasks[:1]:  # first stop receiving
                task.cancel()
            await asyncio.wait([asyncio.ensure_future(self._rests.wait())], timeout=CLOSE_WITHIN)
        finally:
            self._rests.set()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._tasks = []

    def deliver(self, delivery: Delivery) -> None:
        """Enqueue a message; one that waits already or was put aside stays as it is."""
        if self.deliveries.add(delivery):
            self.wake()

    def wake(self) -> None:
        """Look for messages to send."""
        self._news.set()

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

    async def _send(self) -> None:
        while not self._is_closing:
            self._news.clear()
            delivery, wait = self.deliveries.next(self._clock.monotonic())
            if delivery is None:
                await self._wait(wait)
                continue
            self._rests.clear()
            try:
                pause = await self._deliver(delivery)
            finally:
                self._rests.set()
            await self._clock.sleep(max(pause, self.spec.channel.limits.every))

    async def _wait(self, seconds: float) -> None:
        """Wait for news, at most `seconds`."""
        timer = self._clock.call_at(self._clock.monotonic() + seconds, self.wake) if seconds < float("inf") else None
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _deliver(self, delivery: Delivery) -> float:
        """Send one message; return the seconds until the channel may be used again."""
        spec = self.spec
        try:
            await self._send_parts(delivery)
        except PermanentError as error:
            self._give_up(delivery, str(error))
            return 0.0
        except Exception as error:
            pause = self.sending.failed(error)
            delivery = self.deliveries.items.get(delivery.id, delivery)
            age = (self._clock.now() - delivery.at).total_seconds()
            if age >= spec.give_up_after:
                self._give_up(delivery, f"tried for {age:.0f} s: {self.sending.last_error}")
            else:
                wait = max(ATTEMPTS.delay(delivery.attempts + 1), asked_pause(error))
                self.deliveries.put_off(delivery, self.sending.last_error, self._clock.monotonic() + wait)
            return pause if self.sending.state == "quarantined" else 0.0
        self.sending.went_well()
        self.counts["sent"] += 1
        self.deliveries.sent(delivery)
        self._core.events.publish(
            MessageDelivered(channel=spec.name, message_id=delivery.id, address=delivery.address,
                             run_id=delivery.run_id, session=delivery.session, attempts=delivery.attempts + 1)
        )  # fmt: skip
        await self._safe()
        return 0.0

    def _give_up(self, delivery: Delivery, why: str) -> None:
        failed = self.deliveries.put_aside(delivery, why)
        self.counts["failed"] += 1
        self._core.log.error("message not delivered", agent=self._core.name, channel=self.spec.name, id=failed.id,
                             address=failed.address, reason=why)  # fmt: skip
        self._core.events.publish(
            MessageUndeliverable(channel=self.spec.name, message_id=failed.id, address=failed.address,
                                 run_id=failed.run_id, session=failed.session, reason=why)
        )  # fmt: skip

    async def _send_parts(self, delivery: Delivery) -> None:
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

    async def _call(self, work: Awaitable[R], timeout: float | None) -> R:
        """Run a call of the channel with a timeout; a call that ignores its cancellation is left behind.

        Raises: the errors of the channel; TransientError when it takes too long or cancels itself.
        """
        task = asyncio.ensure_future(work)
        is_late = False
        try:
            await asyncio.wait([task], timeout=timeout)
            is_late = not task.done()
        finally:
            if not task.done():
                await self._cut(task)
        if not task.done() or (is_late and task.cancelled()):
            raise TransientError(f"channel {self.spec.name!r} took longer than {timeout or 0:g} s")
        if task.cancelled():
            raise TransientError(f"channel {self.spec.name!r} has cancelled itself")
        return task.result()  # also when the call ended during its cancellation

    async def _cut(self, task: asyncio.Future[Any]) -> None:
        task.cancel()
        await asyncio.wait([task], timeout=GRACE)
        if not task.done():
            self.left_behind += 1
            task.add_done_callback(self._came_back)

    def _came_back(self, task: asyncio.Future[Any]) -> None:
        self.left_behind -= 1
        if not task.cancelled():
            task.exception()  # read it, so that asyncio does not log it
