"""Notices of the alerts of one agent: one for each episode and one for its end, stored until each notifier has sent
them.

An episode begins with an alert and ends with its recovery. It outlives the process: an alert that is open again after a
restart continues the episode; an episode whose alert does not return within `SETTLE` seconds has ended. Each notice has
an id that stays the same over restarts, so that a receiver recognises a repeated notice. In quiet hours a notifier
sends only critical notices; those that waited for their end follow as one notice.

Of several nodes that run an agent the one with the channels sends the notices of all; each has the episodes of its own
alerts.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct, field

from spar.attaching import Attaching
from spar.backoff import Backoff, Trouble
from spar.channels.conversations import Channels
from spar.channels.outbox import Outbox, TurnRows, read_rows, restore
from spar.clock import Timer
from spar.decoding import convert
from spar.errors import PermanentError, TransientError
from spar.events import HealthAlert, HealthRecovered, NotifierFailed, NotifierRestored
from spar.health.alerts import Kind, key_of
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.ports.any_part import Attachable, offers
from spar.ports.channel import Channel, ChannelLimits, ChannelSpec, DeliversNotices, Notice, NotifierSpec, Outgoing
from spar.protocols import Host
from spar.records.senders import CHANNELS, Delivery
from spar.threads import Threads
from spar.types import Fault, replace

log = get_logger("spar.notices")

#: Owner of the rows of notices.
OWNER: Final = "notices"
#: Seconds after a start until an alert of the former process that is not open again counts as over.
SETTLE: Final = 120.0
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
        self._notifier, self._core = notifier, core
        self._threads = Threads(f"notifier {name}", core.clock)

    async def send(self, message: Outgoing) -> str:
        """Send a notice. Raises: the errors of the notifier; none of them is permanent: a notice is tried for as long
        as any."""
        agent, now = self._core.name, self._core.clock.now()
        test = Notice(message.id, "test", "test", "warning", f"spar {agent}: a test", message.text, now, agent)
        try:
            await self._notify(convert(message.reply, Notice) if message.reply else test)
        except PermanentError as error:
            raise TransientError(str(error)) from error
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

    def snapshot(self, *, has_report: bool = True) -> dict[str, Any]:
        """Return its condition, JSON-able; safe from any thread. Args: has_report: makes no difference here."""
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


class Episode(Struct):
    """Open alert: its id, its key, its last message, and the notifiers that were given a notice (`told`:
    name/severity)."""

    id: str
    key: str
    kind: str
    severity: str
    message: str
    session: str = ""
    told: list[str] = field(default_factory=list)


class Notices:
    """Notices for people, sent through these notifiers, and stored in these rows.

    Args: forward: leaves a notice for the notifier of this name to the node that sends.
    """

    def __init__(self, core: Core, specs: Iterable[NotifierSpec], rows: TurnRows,
                 forward: Callable[[str, Notice], object]) -> None:  # fmt: skip
        self._core, self._rows, self._forward = core, rows, forward
        self._is_here = False
        self.by_name = {spec.name: NotifierOutbox(spec, core, rows) for spec in specs}
        self._open: dict[str, Episode] = {}  # by the id of the alert in this process
        self._former: dict[str, Episode] = {}  # of the former process, by key
        self._repeating: dict[tuple[str, str], Timer] = {}  # by notifier and alert
        self._settling: Timer | None = None
        self._early: list[HealthAlert | HealthRecovered] | None = []  # events before `open`

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the condition of each notifier, JSON-able; safe from any thread."""
        return [outbox.snapshot() for outbox in self.by_name.values()]

    async def open(self) -> None:
        """Begin to make notices, and to send them if this node does."""
        if (shared := self._core.shared) is None:
            await self.begin()
        elif self.by_name:
            await shared.hold(CHANNELS, self)
        early, self._early = self._early or [], None
        for event in early:
            self._handle(event)

    async def begin(self) -> None:
        """Continue with the notices of the former process, and start sending. Raises: SparError, of several nodes."""
        if self._is_here:
            return
        try:
            stored = self._take_old(await self._rows.list())
            for delivery in restore(self.by_name, stored):  # its notifier is not configured any more
                self._rows.drop(f"out/{delivery.id}")
            self._former = {episode.key: episode for episode in read_rows(stored, "open/", Episode)}
        except Exception as error:
            if self._core.shared is not None:
                raise
            log.error("notices of the process before not taken up", agent=self._core.name, reason=str(error))
        self._is_here, self._rows.is_void = self._core.has(CHANNELS), False
        if not self._is_here:  # it was lost meanwhile
            return
        for outbox in self.by_name.values():
            outbox.start()
        clock = self._core.clock
        if self._former:
            self._settling = clock.call_at(clock.monotonic() + SETTLE, self._settle)

    def _take_old(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Enqueue the notices whose key is `out/NOTIFIER/ID`, as earlier versions wrote them; return the other rows."""
        old = {key: key.split("/")[1] for key in stored if key.startswith("out/") and key.count("/") > 1}
        for key, name in old.items():
            if name in self.by_name:
                self.by_name[name].add(convert(stored[key], Notice))
            self._rows.drop(key)
        return {key: value for key, value in stored.items() if key not in old}

    async def end(self) -> None:
        """Stop sending; the next process sends the waiting notices."""
        self._is_here = False
        if self._settling is not None:
            self._settling.cancel()
        await asyncio.gather(*(outbox.close() for outbox in self.by_name.values()))
        self._rows.write()
        self._settling, self._former = None, {}
        if self._core.shared is not None:  # another node goes on with these
            for outbox in self.by_name.values():
                outbox.items.clear()
                outbox.failed.clear()

    def lose(self) -> None:
        """Stop at once, and store nothing more."""
        self._is_here = False
        self._rows.void()
        for outbox in self.by_name.values():
            outbox.cut()

    async def close(self) -> None:
        """Stop sending, and make no more notices."""
        for timer in self._repeating.values():
            timer.cancel()
        self._repeating.clear()
        await self.end()

    async def test(self, name: str) -> str:
        """Send a test through one notifier now; return what was wrong, "" for nothing. Raises: LookupError."""
        if (outbox := self.by_name.get(name)) is None:
            known = ", ".join(self.by_name) or "none; see [[notifiers]] in config.toml"
            raise LookupError(f"no notifier named {name!r:.100}; known: {known}")
        return await outbox.test()

    # -- events

    def take(self, event: HealthAlert | HealthRecovered) -> None:
        """Tell people of the beginning or the end of an alert."""
        if self._early is not None:
            self._early.append(event)
        elif isinstance(event, HealthAlert) or self._core.state not in ("stopping", "stopped"):
            self._handle(event)  # a stop closes alerts that are not over: the next process decides

    def _handle(self, event: HealthAlert | HealthRecovered) -> None:
        if isinstance(event, HealthAlert):
            self._begin_episode(event)
        elif (episode := self._open.pop(event.alert_id, None)) is not None:
            self._end_episode(episode, f"after {event.duration:.0f} s")

    def _begin_episode(self, event: HealthAlert) -> None:
        key = key_of(cast(Kind, event.kind), event.session, event.what)
        episode = self._open.get(event.alert_id) or self._former.pop(key, None)
        if episode is None:
            episode = Episode(event.alert_id, key, event.kind, event.severity, event.message, event.session)
        self._open[event.alert_id] = episode
        episode.severity, episode.message = event.severity, event.message
        for name, outbox in self.by_name.items():
            notified = f"{name}/{event.severity}"
            if outbox.terms.wants(event.kind, event.severity) and notified not in episode.told:
                episode.told.append(notified)
                self._tell(outbox, episode, "raised", episode.message)
            if notified in episode.told and (name, event.alert_id) not in self._repeating:
                self._arm_repeat(outbox, event.alert_id)
        if self._core.shared is None:
            self._rows.keep(f"open/{episode.id}", episode)

    def _end_episode(self, episode: Episode, how: str) -> None:
        self._rows.drop(f"open/{episode.id}")
        for name in dict.fromkeys(notified.rpartition("/")[0] for notified in episode.told):
            if (outbox := self.by_name.get(name)) is not None:
                self._tell(outbox, episode, "recovered", f"{how}; it was: {episode.message}")

    def _settle(self) -> None:
        former, self._former = self._former, {}
        for episode in former.values():
            self._end_episode(episode, "not seen again since the service was started anew")

    def _arm_repeat(self, outbox: NotifierOutbox, alert_id: str) -> None:
        if seconds := outbox.terms.repeat:
            clock = self._core.clock
            again = partial(self._repeat, outbox, alert_id)
            self._repeating[outbox.spec.name, alert_id] = clock.call_at(clock.monotonic() + seconds, again)

    def _repeat(self, outbox: NotifierOutbox, alert_id: str) -> None:
        if (episode := self._open.get(alert_id)) is not None and not outbox.items:
            self._tell(outbox, episode, "raised", f"still: {episode.message}", self._core.clock.new_id())
        if episode is not None:
            self._arm_repeat(outbox, alert_id)
        else:
            self._repeating.pop((outbox.spec.name, alert_id), None)

    # -- sending and storing

    def _tell(self, outbox: NotifierOutbox, episode: Episode, state: Any, text: str, suffix: str = "") -> None:
        core, severity = self._core, episode.severity
        head = f"{severity} {episode.kind}" if state == "raised" else f"over: {episode.kind}"
        where = f" in session {episode.session}" if episode.session else ""
        id = ".".join(filter(None, (episode.id, state, severity if state == "raised" else "", suffix)))
        notice = Notice(id, episode.kind, state, severity, f"spar {core.name}: {head}{where}", text, core.clock.now(),
                        core.name, episode.session, episode.id)  # fmt: skip
        if self._is_here or core.shared is None:
            outbox.add(notice)
        else:
            self._forward(outbox.spec.name, notice)


class NoticeAttachment:
    """Attachment of the notifiers of a configuration or a program; it needs that of channels, which list undelivered
    notices."""

    name = "notices"

    def __init__(self, notifiers: Sequence[NotifierSpec] = ()) -> None:
        self._specs = notifiers

    def attach(self, agent: Attaching) -> Notices:
        """Attach the notifiers."""
        core, services = agent.core, agent.services
        host = Host(core.name, core.clock, core.events, core.hooks, lambda: None)
        for spec in self._specs:
            if offers(spec.notifier, Attachable):
                spec.notifier.attach(host)

        channels = agent.needs(Channels)
        notices = Notices(core, self._specs, TurnRows(services.rows(OWNER)), channels.forward)
        channels.notifiers = notices.by_name
        agent.on(HealthAlert, notices.take)
        agent.on(HealthRecovered, notices.take)
        agent.open(notices.open)
        agent.close(notices.close)
        return notices
