"""Delivery of the notices of one notifier: one after another, again after a failure.

A notifier that was left behind at its deadline is not called again before that attempt has ended. In its quiet hours
it gets only critical notices; those that waited for their end follow as one notice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, Literal

from spar.backoff import Backoff
from spar.channels.dispatcher import Dispatcher
from spar.errors import TransientError
from spar.events import NotifierFailed, NotifierRestored
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.ports.notifier import DeliversNotices, Notice, NotifierSpec
from spar.ports.optional import offers
from spar.threads import Threads

log = get_logger("spar.notices")

#: Most notices that wait for one notifier; one more drops the oldest, which is counted.
MOST_WAITING: Final = 200
#: Seconds until the first repetition, and the most seconds between later ones.
AGAIN: Final = Backoff(5.0, 600.0)
#: Seconds between two readings of the clock during quiet hours: the clock may be set.
LOOK_AGAIN: Final = 60.0
_URGENCY: Final[dict[str, Literal["low", "normal", "critical"]]] = {
    "raised.warning": "normal", "raised.critical": "critical", "recovered": "low", "test": "low",
    "digest": "normal",
}  # fmt: skip


class NoticeSender(Dispatcher[list[str]]):
    """Sender of notices through one notifier. `forget(key)` is called for each notice that was sent or given up.

    An item is the keys of the notices that are sent as one.
    """

    def __init__(self, spec: NotifierSpec, core: Core, forget: Callable[[str], None]) -> None:
        super().__init__(f"notifier {spec.name!r}", core)
        self.spec, self._forget = spec, forget
        self._waiting: dict[str, Notice] = {}
        self._threads = Threads(f"notifier {spec.name}", core.clock)
        self.failures, self.last_error = 0, ""
        self.counts = {"sent": 0, "failed": 0, "given_up": 0}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def snapshot(self) -> dict[str, Any]:
        """Return its condition, JSON-able; safe from any thread."""
        return {
            "name": self.spec.name, "waiting": len(self._waiting), "failures": self.failures,
            "last_error": self.last_error, "is_quiet": self._is_quiet(), **self.counts,
        }  # fmt: skip

    def add(self, key: str, notice: Notice) -> None:
        """Send a notice after those that wait already."""
        if len(self._waiting) >= MOST_WAITING:
            self._give_up([next(iter(self._waiting))], f"{MOST_WAITING} notices wait already")
        self._waiting[key] = notice
        self.wake()

    async def deliver(self, notice: Notice) -> None:
        """Try to send a notice once. Raises: the errors of the notifier; TransientError when it takes too long."""
        if self.left_behind:
            raise TransientError("an earlier attempt hangs and ignores that it was cancelled")
        notifier = self.spec.notifier
        urgency = _URGENCY.get(notice.state) or _URGENCY[f"{notice.state}.{notice.severity}"]
        if offers(notifier, DeliversNotices):
            work = notifier.deliver(notice)
        elif inspect.iscoroutinefunction(notifier.notify):
            work = notifier.notify(notice.title, notice.text, urgency=urgency)
        else:
            work = self._threads.run(lambda: notifier.notify(notice.title, notice.text, urgency=urgency))
        await self._call(work, self.spec.timeout)

    # -- the queue

    def _next(self) -> tuple[list[str] | None, float | None]:
        """Return the keys of the notices to send next, as one notice; else the seconds until the clock is read again,
        because it may be set."""
        quiet, now = self.spec.quiet, self._clock.now()
        if quiet is not None and quiet.covers(now):
            keys = [key for key, notice in self._waiting.items() if notice.severity == "critical"][:1]
            return keys or None, min((quiet.end_after(now) - now).total_seconds(), LOOK_AGAIN)
        held_keys = [key for key, notice in self._waiting.items() if self._was_held(notice)]
        first = list(self._waiting)[:1]
        return (held_keys if first == held_keys[:1] else first) or None, None

    async def _send(self, keys: list[str]) -> None:
        await self.deliver(self._join(keys))

    async def _sent(self, keys: list[str]) -> None:
        self.counts["sent"] += 1
        if self.failures:
            self.failures, self.last_error = 0, ""
            log.info("notifier works again", agent=self._core.name, notifier=self.spec.name)
            self._core.events.publish(NotifierRestored(notifier=self.spec.name))
        for key in keys:
            if self._waiting.pop(key, None) is not None:  # else it was dropped meanwhile
                self._forget(key)

    def _failed(self, keys: list[str], error: Exception) -> float:
        self.counts["failed"] += 1
        self.failures += 1
        self.last_error = why = str(error) or type(error).__name__
        if self.failures == 1:  # no alert, because it could not be sent
            log.warning("notifier fails", agent=self._core.name, notifier=self.spec.name, reason=why)
            self._core.events.publish(NotifierFailed(notifier=self.spec.name, reason=why, waiting=self.waiting))
        last = next((self._waiting[key] for key in reversed(keys) if key in self._waiting), None)
        if last is None or (self._clock.now() - self._sendable_from(last)).total_seconds() <= self.spec.give_up_after:
            return AGAIN.delay(self.failures)
        self._give_up(keys, why)
        return 0.0

    def _give_up(self, keys: list[str], why: str) -> None:
        for key in keys:
            if self._waiting.pop(key, None) is not None:
                self.counts["given_up"] += 1
                log.error("notice given up", agent=self._core.name, notifier=self.spec.name, notice=key, reason=why)
                self._forget(key)

    # -- quiet hours

    def _is_quiet(self) -> bool:
        return self.spec.quiet is not None and self.spec.quiet.covers(self._clock.now())

    def _was_held(self, notice: Notice) -> bool:
        quiet = self.spec.quiet
        return quiet is not None and notice.severity != "critical" and quiet.covers(notice.at)

    def _sendable_from(self, notice: Notice) -> datetime:
        """Return the time from which a notice may be sent."""
        quiet = self.spec.quiet
        return quiet.end_after(notice.at) if quiet is not None and self._was_held(notice) else notice.at

    def _join(self, keys: list[str]) -> Notice:
        """Return one notice for all of these; its id depends on their ids only, so it stays the same after a
        restart."""
        notices, core = [self._waiting[key] for key in keys], self._core
        if len(notices) == 1:
            return notices[0]
        lines = [f"{notice.at.astimezone():%H:%M} {notice.title}: {notice.text}" for notice in notices]
        digest = blake2b("\0".join(notice.id for notice in notices).encode(), digest_size=12).hexdigest()
        title = f"spar {core.name}: {len(notices)} notices of the quiet hours"
        return Notice(
            f"quiet.{digest}", "quiet", "digest", "warning", title, "\n".join(lines), notices[-1].at, core.name
        )
