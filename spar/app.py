"""The composition root: settings become parts, parts become an agent, an agent becomes a service.

Reads like a parts list. Every part comes from the registry by its name in the configuration; nothing here names a
phase package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spar import __version__
from spar.agent import Agent
from spar.clock import Clock
from spar.config_file import explain
from spar.errors import ConfigError
from spar.events import ConfigReloaded, ErrorOccurred
from spar.logs import get_logger
from spar.metrics import Metrics
from spar.protocols import Home, SensorSpec
from spar.registry import Registry
from spar.settings import Loaded, changed, load, reloads
from spar.types import Fault

log = get_logger("spar.app")

#: Which settings each module is built from: a change to one of them builds that module anew.
BUILT_FROM: dict[str, tuple[str, ...]] = {
    "sense": ("sense", "sensors", "perception"),
    "plan": ("plan", "rules", "tools"),
    "act": ("act", "tools", "acting"),
    "reflect": ("reflect",),
}
#: Seconds for which the event loop may be blocked before the process counts as dead.
DEAD_AFTER = 15.0


def home_of(loaded: Loaded) -> Home:
    """The folders of a service; relative ones start at the configuration file's."""
    service, folder = loaded.settings.service, loaded.folder
    return Home(str(folder), str(folder / service.workspace), str(folder / service.state_dir))


class Parts:
    """Builds the parts that the settings name. Raises: ConfigError with file and line."""

    def __init__(self, loaded: Loaded, registry: Registry | None = None) -> None:
        self.loaded, self.settings = loaded, loaded.settings
        self.home = home_of(loaded)
        self.registry = registry or Registry()

    def memory(self, **more: Any) -> Any:
        part = self.settings.memory
        return self._build("spar.stores", ("memory",), part.use, {**part.options, **more}, options_path=("memory",))

    def sense(self) -> Any:
        part = self.settings.sense
        extra = {"sensors": tuple(self.sensors()), "pipeline": self.settings.perception}
        return self._build("spar.senses", ("sense",), part.use, part.options, extra=extra)

    def sensors(self) -> list[SensorSpec]:
        specs = []
        for index, part in enumerate(self.settings.sensors):
            sensor = self._build("spar.sensors", ("sensors", index), part.use, part.options)
            specs.append(SensorSpec(part.label, sensor, part.every, part.timeout, part.max_failures, part.within,
                                    part.probe_after, part.session))  # fmt: skip
        return specs

    def tools(self) -> list[Any]:
        tools = []
        for index, part in enumerate(self.settings.tools):
            tool = self._build("spar.tools", ("tools", index), part.use, part.options)
            if part.name:
                tool.name = part.name
            tools.append(tool)
        return tools

    def plan(self, tool_names: list[str]) -> Any:
        part = self.settings.plan
        extra = {"rules": list(self.settings.rules), "tools": tool_names}
        return self._build("spar.planners", ("plan",), part.use, part.options, extra=extra)

    def act(self, tools: list[Any]) -> Any:
        part = self.settings.act
        acting = self.settings.acting
        extra = {"tools": tuple(tools), "settings": acting.model_dump(exclude={"approval_timeout"}),
                 "approval_timeout": acting.approval_timeout or None}  # fmt: skip
        return self._build("spar.actors", ("act",), part.use, part.options, extra=extra)

    def reflect(self) -> Any:
        part = self.settings.reflect
        return self._build("spar.reflectors", ("reflect",), part.use, part.options)

    def _build(self, group: str, path: tuple[str | int, ...], use: str, options: Mapping[str, Any], *,
               extra: Mapping[str, Any] | None = None, options_path: tuple[str, ...] | None = None) -> Any:  # fmt: skip
        try:
            return self.registry.build(group, path, use, options, home=self.home, extra=extra, options_path=options_path)
        except ConfigError as error:
            raise explain(error, self.loaded) from error


def build_agent(loaded: Loaded, *, clock: Clock | None = None, registry: Registry | None = None) -> Agent:
    """The agent that the settings describe, not yet started. Raises: ConfigError."""
    parts = Parts(loaded, registry)
    tools = parts.tools()
    return Agent(
        sense=parts.sense(),
        plan=parts.plan([tool.name for tool in tools]),
        act=parts.act(tools),
        reflect=parts.reflect(),
        memory=parts.memory(),
        settings=loaded.settings,
        clock=clock,
        home=parts.home,
    )


def agent_from_config(path: str | os.PathLike[str] | None = None, **overrides: str) -> Agent:
    """`Agent.from_config`: overrides are dotted keys with `__` for the dots (`log__level="debug"`)."""
    given = {key.replace("__", "."): value for key, value in overrides.items()}
    return build_agent(load(Path(path) if path is not None else None, overrides=given))


