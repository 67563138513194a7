"""Notices of the alerts of one agent: one for each episode and one for its end, stored until each notifier has sent
them.

An episode begins with an alert and ends with its recovery. It outlives the process: an alert that is open again after a
restart continues the episode; an episode whose alert does not return within `SETTLE` seconds has ended. Each notice has
an id that stays the same over restarts, so that a receiver recognises a repeated notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, cast

from msgspec import Struct, field

from spar.channels.outbox import TurnRows, read_rows, restore
from spar.clock import Timer
from spar.decoding import convert
from spar.events import HealthAlert, HealthRecovered
from spar.health.alerts import Kind, key_of
from spar.loop.core import Core
from spar.notices.delivery import NotifierOutbox
from spar.observe.logs import get_logger
from spar.ports.notifier import Notice, NotifierSpec

log = get_logger("spar.notices")

#: Owner of the rows of notices.
OWNER: Final = "notices"
#: Seconds after a start until an alert of the former process that is not open again counts as over.
SETTLE: Final = 120.0


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
    """Notices for people, sent through these notifiers, and stored in these rows."""

    def __init__(self, core: Core, specs: Iterable[NotifierSpec], rows: TurnRows) -> None:
        self._core, self._rows = core, rows
        self.by_name = {spec.name: NotifierOutbox(spec, core, rows) for spec in specs}
        self._open: dict[str, Episode] = {}  # by the id of the alert in this process
        self._former: dict[str, Episode] = {}  # of the former process, by key
        self._repeating: dict[tuple[str, str], Timer] = {}  # by notifier and alert
        self._settling: Timer | None = None
        self._early: list[HealthAlert | HealthRecovered] | None = []  # events before `begin`
        core.events.subscribe(HealthAlert, self._on_event)
        core.events.subscribe(HealthRecovered, self._on_event)

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the condition of each notifier, JSON-able; safe from any thread."""
        return [outbox.snapshot() for outbox in self.by_name.values()]

    async def begin(self) -> None:
        """Continue with the notices of the former process, and start sending."""
        try:
            stored = self._take_old(await self._rows.list())
            for delivery in restore(self.by_name, stored):  # its notifier is not configured any more
                self._rows.drop(f"out/{delivery.id}")
            self._former = {episode.key: episode for episode in read_rows(stored, "open/", Episode)}
        except Exception as error:  # the next process tries again to read them
            log.error("notices of the process before not taken up", agent=self._core.name, reason=str(error))
        early, self._early = self._early or [], None
        for event in early:
            self._handle(event)
        for outbox in self.by_name.values():
            outbox.start()
        if self._former:
            clock = self._core.clock
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
        if self._settling is not None:
            self._settling.cancel()
        for timer in self._repeating.values():
            timer.cancel()
        self._repeating.clear()
        await asyncio.gather(*(outbox.close() for outbox in self.by_name.values()))

    async def test(self, name: str) -> str:
        """Send a test through one notifier now; return what was wrong, "" for nothing. Raises: LookupError."""
        if (outbox := self.by_name.get(name)) is None:
            known = ", ".join(self.by_name) or "none; see [[notifiers]] in config.toml"
            raise LookupError(f"no notifier named {name!r:.100}; known: {known}")
        return await outbox.test()

    # -- events

    def _on_event(self, event: HealthAlert | HealthRecovered) -> None:
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
        outbox.add(notice)
