"""The service of one agent: status, probes, tokens, metrics and the reload of the configuration.

The HTTP servers and the process use it; it imports neither of them.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from spar import __version__
from spar.agent.parts import AgentParts
from spar.config.in_force import ROWS as CONFIGURATIONS
from spar.config.in_force import digest_of, readable
from spar.config.lines import dotted
from spar.config.load import RELOAD, changed, load_again, reloads
from spar.config.tables.section import as_table, settings_of
from spar.config.tables.settings import Loaded, Settings
from spar.data.json_safe import shortened
from spar.data.scrub import MASK, is_secret_name, masked
from spar.errors import ConfigError, KeyPath, LifecycleError, NotReadyError, SparError
from spar.events import ConfigReloaded, ErrorOccurred
from spar.journal.work import STARTS_WITHIN
from spar.observe.logs import get_logger
from spar.parts.factory import Parts, concerned, digests_of
from spar.ports.any_part import has
from spar.ports.store import OptionalStore
from spar.records.audit import AuditDraft, refine
from spar.review.pending_approvals import Waiting
from spar.service.agent_metrics import last_completed_at, snapshot_of, warnings_of
from spar.service.changes import ROWS as CHANGES
from spar.service.changes import ChangeRecord
from spar.service.feed import Feed
from spar.service.metrics import Metrics
from spar.service.tokens import Tokens
from spar.threads import Threads
from spar.types import Fault, Phase, replace

if TYPE_CHECKING:
    from spar.replay.shadow import Shadow

log = get_logger("spar.app")

#: Largest value of a changed setting that the audit log shows, in bytes; a larger one is cut.
LARGEST_SHOWN = 2_000
#: Seconds from the start to the first look at the tools, and between the further ones.
FIRST_LOOK, NEXT_LOOKS = 60.0, 3600.0
#: Alerts during which it takes no new work.
NOT_READY = frozenset({"stalled", "stuck", "blocked", "failing", "disk"})
#: Seconds for which the event loop may be blocked before the liveness probe fails.
DEAD_AFTER = 15.0


class _News(Struct, frozen=True):
    """Configuration that was read again: its parts and its secrets' digests, the keys that a reload changes and those
    that need a restart, their values before and after."""

    loaded: Loaded
    modules: dict[Phase, Any]
    digests: dict[KeyPath, str]
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]
    difference: dict[str, list[Any]]


class Service:
    """Application behind the HTTP servers: the agent of this process, its memory, its metrics and its end.

    Args:
        log_dropped: Returns how many log lines were lost.
        reload: Returns the configuration as its files have it now; default: loads the same file again.
    """

    def __init__(self, loaded: Loaded, agent: AgentParts, *, log_dropped: Callable[[], int] = lambda: 0,
                 reload: Callable[[], Loaded] | None = None) -> None:  # fmt: skip
        self.loaded, self.agent = loaded, agent
        self._digests = digests_of(loaded)
        self._reload = reload or partial(load_again, loaded)
        self._reloading = asyncio.Lock()
        self._threads = Threads("reload", agent.core.clock)
        self.started_at = datetime.now(UTC)
        self.waiting = Waiting(agent.core, agent.setup)
        self.tokens = Tokens(lambda: agent.memory, agent.core.clock.now)
        #: Requests at the port that were refused, by reason.
        self.refused: Counter[str] = Counter()
        self.metrics = Metrics(
            lambda: [self.agent], __version__, log_dropped=log_dropped, waiting=lambda: [self.waiting],
            refused=lambda: self.refused, shadow=lambda: self.shadow,
        )  # fmt: skip
        self.feed = Feed(agent.core.events, agent.core.clock, partial(_cycles, agent), partial(_session_of, agent))
        self.changes = ChangeRecord(
            partial(agent.agent_state.rows_of, CHANGES), agent.core.clock.now, agent.setup.tools,
            partial(agent.agent_state.rows_of, CONFIGURATIONS),
        )  # fmt: skip
        self._use_configuration()
        #: Second configuration, which decides beside this one; None without one.
        self.shadow: Shadow | None = None
        self.request_stop: Callable[[], None] = lambda: None
        self.on_reloaded: Callable[[Settings], None] = lambda settings: None
        self.addresses: dict[str, str] = {}

    # -- the agent and its status

    @property
    def agent_name(self) -> str:
        """Return the name of the agent."""
        return self.agent.core.name

    @property
    def memory(self) -> Any:
        """Return the store of the agent."""
        return self.agent.memory

    def configuration(self, *keys: str) -> Loaded:
        """Return the configuration in force."""
        return self.loaded

    def status(self, *, has_lanes: bool = True) -> dict[str, Any]:
        """Return the status of the service and its agent, without waiting for the event loop; safe from any thread.

        Args: has_lanes: whether the open sessions are included, which may be thousands.
        """
        agent = self.agent
        return {
            "version": __version__,
            "pid": os.getpid(),
            "started_at": self.started_at,
            "config": str(self.loaded.path) if self.loaded.path else None,
            "addresses": self.addresses,
            "shadow": None if self.shadow is None else asdict(self.shadow.state),
            "agent": {**describe(agent, has_lanes=has_lanes), "approvals": self.waiting.snapshot(datetime.now(UTC))},
        }

    def demand_open(self) -> None:
        """Check that the agent can take work and decisions.

        Raises: NotReadyError while the agent starts or stops: its memory and its journal are not open then.
        """
        name, state = self.agent_name, self.agent.core.state
        if state in ("stopping", "stopped"):
            raise NotReadyError(f"agent {name!r} is {state}: it takes no work and no decisions any more")
        if state == "created" and not self.agent.recovery.has_begun:
            raise NotReadyError(f"agent {name!r} is starting: try again in a moment", retry_after=STARTS_WITHIN)

    async def begin(self) -> None:
        """Begin what is recorded as long as the agent runs."""
        await self._recorded(self.changes.look_at_settings(self.loaded.settings))
        await self._recorded(self.changes.keep_configuration(*self._configuration))
        self._look_at_tools_in(FIRST_LOOK)

    def _use_configuration(self) -> None:
        """Have the cycles that begin now name the configuration in force."""
        values = readable(self.loaded)
        self._configuration = digest_of(values), values
        self.agent.core.configuration = self._configuration[0]

    def _look_at_tools_in(self, seconds: float) -> None:
        clock = self.agent.core.clock
        clock.call_at(clock.monotonic() + seconds, self._look_at_tools)

    def _look_at_tools(self) -> None:
        if self.agent.core.state in ("running", "pausing", "paused"):
            self.agent.requests.in_background(self._recorded(self.changes.look_at_tools()), "record of tools of")
        if self.agent.core.state != "stopped":
            self._look_at_tools_in(NEXT_LOOKS)

    async def _recorded(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out what is recorded beside; what the memory refuses is only logged."""
        try:
            await work
        except SparError as error:
            log.warning("not recorded", agent=self.agent_name, reason=str(error))

    # -- probes

    def alive(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the event loop answers, and the body of the probe. A paused or failing agent is alive."""
        blocked = self.agent.watched.blocked_for()
        status = "ok" if blocked < DEAD_AFTER else "dead"
        return status == "ok", {"status": status, "blocked_seconds": round(blocked, 1)}

    def started(self) -> tuple[bool, dict[str, Any]]:
        """Return whether start-up is over and stopping has not begun, and the body of the probe."""
        state = self.agent.core.state
        status = {"created": "starting", "stopping": "draining", "stopped": "stopped"}.get(state, "started")
        return status == "started", {"status": status}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Return whether cycles complete and new work is accepted, and the body of the probe.

        An agent that a person paused is ready. A stalled agent is not, nor one whose memory takes nothing now.
        """
        agent = self.agent
        # A blocked event loop cannot open the alert "blocked" itself, so the watchdog's time is read as well.
        # Alerts of a single session do not count: the other sessions still work.
        kinds = {alert.kind for alert in list(agent.health.alerts.values()) if alert.concerns_all}
        alerts = sorted({*kinds, *(["blocked"] if agent.watched.blocked_since is not None else [])})
        is_well = agent.core.state in ("running", "pausing", "paused") and NOT_READY.isdisjoint(alerts)
        refusal, last = agent.core.ledger.journal.refusal, last_completed_at(agent)
        age = round(datetime.now(UTC).timestamp() - last, 1) if last else None
        report = {"state": _state_of(agent), "alerts": alerts, "degraded": agent.health.makes_do}
        return is_well and not refusal, {**report, "refusal": refusal, "last_cycle_age_seconds": age}

    # -- reload

    async def reload(self) -> ConfigReloaded:
        """Read the configuration again and apply the settings that can change without a restart.

        Each session takes the new parts between two of its cycles. Work is neither interrupted nor delayed.

        Raises: ConfigError that says what is wrong; LifecycleError when the agent does not run. The old
        configuration then stays in force.
        """
        async with self._reloading:
            try:
                event = await self._apply_reload()
            except Exception as error:
                refusal = (
                    error if isinstance(error, SparError) else ConfigError(f"the new parts cannot be opened: {error!r}")
                )
                log.error("configuration not reloaded", agent=self.agent.core.name, reason=str(refusal))
                fault = Fault.of(refusal)
                self.agent.core.events.publish(
                    ErrorOccurred(cycle_id="", phase="reload", error=fault, policy="continue", exception=error)
                )
                raise refusal from error
            changed_keys, needs_restart = list(event.changed), list(event.needs_restart)
            log.info("configuration reloaded", agent=self.agent_name, changed=changed_keys, needs_restart=needs_restart)
            self.agent.core.events.publish(event)
            await self._recorded(self.changes.look_at_settings(self.loaded.settings))
            await self._recorded(self.changes.keep_configuration(*self._configuration))
            await self._recorded(self.changes.look_at_tools())
            return event

    async def check(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Read the configuration again and build the parts that a reload would exchange, without applying anything.

        Returns: The keys that a reload would change, and those that need a restart. Raises: SparError.
        """
        async with self._reloading:
            try:
                news = await self._news()
            except SparError:
                raise
            except Exception as error:
                raise ConfigError(f"the new parts cannot be built: {error!r}") from error
        return news.changed, news.needs_restart

    async def _news(self) -> _News:
        """Load the configuration and build the parts that changed. Raises: LifecycleError when the agent does not run;
        any error of a part."""
        agent = self.agent
        if agent.core.state not in ("running", "pausing", "paused"):
            raise LifecycleError("reload", agent.core.state)
        new = self._reload()
        digests = await self._threads.run(digests_of, new)  # reading a secret's file may be slow
        keys = tuple(
            dict.fromkeys([*changed(self.loaded.settings, new.settings), *self._keys_with_new_secrets(digests)])
        )
        live = tuple(key for key in keys if reloads(key) == "live")
        loaded = Loaded(in_force(self.loaded.settings, new.settings), new.sources)
        current = {phase: module.part for phase, module in agent.setup.modules.items()}
        modules = await self._threads.run(Parts(loaded).modules, concerned(live), current)  # may import large libraries
        rest = tuple(key for key in keys if key not in live)
        return _News(loaded, modules, digests, live, rest, difference(self.loaded.settings, new.settings, keys))

    async def _apply_reload(self) -> ConfigReloaded:
        """Load, build and exchange the parts that changed, and return the event that reports it."""
        news = await self._news()
        loaded = news.loaded
        refine(detail={"changed": news.difference})
        exchange = partial(self.agent.exchange_now, news.modules, loaded.settings)
        await self.agent.exclusively(exchange, "exchange")
        self.agent.lifespan.make = lambda phase: Parts(loaded).module(phase)
        self.loaded, self._digests = loaded, news.digests
        self._use_configuration()
        self.on_reloaded(loaded.settings)
        return ConfigReloaded(changed=news.changed, needs_restart=news.needs_restart)

    def _keys_with_new_secrets(self, digests: Mapping[KeyPath, str]) -> list[str]:
        """Return the keys whose secret has another value now, in its file or variable. A list of tables is one key."""
        new = [path for path, digest in digests.items() if self._digests.get(path, digest) != digest]
        return [str(path[0]) if isinstance(path[1], int) else dotted(path) for path in new]

    async def audit(self, draft: AuditDraft) -> None:
        """Write an entry of the audit log, if the store keeps one.

        Raises: SparError if the entry cannot be written.
        """
        if has(self.memory, OptionalStore.audit):
            await self.memory.audit.write(draft)

    async def stop(self) -> None:
        """Request the stop of the process and return at once, so that the HTTP request for it can be answered."""
        self.request_stop()


def difference(old: Settings, new: Settings, keys: Iterable[str]) -> dict[str, list[Any]]:
    """Return the old and the new value of each key, secrets masked and large values cut."""
    tables = [as_table(settings) for settings in (old, new)]
    return {key: [_displayed(table, key) for table in tables] for key in keys}


def _displayed(table: Any, key: str) -> Any:
    """Return the value of a key in a table of settings as the audit log shows it."""
    value = table
    for name in key.partition("[")[0].split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    shown, _ = shortened(MASK if is_secret_name(key.rpartition(".")[2]) else masked(value), LARGEST_SHOWN)
    return shown


def in_force(old: Settings, new: Settings) -> Settings:
    """Return the new settings, with the old values of those that need a restart."""
    sections = {}
    for name in settings_of(Settings):
        usual, exceptions = (old, new) if reloads(name) == "restart" else (new, old)
        section = getattr(usual, name)
        fields = [key.removeprefix(f"{name}.") for key in RELOAD if key.startswith(f"{name}.")]
        swapped = {field: getattr(getattr(exceptions, name), field) for field in fields}
        sections[name] = replace(section, **swapped) if swapped else section
    return replace(new, **sections)


def _state_of(agent: AgentParts) -> str:
    """Return the state of an agent, `standby` while its memory waits for its turn."""
    state = agent.core.state
    return "standby" if state == "created" and agent.agent_state.stands_by else state


def describe(agent: AgentParts, *, has_lanes: bool = True) -> dict[str, Any]:
    """Return the status of an agent; safe from any thread.

    Args: has_lanes: whether the open sessions are included.
    """
    senders, channels, budgets = map(agent.attachments.find, ("senders", "channels", "budgets"))
    sessions = list(agent.sessions.by_key.values())
    return {
        "name": agent.core.name,
        "state": _state_of(agent),
        "failure": agent.failure,
        "loop_interval": agent.setup.pace.interval,
        "stats": agent.account.snapshot(),
        "alerts": [
            {"kind": a.kind, "severity": a.severity, "message": a.message, "since": a.since, "session": a.session}
            for a in list(agent.health.alerts.values())
        ],
        **({"lanes": [describe_session(session) for session in sessions]} if has_lanes else {}),
        "senders_waiting": 0 if senders is None else senders.waiting,
        "open_runs": agent.runs.open,
        "kept": agent.agent_state.account,
        "left_behind": agent.left_behind,
        "blocked_by": agent.watched.blocked_by,
        "health": agent.health.snapshot(),
        "hooks": agent.core.hooks.snapshot(),
        "modules": {phase: _snapshot(module) for phase, module in agent.setup.modules.items()},
        "channels": {} if channels is None else channels.snapshot(),
        "memory": snapshot_of(agent.memory),
        "budgets": [] if budgets is None else budgets.snapshot(),
        "recovery": agent.recovery.snapshot(),
        "models": agent.health.models.report(),
        "waiting_for_models": sum(map(_waits_for_model, sessions)),
        "calls": agent.account.calls.totals(),
        "stands": [f"session {session.key!r} stands at {where}" for session in sessions for where in session.stands],
        "warnings": warnings_of(agent),
    }


def describe_session(session: Any) -> dict[str, Any]:
    cycle, until, now = session.cycle, session.rests_until, session.core.clock.monotonic()
    return {
        "session": session.key,
        "waiting": session.waiting,
        "cycle": cycle and cycle.id,
        "phase": cycle and cycle.phase,
        "phase_seconds": None if cycle is None else round(max(now - cycle.phase_began, 0.0), 1),
        "waits_for_model": _waits_for_model(session),
        "stands": "; ".join(session.stands),
        "next_look": session.planned_look,
        "next_cycle_in": None if until is None else max(0.0, round(until - now, 3)),
    }


def _waits_for_model(session: Any) -> bool:
    """Return whether the run of a session waits until a provider accepts requests again."""
    run = session.run
    return run is not None and run.waits_until > session.core.clock.monotonic()


def _snapshot(module: Any) -> dict[str, Any]:
    return {"use": module.name, **snapshot_of(module.part)}


def _cycles(agent: AgentParts) -> Iterator[tuple[str, str]]:
    """Yield the id and the session of each running cycle."""
    for session in agent.sessions.by_key.values():
        if session.cycle is not None:
            yield session.cycle.id, session.key


def _session_of(agent: AgentParts, run_id: str) -> str:
    run = agent.runs.find(run_id)
    return run.session if run is not None else ""