class Service:
    """What the doors talk to: the agent of this process, its memory, its metrics, and how to end it."""

    def __init__(self, loaded: Loaded, agent: Agent, *, log_dropped: Callable[[], int] = lambda: 0,
                 reload: Callable[[], Loaded] | None = None) -> None:  # fmt: skip
        self.loaded, self._agent = loaded, agent
        self._reload = reload or (lambda: load(loaded.path))
        self.started_at = datetime.now(UTC)
        self.metrics = Metrics(lambda: [self._agent], __version__, log_dropped=log_dropped)
        self.request_stop: Callable[[], None] = lambda: None
        self.addresses: dict[str, str] = {}

    # -- what it is

    def agent(self, name: str) -> Agent:
        """The agent of this name ("" is the only one). Raises: LookupError."""
        if name not in ("", self._agent.name):
            raise LookupError(f"no agent {name!r}; known: {self._agent.name}")
        return self._agent

    @property
    def memory(self) -> Any:
        return self._agent.memory

    def status(self) -> dict[str, Any]:
        """Everything that can be told without asking the work; safe from any thread."""
        agent = self._agent
        return {
            "version": __version__,
            "pid": os.getpid(),
            "started_at": self.started_at,
            "config": str(self.loaded.path) if self.loaded.path else None,
            "addresses": self.addresses,
            "agents": [describe(agent)],
        }

    # -- probes

    def alive(self) -> tuple[bool, dict[str, Any]]:
        """Whether the event loop answers. A paused or failing agent is alive."""
        blocked = self._agent.blocked_for()
        return blocked < DEAD_AFTER, {"status": "ok" if blocked < DEAD_AFTER else "dead", "blocked_seconds": round(blocked, 1)}

    def started(self) -> tuple[bool, dict[str, Any]]:
        """Whether start-up is over and stopping has not begun."""
        state = self._agent.state
        status = {"created": "starting", "stopping": "draining", "stopped": "stopped"}.get(state, "started")
        return status == "started", {"status": status}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether cycles complete. Paused by a person is ready; stalled, stuck, blocked and failed are not."""
        agent = self._agent
        alerts = sorted(agent.health.alerts)
        is_well = agent.state in ("running", "pausing", "paused") and not {"stalled", "stuck", "blocked", "failing"} & set(alerts)
        age = None if not agent.last_completed_at else round(datetime.now(UTC).timestamp() - agent.last_completed_at, 1)
        return is_well, {"state": agent.state, "alerts": alerts, "last_cycle_age_seconds": age}

    # -- reload

    async def reload(self) -> None:
        """Read the configuration again and apply what can be applied, between two cycles; work is never cut off.

        Raises: ConfigError that says what is wrong; the old configuration then stays in force.
        """
        agent = self._agent
        try:
            new = self._reload()
            keys = changed(self.loaded.settings, new.settings)
            live = [key for key in keys if reloads(key) == "live"]
            parts = self._rebuilt(new, live)
        except ConfigError as error:
            log.error("configuration not reloaded", agent=agent.name, reason=str(error))
            agent.events.publish(ErrorOccurred(cycle_id="", phase="reload", error=Fault.of(error), policy="continue", exception=error))
            raise
        await agent.exchange(parts, new.settings)
        needs_restart = tuple(key for key in keys if key not in live)
        self.loaded = new
        log.info("configuration reloaded", agent=agent.name, changed=live, needs_restart=list(needs_restart))
        agent.events.publish(ConfigReloaded(changed=tuple(live), needs_restart=needs_restart))

    def _rebuilt(self, loaded: Loaded, keys: list[str]) -> dict[str, Any]:
        """The modules that a change concerns, built anew but not opened."""
        sections = {key.partition(".")[0].partition("[")[0] for key in keys}
        concerned = [module for module, sources in BUILT_FROM.items() if sections & set(sources)]
        parts = Parts(loaded)
        tools = parts.tools() if {"plan", "act"} & set(concerned) else []
        makers: dict[str, Callable[[], Any]] = {
            "sense": parts.sense,
            "plan": lambda: parts.plan([tool.name for tool in tools]),
            "act": lambda: parts.act(tools),
            "reflect": parts.reflect,
        }
        return {module: makers[module]() for module in concerned}

    async def stop(self) -> None:
        self.request_stop()


def describe(agent: Agent) -> dict[str, Any]:
    """An agent as its status shows it; safe from any thread."""
    return {
        "name": agent.name,
        "state": agent.state,
        "failure": agent.failure,
        "loop_interval": agent.loop_interval,
        "stats": agent.stats,
        "alerts": [{"kind": a.kind, "severity": a.severity, "message": a.message, "since": a.since} for a in list(agent.health.alerts.values())],
        "lanes": [describe_lane(lane) for lane in list(agent.lanes.values())],
        "open_runs": agent.runs.open,
        "kept": agent.kept,
        "left_behind": agent.left_behind,
        "modules": {phase: _snapshot(module) for phase, module in agent.modules.items()},
        "memory": _snapshot_of(agent.memory),
    }


def describe_lane(lane: Any) -> dict[str, Any]:
    cycle = lane.cycle
    return {"session": lane.session, "waiting": lane.waiting, "cycle": cycle and cycle.id, "phase": cycle and cycle.phase}


def _snapshot(module: Any) -> dict[str, Any]:
    return {"use": module.name, **_snapshot_of(module.part)}


def _snapshot_of(part: Any) -> dict[str, Any]:
    snapshot = getattr(part, "snapshot", None)
    return snapshot() if callable(snapshot) else {}

