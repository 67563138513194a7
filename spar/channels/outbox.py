"""Outbox of one channel: the messages that wait to be sent, on disk until they are, in order for each address; and the
answers that people are owed.

A channel receives and sends, each with its own back-off and quarantine, because one that cannot be read may still be
able to send. A notifier is a channel that only sends.

A message that could not be sent waits for its next attempt, and later messages for the same address wait behind it;
other addresses go on. A message that can never be sent, or was tried for too long, is put aside and listed until a
person retries or drops it.

Anybody may have written the channel: it may fail, hang or ignore its cancellation, and none of that
may reach another one, a session or the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Final, TypeVar, cast

import msgspec
from msgspec import Struct

from spar.backoff import Backoff, Trouble
from spar.clock import Wake
from spar.data.text_blocks import pieces_of
from spar.decoding import convert
from spar.errors import PermanentError, PhaseTimeoutError, SparError, TransientError
from spar.events import ChannelQuarantined, ChannelRestored, ErrorOccurred, MessageDelivered, MessageUndeliverable
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.ports.any_part import Watchable, offers
from spar.ports.channel import ChannelContext, ChannelSpec, Outgoing
from spar.ports.rows import OwnRows
from spar.records.senders import Delivery
from spar.threads import BoundedCalls, call_off
from spar.types import Fault, replace

R = TypeVar("R")
log = get_logger("spar.channels")

#: Bounds of one channel: waiting messages (a full channel accepts no new ones), and messages that were put aside.
MOST_WAITING, MOST_FAILED = 1_000, 1_000
#: Bounds of the answered messages that are remembered, time and number: within them a repeated one is recognised.
REMEMBERED_FOR: Final = timedelta(days=7)
MOST_ANSWERED: Final = 10_000
#: Texts of one run whose digests are remembered as sent.
MOST_TOLD: Final = 200
#: Seconds between two looks at messages that are held back, such as in quiet hours.
LOOK_AGAIN = 60.0


class TurnRows:
    """Rows of one module; all changes within one turn of the event loop are written together at its end, in order, the
    last one of each row.

    Args: rows: where they are stored, None: nowhere.
    """

    def __init__(self, rows: OwnRows | None) -> None:
        self._rows = rows
        self._unwritten: dict[str, Any] = {}  # the last changed one last
        self._later: asyncio.Handle | None = None  # calls `write`
        self.is_void = False

    def keep(self, key: str, value: Any) -> None:
        """Write a row at the end of this turn of the event loop."""
        if self._rows is not None and not self.is_void:
            if self._later is None:
                self._later = asyncio.get_running_loop().call_soon(self.write)
            self._unwritten.pop(key, None)
            self._unwritten[key] = value

    def drop(self, key: str) -> None:
        """Delete a row at the end of this turn of the event loop."""
        self.keep(key, None)

    def write(self) -> None:
        """Write all changes now. A row that cannot be stored is logged; what it is about is lost with the process."""
        if self._later is not None:
            self._later.cancel()
            changes, self._later, self._unwritten = self._unwritten, None, {}
            self._write(changes)

    def _write(self, changes: Mapping[str, Any]) -> None:
        if self._rows is None or not changes:
            return
        try:
            self._rows.change(msgspec.to_builtins(changes))
        except (SparError, ValueError) as error:
            if len(changes) == 1:
                log.error("row not stored", key=next(iter(changes)), reason=str(error))
                return
            for key, value in changes.items():  # the others can be stored
                self._write({key: value})

    def void(self) -> None:
        """Write nothing any more, until `is_void` is False again: another process has gone on with the rows."""
        self.is_void = True
        self._unwritten.clear()

    async def safe(self) -> None:
        """Wait until all changes are on disk, as far as a journal can be written."""
        self.write()
        if self._rows is not None:
            await self._rows.safe()

    async def list(self) -> Mapping[str, Any]:
        """Return all rows by key. Raises: what the store raises."""
        self.write()
        return {} if self._rows is None else await self._rows.list()


class Owed(Struct, frozen=True):
    """Place of the answer of a run. `told` are digests of the texts that were sent, `is_done`: nothing more comes,
    `shown` is the part of a growing answer that people see or will see at once, `reference` names its message."""

    run_id: str
    channel: str
    address: str
    at: datetime
    session: str = ""
    reply: dict[str, Any] = {}
    told: tuple[str, ...] = ()
    is_done: bool = False
    reference: str = ""
    shown: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """Return the channel and the address that it goes to."""
        return self.channel, self.address


class OwedAnswers(dict[str, Owed]):
    """Owed answers of one agent, by run: of each that a person on a channel began."""

    def __init__(self, rows: TurnRows, answers: Iterable[Owed], now: datetime) -> None:
        """Load the answers of an earlier process; those that were answered long ago are forgotten."""
        answers = sorted(answers, key=lambda owed: owed.at)
        super().__init__((owed.run_id, owed) for owed in answers)
        self._rows, self.safe = rows, rows.safe
        for owed in answers:
            if owed.is_done and now - owed.at > REMEMBERED_FOR:
                self.drop(owed.run_id)

    def open(self) -> list[Owed]:
        """Return the answers that are not done, the oldest first."""
        return [owed for owed in self.values() if not owed.is_done]

    def keep(self, owed: Owed) -> None:
        """Store one; of too many the oldest answered ones are forgotten, a tenth of the bound."""
        self[owed.run_id] = owed
        self._rows.keep(f"run/{owed.run_id}", owed)
        if len(self) > MOST_ANSWERED:
            done = [run_id for run_id, owed in self.items() if owed.is_done]
            for run_id in done[: MOST_ANSWERED // 10]:
                self.drop(run_id)

    def tell(self, owed: Owed, digest: str) -> None:
        """Note that a text was sent."""
        told = owed.told if len(owed.told) >= MOST_TOLD else (*owed.told, digest)
        self.keep(replace(owed, told=told))

    def drop(self, run_id: str) -> None:
        """Forget a run, if it is known."""
        if self.pop(run_id, None) is not None:
            self._rows.drop(f"run/{run_id}")


class Outbox:
    """Outbox of one channel, which also receives, unless the channel only sends: a notifier. Errors of the channel are
    published and counted, not raised, except by `send`, `edit` and `typing`.

    Args: context: in which the channel receives; None: it only sends.

    Attributes: items, failed: the messages that wait and that were put aside, by id, the oldest first; counts: numbers
    of messages `sent`, and `failed` for good, and of received ones by their outcome; shown: functions that return the
    reference of the draft which an answer replaces, by the answer's id; close_within: seconds for the message that is
    being sent at the end; if it is cut off, the next start sends it again; attempts: the seconds between attempts at a
    message.
    """

    kind: ClassVar[str] = "channel"
    close_within: ClassVar[float] = 3.0
    attempts: ClassVar[Backoff] = Backoff(1.0, 300.0)

    def __init__(self, spec: ChannelSpec, core: Core, rows: TurnRows, context: ChannelContext | None = None) -> None:
        self.spec, self.channel, self._part = spec, spec.channel, f"{self.kind} {spec.name!r}"
        self._core, self._clock, self._rows = core, core.clock, rows
        limits = (spec.max_failures, spec.within, spec.probe_after)
        self.sending, self.receiving = Trouble(*limits, self.attempts), Trouble(*limits)
        ready = partial(self._works, self.receiving, "receive")
        self._context = None if context is None else replace(context, ready=ready)
        self.items: dict[str, Delivery] = {}
        self.failed: dict[str, Delivery] = {}
        self._due: dict[str, float] = {}  # by address, where the first message was put off
        self.counts = {"accepted": 0, "known": 0, "refused": 0, "sent": 0, "failed": 0}
        self.shown: dict[str, Callable[[], Awaitable[str]]] = {}
        self._calls, self._sends = BoundedCalls(), BoundedCalls()
        self._turn = asyncio.Lock()  # a channel gets one call at a time, besides receiving
        self._news = Wake(core.clock)
        self._is_sending = self._is_closing = False
        self._tasks: list[asyncio.Task[None]] = []

    def snapshot(self, *, has_report: bool = True) -> dict[str, Any]:
        """Return the state of the channel, JSON-able; safe from any thread. Args: has_report: with the channel's own
        report, whose making may block."""
        return {
            "receiving": self.receiving.snapshot(), "sending": self.sending.snapshot(), "waiting": len(self.items),
            "undelivered": len(self.failed), "left_behind": len(self._calls.left_behind | self._sends.left_behind),
            **(self._channel_report() if has_report else {}), **self.counts,
        }  # fmt: skip

    def _channel_report(self) -> dict[str, Any]:
        """Return the channel's own report."""
        if not offers(self.channel, Watchable):
            return {}
        try:
            return dict(self.channel.snapshot())
        except Exception as error:  # anybody may have written the channel; show the other facts
            return {"error": f"{error!r:.200}"}

    # -- life

    def start(self) -> None:
        """Begin to send, and to receive; call in the event loop."""
        self._is_closing = False
        works = {"send": self._send_all()}
        if self._context is not None:
            works["receive"] = self._receive(self._context)
        self._tasks = [asyncio.create_task(work, name=f"{self._part}: {name}") for name, work in works.items()]

    def cut(self) -> None:
        """Cut off receiving and sending."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """End all tasks, sending last; unsent messages wait for the next start."""
        self._is_closing = True
        try:
            for task in self._tasks[1:]:
                task.cancel()
            if self._is_sending:
                await asyncio.wait(self._tasks[:1], timeout=self.close_within)
        finally:
            await call_off(self._tasks)
            self._tasks = []

    def leave(self) -> None:
        """End a quarantine here, since another node tries the channel anew."""
        self._works(self.receiving, "receive")
        self._works(self.sending, "send")

    async def _receive(self, context: ChannelContext) -> None:
        while True:
            try:
                await self._calls.make(self.channel.receive(context), None)
                raise TransientError(f"{self._part} has stopped receiving")
            except Exception as error:
                fault = Fault.of(error, part=self.spec.name, phase="receive")
                pause = self._fails(self.receiving, fault, error)
            await self._clock.sleep(pause)

    def _fails(self, trouble: Trouble, fault: Fault, error: Exception) -> float:
        """Count and publish a failure; return the seconds until the next attempt."""
        former, trouble.last_error = trouble.state, fault.message
        pause = trouble.failed(self._clock.monotonic(), fault.detail.get("retry_after", 0.0))
        policy = "quarantine" if trouble.state == "quarantined" else "retry"
        events = self._core.events
        events.publish(ErrorOccurred(cycle_id="", phase="channel", error=fault, policy=policy, exception=error))
        if trouble.state == "quarantined" != former:
            reason = trouble.quarantine_reason()
            events.publish(ChannelQuarantined(channel=self.spec.name, part=fault.phase, reason=reason))
        return pause

    def _works(self, trouble: Trouble, part: str) -> None:
        """Reset the failures of a direction, and publish the end of its quarantine."""
        if trouble.failures and trouble.ended():
            self._core.events.publish(ChannelRestored(channel=self.spec.name, part=part))

    # -- the queue

    def deliver(self, id: str, address: str, text: str, **more: Any) -> None:
        """Enqueue a message; one that waits already or was put aside stays as it is. Args: more: other fields of the
        delivery."""
        if id not in self.items and id not in self.failed:
            at = self._clock.now()
            if self.items:  # the next process sorts them by their times
                at = max(at, next(reversed(self.items.values())).at + timedelta.resolution)
            fields = {"at": at, "kind": "note", **more}
            self._keep(Delivery(id, self.spec.name, address, text, **fields))
            self._news.set()

    def retry(self, id: str) -> Delivery:
        """Enqueue a message again that was put aside."""
        delivery = replace(self.failed.pop(id), state="waiting", attempts=0)
        self._keep(delivery)
        self._news.set()
        return delivery

    def drop(self, id: str) -> Delivery:
        """Forget a message that was put aside."""
        self._rows.drop(f"out/{id}")
        self.shown.pop(id, None)
        return self.failed.pop(id)

    def forget(self, session: str) -> None:
        """Forget the messages of a session that were put aside."""
        for id in [id for id, delivery in self.failed.items() if delivery.session == session]:
            self.drop(id)

    def put_aside(self, delivery: Delivery, why: str) -> None:
        """Stop trying a message until a person retries it."""
        self._leave(delivery)
        self.counts["failed"] += 1
        failed = self.failed[delivery.id] = replace(delivery, attempts=delivery.attempts + 1, error=why, state="failed")
        self._rows.keep(f"out/{failed.id}", failed)
        while len(self.failed) > MOST_FAILED:
            self.drop(next(iter(self.failed)))
        self._core.log.error("message not delivered", agent=self._core.name, channel=self.spec.name, id=failed.id,
                             address=failed.address, reason=why)  # fmt: skip
        self._core.events.publish(MessageUndeliverable(**self._facts_of(failed), reason=why))

    def _facts_of(self, delivery: Delivery) -> dict[str, Any]:
        return {"channel": self.spec.name, "message_id": delivery.id, "address": delivery.address,
                "run_id": delivery.run_id, "session": delivery.session}  # fmt: skip

    def _keep(self, delivery: Delivery) -> None:
        """Store a message that waits."""
        self.items[delivery.id] = delivery
        self._rows.keep(f"out/{delivery.id}", delivery)

    def _leave(self, delivery: Delivery) -> None:
        self.items.pop(delivery.id, None)
        self._due.pop(delivery.address, None)

    def _next(self) -> tuple[Delivery | None, float | None]:
        """Return the message that is due, or None and the most seconds until one may be (None: none waits). Messages
        that are held back are looked at again and again: the clock may be set."""
        now, soonest = self._clock.monotonic(), float("inf")
        for delivery in self._waiting():
            due = self._due.get(delivery.address, now)
            if due <= now:
                return delivery, None
            soonest = min(soonest, due)
        return None, soonest - now if soonest < float("inf") else LOOK_AGAIN if self.items else None

    def _waiting(self) -> Iterable[Delivery]:
        """Return the messages that may be sent now, the oldest first."""
        return self.items.values()

    # -- sending

    async def _send_all(self) -> None:
        while not self._is_closing:
            delivery, wait = self._next()
            if delivery is None:
                await self._news.sleep(wait)
                continue
            pause, limits, self._is_sending = 0.0, self.channel.limits, True
            try:
                await self._send_parts(delivery, limits.text)
            except Exception as error:  # perhaps some of its parts were sent
                pause = self._failed(self.items.get(delivery.id, delivery), error)
            else:
                await self._sent(delivery)
            finally:
                self._is_sending = False
            if (pause := max(pause, limits.every)) and not self._is_closing:
                await self._clock.sleep(pause)

    async def _sent(self, delivery: Delivery) -> None:
        self._works(self.sending, "send")
        self.counts["sent"] += 1
        self._leave(delivery)
        self.failed.pop(delivery.id, None)  # it may have been put aside meanwhile
        self._rows.drop(f"out/{delivery.id}")
        self._core.events.publish(MessageDelivered(**self._facts_of(delivery), attempts=delivery.attempts + 1))
        await self._rows.safe()  # so that a crash repeats one message at most

    def _failed(self, delivery: Delivery, error: Exception) -> float:
        """Put off a message, or put it aside; return the seconds until anything may be sent again."""
        if isinstance(error, PermanentError):
            self.put_aside(delivery, str(error))
            return 0.0
        fault = Fault.of(error, part=self.spec.name, phase="send")
        pause = self._fails(self.sending, fault, error)
        if delivery.id not in self.items:  # it was put aside meanwhile
            pass
        elif (age := (self._clock.now() - delivery.at).total_seconds()) >= self.spec.give_up_after:
            self.put_aside(delivery, f"tried for {age:.0f} s: {fault.message}")
        else:
            self._keep(replace(delivery, attempts=delivery.attempts + 1, error=fault.message))
            wait = max(self.attempts.delay(delivery.attempts + 1), fault.detail.get("retry_after", 0.0))
            self._due[delivery.address] = self._clock.monotonic() + wait
        return pause if self.sending.state == "quarantined" else 0.0

    async def _send_parts(self, delivery: Delivery, most: int) -> None:
        """Send the unsent parts of a message, each of at most `most` characters; the first part replaces the draft."""
        texts = pieces_of(delivery.text, most) if len(delivery.text) > most else [delivery.text]
        if (settled := self.shown.get(delivery.id)) is not None:
            delivery = replace(delivery, reference=await settled() or delivery.reference)
            del self.shown[delivery.id]
            self._keep(delivery)
        if delivery.run_id:  # the next process must know what may have been sent, and in the place of which draft
            await self._rows.safe()
        for number, text in enumerate(texts[delivery.sent :], delivery.sent + 1):
            id = delivery.id if number == 1 else f"{delivery.id}/{number}"
            message = Outgoing(id, delivery.address, text, delivery.kind, delivery.reply, delivery.session,
                               delivery.run_id, number, len(texts))  # fmt: skip
            if number > 1 or not delivery.reference or not await self._edited(delivery.reference, message):
                await self.send(message)
            if number < len(texts):
                delivery = replace(delivery, sent=number)
                self._keep(delivery)

    async def _edited(self, reference: str, message: Outgoing) -> bool:
        """Replace the draft by the answer, or by its last text (a note); return False when the answer must be sent
        because the draft can no longer be edited."""
        try:
            await self.edit(reference, message)
        except PermanentError:
            return message.kind == "note"
        return True

    async def send(self, message: Outgoing) -> str:
        """Send a message now. Raises: the errors of the channel."""
        return str(await self._in_turn(self.channel.send, message) or "")

    async def edit(self, reference: str, message: Outgoing) -> None:
        """Change a message now. Raises: the errors of the channel."""
        await self._in_turn(self.channel.edit, reference, message)

    async def _in_turn(self, work: Callable[..., Awaitable[R]], *args: Any) -> R:
        async with self._turn:
            if self._sends.left_behind:
                raise TransientError("an earlier attempt hangs and ignores that it was cancelled")
            return await self._call(work(*args), self._sends)

    async def typing(self, address: str) -> None:
        """Show that the agent is writing. Raises: the errors of the channel."""
        await self._call(self.channel.typing(address), self._calls)

    async def test(self, address: str = "") -> str:
        """Send a test message now, beside the queue; return what was wrong, "" for nothing. A notifier ignores the
        address."""
        text = f"This is a test of the {self._part}. Nothing is wrong."
        try:
            await self.send(Outgoing(self._clock.new_id(), address, text, "note"))
        except Exception as error:  # anybody may have written the channel or notifier
            return str(error) or type(error).__name__
        return ""

    async def _call(self, work: Awaitable[R], calls: BoundedCalls) -> R:
        """Return the result of a call of the channel within its time. Raises: the errors of the channel."""
        try:
            return await calls.make(work, self.spec.timeout)
        except PhaseTimeoutError as late:
            if not late.has_product:
                raise
            return cast("R", late.product)  # it was sent after all


def restore(outboxes: Mapping[str, Outbox], stored: Mapping[str, Any]) -> list[Delivery]:
    """Load the messages of an earlier process from its rows; return those for a channel that is not configured."""
    deliveries = sorted(read_rows(stored, "out/", Delivery), key=lambda delivery: (delivery.at, delivery.id))
    for delivery in deliveries:
        if (outbox := outboxes.get(delivery.channel)) is not None:
            (outbox.failed if delivery.state == "failed" else outbox.items)[delivery.id] = delivery
    return [delivery for delivery in deliveries if delivery.channel not in outboxes]


def read_rows(stored: Mapping[str, Any], prefix: str, kind: type[R]) -> list[R]:
    """Return the values of the rows whose keys begin so; one of another version is logged, and stays on disk."""
    values: list[R] = []
    for key, value in stored.items():
        if key.startswith(prefix):
            try:
                values.append(convert(value, kind))
            except msgspec.ValidationError as error:
                log.error("row cannot be read", key=key, reason=str(error))
    return values
