"""Outbox of one notifier: its notices, one after another.

In quiet hours it sends only critical notices; those that waited for their end follow as one notice.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec

from spar.backoff import Backoff, Trouble
from spar.channels.outbox import Outbox, TurnRows
from spar.decoding import convert
from spar.errors import PermanentError, TransientError
from spar.events import NotifierFailed, NotifierRestored
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.ports.channel import Channel, ChannelLimits, ChannelSpec, Outgoing
from spar.ports.notifier import DeliversNotices, Notice, NotifierSpec
from spar.ports.optional import offers
from spar.records.deliveries import Delivery
from spar.threads import Threads
from spar.types import Fault, replace

log = get_logger("spar.notices")

#: Most notices that wait for one notifier; one more puts the oldest aside.
MOST_WAITING: Final = 200
_URGENCY: Final[dict[str, Literal["low", "normal", "critical"]]] = {
    "raised.warning": "normal", "raised.critical": "critical", "recovered": "low", "test": "low",
    "digest": "normal",
}  # fmt: skip


class NoticeChannel(Channel):
    """Notifier as a channel that only sends: the notice of a message is its `reply`; one without is a test."""

    limits = ChannelLimits(text=sys.maxsize)

    def __init__(self, notifier: Any, name: str, core: Core) -> None:
        self._notifier, self._core, self._is_sending = notifier, core, False
        self._threads = Threads(f"notifier {name}", core.clock)

    async def send(self, message: Outgoing) -> str:
        """Send a notice. Raises: the errors of the notifier; none of them is permanent: a notice is tried for as long
        as any."""
        if self._is_sending:
            raise TransientError("an earlier attempt hangs and ignores that it was cancelled")
        agent, now = self._core.name, self._core.clock.now()
        test = Notice(message.id, "test", "test", "warning", f"spar {agent}: a test", message.text, now, agent)
        self._is_sending = True
        try:
            await self._notify(convert(message.reply, Notice) if message.reply else test)
        except PermanentError as error:
            raise TransientError(str(error)) from error
        finally:
            self._is_sending = False
        return ""

    async def _notify(self, notice: Notice) -> None:
        notifier = self._notifier
        urgency = _URGENCY.get(notice.state) or _URGENCY[f"{notice.state}.{notice.severity}"]
        if offers(notifier, DeliversNotices):
            await notifier.deliver(notice)
        elif inspect.iscoroutinefunction(notifier.notify):
            await notifier.notify(notice.title, notice.text, urgency=urgency)
        else:
            await self._threads.run(lambda: notifier.notify(notice.title, notice.text, urgency=urgency))


class NotifierOutbox(Outbox):
    """Outbox of one notifier. All notices go to one address, so they keep their order. Its failures are no alert,
    because it could not be sent."""

    kind, close_within, attempts = "notifier", 0.0, Backoff(5.0, 600.0)

    def __init__(self, terms: NotifierSpec, core: Core, rows: TurnRows) -> None:
        channel = NoticeChannel(terms.notifier, terms.name, core)
        super().__init__(ChannelSpec(terms.name, channel, terms.timeout, terms.max_failures, terms.within,
                                     terms.probe_after, give_up_after=terms.give_up_after), core, rows)  # fmt: skip
        self.terms = terms

    @property
    def is_quiet(self) -> bool:
        """Return whether these are quiet hours."""
        return self.terms.quiet is not None and self.terms.quiet.covers(self._clock.now())

    def snapshot(self) -> dict[str, Any]:
        """Return its condition, JSON-able; safe from any thread."""
        sending = self.sending
        return {
            "name": self.spec.name, "waiting": len(self.items), "failures": sending.failures,
            "last_error": sending.last_error, "is_quiet": self.is_quiet, "sent": self.counts["sent"],
            "failed": sending.total, "given_up": self.counts["failed"],
        }  # fmt: skip

    def _fails(self, trouble: Trouble, fault: Fault, error: Exception) -> float:
        trouble.last_error = fault.message
        if not trouble.failures:
            log.warning("notifier fails", agent=self._core.name, notifier=self.spec.name, reason=fault.message)
            self._core.events.publish(NotifierFailed(notifier=self.spec.name, reason=fault.message,
                                                     waiting=len(self.items)))  # fmt: skip
        return trouble.failed(self._clock.monotonic(), fault.detail.get("retry_after", 0.0))

    def _works(self, trouble: Trouble, part: str) -> None:
        if trouble.failures:
            trouble.last_error = ""
            log.info("notifier works again", agent=self._core.name, notifier=self.spec.name)
            self._core.events.publish(NotifierRestored(notifier=self.spec.name))
        trouble.ended()

    def add(self, notice: Notice) -> None:
        """Enqueue a notice; of too many the oldest is put aside."""
        if len(self.items) >= MOST_WAITING:
            self.put_aside(next(iter(self.items.values())), f"{MOST_WAITING} notices wait already")
        self.deliver(f"{self.spec.name}.{notice.id}", "people", f"{notice.title}: {notice.text}", at=notice.at,
                     reply=msgspec.to_builtins(notice), session=notice.session)  # fmt: skip

    # -- quiet hours

    def _waiting(self) -> Iterable[Delivery]:
        if (quiet := self.terms.quiet) is None:
            return self.items.values()
        if self.is_quiet:
            return [delivery for delivery in self.items.values() if _is_critical(delivery)]
        held = [delivery for delivery in self.items.values()
                if not _is_critical(delivery) and quiet.covers(delivery.at)]  # fmt: skip
        if len(held) == 1:  # its time to be given up begins now
            self._keep(replace(held[0], at=self._clock.now()))
        elif held:
            self._join(held)
        return self.items.values()

    def _join(self, held: list[Delivery]) -> None:
        """Put one notice in the place of these; its id depends on their ids only."""
        notices, name = [convert(delivery.reply, Notice) for delivery in held], self._core.name
        lines = [f"{notice.at.astimezone():%H:%M} {notice.title}: {notice.text}" for notice in notices]
        digest = blake2b("\0".join(notice.id for notice in notices).encode(), digest_size=12).hexdigest()
        title = f"spar {name}: {len(notices)} notices of the quiet hours"
        joined = Notice(f"quiet.{digest}", "quiet", "digest", "warning", title, "\n".join(lines), notices[-1].at, name)
        for delivery in held:
            del self.items[delivery.id]
            self._rows.drop(f"out/{delivery.id}")
        self.add(joined)


def _is_critical(delivery: Delivery) -> bool:
    return bool(delivery.reply["severity"] == "critical")
