"""Delivery of the notices of one notifier: one after another, again after a failure, without delaying anything else.

A notifier that hangs is left behind at its deadline, and is not called again before this attempt has ended. In its
quiet hours it gets only critical notices; those that waited for their end follow as one notice.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, Literal

from spar.backoff import Backoff
from spar.errors import ENDS_PROCESS
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


class NoticeSender:
    """Sender of notices through one notifier. `sent(key)` is called for each notice that was sent or given up."""

    def __init__(self, spec: NotifierSpec, core: Core, sent: Callable[[str], None]) -> None:
        self.spec, self._core, self._sent = spec, core, sent
        self._waiting: dict[str, Notice] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._hanging: asyncio.Task[Any] | None = None
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
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            self._give_up(oldest, f"{MOST_WAITING} notices wait already")
        self._waiting[key] = notice
        self._wake.set()

    def begin(self) -> None:
        """Start sending."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"notifier {self.spec.name}")

    async def end(self) -> None:
        """Stop sending; waiting notices stay stored."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def attempt(self, notice: Notice) -> str:
        """Try to send a notice once, at most until its deadline; return what was wrong, "" for nothing."""
        if self._hanging is not None and not self._hanging.done():
            return "an earlier attempt hangs and ignores that it was cancelled"
        task = asyncio.get_running_loop().create_task(self._deliver(notice))
        try:
            await asyncio.wait([task], timeout=self.spec.timeout)
        finally:
            if not task.done():
                task.cancel()
                self._hanging = task
                task.add_done_callback(_retrieve)
        if not task.done():
            return f"it took longer than {self.spec.timeout:g} s"
        if task.cancelled():
            return "it was cancelled"
        error = task.exception()
        if isinstance(error, ENDS_PROCESS):
            raise error
        return "" if error is None else str(error) or type(error).__name__

    async def _deliver(self, notice: Notice) -> None:
        notifier = self.spec.notifier
        if offers(notifier, DeliversNotices):
            await notifier.deliver(notice)
            return
        urgency = _URGENCY.get(notice.state) or _URGENCY[f"{notice.state}.{notice.severity}"]
        if inspect.iscoroutinefunction(notifier.notify):
            await notifier.notify(notice.title, notice.text, urgency=urgency)
        else:
            await self._threads.run(lambda: notifier.notify(notice.title, notice.text, urgency=urgency))

    async def _run(self) -> None:
        clock = self._core.clock
        while True:
            while not (keys := self._next()):
                await self._more()
            notice = self._join([self._waiting[key] for key in keys])
            reason = await self.attempt(notice)
            remaining = [key for key in keys if key in self._waiting]  # the others were dropped meanwhile
            if not reason:
                for key in remaining:
                    del self._waiting[key]
                self._note_success()
                for key in keys:
                    self._sent(key)
                continue
            self._note_failure(reason)
            if remaining and (clock.now() - self._sendable_from(notice)).total_seconds() > self.spec.give_up_after:
                for key in remaining:
                    del self._waiting[key]
                    self._give_up(key, reason)
                continue
            await clock.sleep(AGAIN.delay(self.failures))

    # -- quiet hours

    def _next(self) -> list[str]:
        """Return the keys of the notices to send next, as one notice; empty if there are none."""
        if self._is_quiet():
            return [key for key, notice in self._waiting.items() if notice.severity == "critical"][:1]
        held_keys = [key for key, notice in self._waiting.items() if self._was_held(notice)]
        first = list(self._waiting)[:1]
        return held_keys if first == held_keys[:1] else first

    async def _more(self) -> None:
        """Wait until there are more notices to send, or the quiet hours are over."""
        clock, quiet = self._core.clock, self.spec.quiet
        timer = None
        if quiet is not None and self._waiting:
            now = clock.now()
            seconds_left = (quiet.end_after(now) - now).total_seconds()
            timer = clock.call_at(clock.monotonic() + min(seconds_left, LOOK_AGAIN), self._wake.set)
        self._wake.clear()
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _is_quiet(self) -> bool:
        return self.spec.quiet is not None and self.spec.quiet.covers(self._core.clock.now())

    def _was_held(self, notice: Notice) -> bool:
        quiet = self.spec.quiet
        return quiet is not None and notice.severity != "critical" and quiet.covers(notice.at)

    def _sendable_from(self, notice: Notice) -> datetime:
        """Return the time from which a notice may be sent."""
        quiet = self.spec.quiet
        return quiet.end_after(notice.at) if quiet is not None and self._was_held(notice) else notice.at

    def _join(self, notices: list[Notice]) -> Notice:
        """Return one notice for all of these; its id depends on their ids only, so it stays the same after a
        restart."""
        first, last = notices[0], notices[-1]
        if len(notices) == 1:
            return first
        core = self._core
        lines = [f"{notice.at.astimezone():%H:%M} {notice.title}: {notice.text}" for notice in notices]
        digest = blake2b("\0".join(notice.id for notice in notices).encode(), digest_size=12).hexdigest()
        title = f"spar {core.name}: {len(notices)} notices of the quiet hours"
        return Notice(f"quiet.{digest}", "quiet", "digest", "warning", title, "\n".join(lines), last.at, core.name)

    # -- success and failure

    def _note_success(self) -> None:
        self.counts["sent"] += 1
        if self.failures:
            self.failures, self.last_error = 0, ""
            log.info("notifier works again", agent=self._core.name, notifier=self.spec.name)
            self._core.events.publish(NotifierRestored(notifier=self.spec.name))

    def _note_failure(self, why: str) -> None:
        self.counts["failed"] += 1
        self.failures += 1
        self.last_error = why
        if self.failures == 1:  # no alert, because it could not be sent
            log.warning("notifier fails", agent=self._core.name, notifier=self.spec.name, reason=why)
            self._core.events.publish(NotifierFailed(notifier=self.spec.name, reason=why, waiting=self.waiting))

    def _give_up(self, key: str, why: str) -> None:
        self.counts["given_up"] += 1
        log.error("notice given up", agent=self._core.name, notifier=self.spec.name, notice=key, reason=why)
        self._sent(key)


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
