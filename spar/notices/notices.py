"""Notices of the alerts of one agent: once for each episode, with its end, kept until each notifier has told it.

An episode begins with an alert and ends with its recovery. It outlives the process: an alert that is open again after a
restart goes on with the same episode; one that is not seen again within `SETTLE` seconds has ended. Each notice has an
id that stays the same over restarts, so that whoever gets it twice knows it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec import Struct, field

from spar.clock import Timer
from spar.events import HealthAlert, HealthRecovered
from spar.health.alerts import Kind, key_of
from spar.loop.core import Core
from spar.notices.delivery import NoticeSender
from spar.observe.logs import get_logger
from spar.ports.notifier import Notice, NotifierSpec
from spar.protocols import ModuleRows

log = get_logger("spar.notices")

#: Under which name their rows are kept.
OWNER: Final = "notices"
#: Seconds after a start until an alert of the process before that is not open again counts as over.
SETTLE: Final = 120.0


class Episode(Struct):
    """An alert that is open, as far as people are told: its id, its key, what was said, and who was told of it."""

    id: str
    key: str
    kind: str
    severity: str
    message: str
    session: str = ""
    told: list[str] = field(default_factory=list)


class Notices:
    """Tells people of alerts through these notifiers. `rows` are where they are kept; None: nowhere."""

    def __init__(self, core: Core, specs: Iterable[NotifierSpec], rows: Callable[[], ModuleRows | None]) -> None:
        self._core, self._rows_of = core, rows
        self.by_name = {spec.name: NoticeSender(spec, core, partial(self._sent, spec.name)) for spec in specs}
        self._open: dict[str, Episode] = {}  # by the id of the alert in this process
        self._former: dict[str, Episode] = {}  # of the process before, by key
        self._repeating: dict[tuple[str, str], Timer] = {}  # by notifier and alert
        self._settling: Timer | None = None
        self._early: list[HealthAlert | HealthRecovered] | None = []  # what came before the rows were there
        core.events.subscribe(HealthAlert, self._on_event)
        core.events.subscribe(HealthRecovered, self._on_event)

    def snapshot(self) -> list[dict[str, Any]]:
        """Return how each notifier is doing, JSON-able; safe from any thread."""
        return [each.snapshot() for each in self.by_name.values()]

    async def begin(self) -> None:
        """Take up what the process before has left, and begin to send."""
        if (rows := self._rows_of()) is not None:
            try:
                self._restore(await rows.list())
            except Exception as error:  # what stands there is taken up by the next process
                log.error("notices of the process before not taken up", agent=self._core.name, reason=str(error))
        early, self._early = self._early or [], None
        for event in early:
            self._take(event)
        for each in self.by_name.values():
            each.begin()
        if self._former:
            clock = self._core.clock
            self._settling = clock.call_at(clock.monotonic() + SETTLE, self._settle)

    async def end(self) -> None:
        """Send no more; what waits is sent by the next process."""
        if self._settling is not None:
            self._settling.cancel()
        for timer in self._repeating.values():
            timer.cancel()
        self._repeating.clear()
        for each in self.by_name.values():
            await each.end()

    async def test(self, name: str) -> str:
        """Send a test through one notifier, now; return what was wrong, "" for nothing. Raises: LookupError."""
        if (found := self.by_name.get(name)) is None:
            known = ", ".join(self.by_name) or "none; see [[notifiers]] in config.toml"
            raise LookupError(f"no notifier named {name!r:.100}; known: {known}")
        core = self._core
        notice = Notice(core.clock.new_id(), "test", "test", "warning", f"spar {core.name}: a test",
                        "This is a test of the notifier. Nothing is wrong.", core.clock.now(), core.name)  # fmt: skip
        return await found.attempt(notice)

    # -- what happens

    def _on_event(self, event: HealthAlert | HealthRecovered) -> None:
        if self._early is not None:
            self._early.append(event)
        elif isinstance(event, HealthAlert) or self._core.state not in ("stopping", "stopped"):
            self._take(event)  # alerts that are closed by a stop are not over: the next process tells

    def _take(self, event: HealthAlert | HealthRecovered) -> None:
        if isinstance(event, HealthAlert):
            self._raised(event)
        elif (episode := self._open.pop(event.alert_id, None)) is not None:
            self._over(episode, f"after {event.duration:.0f} s")

    def _raised(self, event: HealthAlert) -> None:
        key = key_of(cast(Kind, event.kind), event.session, event.what)
        episode = self._open.get(event.alert_id) or self._former.pop(key, None)
        if episode is None:
            episode = Episode(event.alert_id, key, event.kind, event.severity, event.message, event.session)
        self._open[event.alert_id] = episode
        episode.severity, episode.message = event.severity, event.message
        for name, deliveries in self.by_name.items():
            said = f"{name}/{event.severity}"
            if deliveries.spec.wants(event.kind, event.severity) and said not in episode.told:
                episode.told.append(said)
                self._tell(deliveries, episode, "raised", episode.message)
            if said in episode.told and (name, event.alert_id) not in self._repeating:
                self._arm_repeat(deliveries, event.alert_id)
        self._keep(f"open/{episode.id}", msgspec.to_builtins(episode))

    def _over(self, episode: Episode, how: str) -> None:
        self._drop(f"open/{episode.id}")
        for name in dict.fromkeys(said.rpartition("/")[0] for said in episode.told):
            if (deliveries := self.by_name.get(name)) is not None:
                self._tell(deliveries, episode, "recovered", f"{how}; it was: {episode.message}")

    def _settle(self) -> None:
        former, self._former = self._former, {}
        for episode in former.values():
            self._over(episode, "not seen again since the service was started anew")

    def _arm_repeat(self, deliveries: NoticeSender, alert_id: str) -> None:
        if seconds := deliveries.spec.repeat:
            clock = self._core.clock
            again = partial(self._repeat, deliveries, alert_id)
            self._repeating[deliveries.spec.name, alert_id] = clock.call_at(clock.monotonic() + seconds, again)

    def _repeat(self, deliveries: NoticeSender, alert_id: str) -> None:
        if (episode := self._open.get(alert_id)) is not None and not deliveries.waiting:
            self._tell(deliveries, episode, "raised", f"still: {episode.message}", self._core.clock.new_id())
        if episode is not None:
            self._arm_repeat(deliveries, alert_id)
        else:
            self._repeating.pop((deliveries.spec.name, alert_id), None)

    # -- what is kept

    def _tell(self, deliveries: NoticeSender, episode: Episode, state: Any, text: str, more: str = "") -> None:
        core, severity = self._core, episode.severity
        head = f"{severity} {episode.kind}" if state == "raised" else f"over: {episode.kind}"
        where = f" in session {episode.session}" if episode.session else ""
        id = ".".join(filter(None, (episode.id, state, severity if state == "raised" else "", more)))
        notice = Notice(id, episode.kind, state, severity, f"spar {core.name}: {head}{where}", text, core.clock.now(),
                        core.name, episode.session, episode.id)  # fmt: skip
        key = f"{deliveries.spec.name}/{id}"
        self._keep(f"out/{key}", msgspec.to_builtins(notice))
        deliveries.add(key, notice)

    def _sent(self, name: str, key: str) -> None:
        self._drop(f"out/{key}")

    def _keep(self, key: str, value: Any) -> None:
        if (rows := self._rows_of()) is not None:
            rows.keep(key, value)

    def _drop(self, key: str) -> None:
        if (rows := self._rows_of()) is not None:
            rows.drop(key)

    def _restore(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            kind, _, rest = key.partition("/")
            try:
                if kind == "open":
                    episode = msgspec.convert(value, Episode)
                    self._former[episode.key] = episode
                elif (deliveries := self.by_name.get(rest.partition("/")[0])) is not None:
                    deliveries.add(rest, msgspec.convert(value, Notice))
                else:  # its notifier is configured no more
                    self._drop(key)
            except msgspec.ValidationError as error:  # of another version
                log.warning("notice not taken over", agent=self._core.name, notice=key, reason=str(error))
                self._drop(key)
