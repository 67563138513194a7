"""The composition root: settings become parts, parts become an agent, an agent becomes a service.

Reads like a parts list. Every part comes from the registry by its name in the configuration; nothing here names a
phase package.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spar import __version__, defaults
from spar.agent import Agent
from spar.clock import Clock
from spar.config_file import explain
from spar.errors import ConfigError, ContractError, LifecycleError, NotReadyError, SparError
from spar.events import ConfigReloaded, ErrorOccurred
from spar.health_metrics import snapshot_of
from spar.logs import get_logger
from spar.metrics import Metrics
from spar.optional_ports import Named, Plugin, ToolSource, offers
from spar.parts import Part
from spar.protocols import Home, JudgesCalls, SensorSpec, Warns, WritesCalls
from spar.recovery import STARTS_WITHIN
from spar.registry import Registry
from spar.settings import RELOAD, Loaded, Settings, changed, load, reloads
from spar.terms import terms_of
from spar.types import Fault, Phase, replace
from spar.waiting import Waiting

log = get_logger("spar.app")

#: Which settings each module is built from: a change to one of them builds that module anew.
BUILT_FROM: dict[Phase, tuple[str, ...]] = {
    "sense": ("sense", "sensors", "perception"),
    "plan": ("plan", "rules", "tools"),
    "act": ("act", "tools", "acting", "approval"),
    "reflect": ("reflect",),
}
#: Seconds for which the event loop may be blocked before the process counts as dead.
DEAD_AFTER = 15.0


def home_of(loaded: Loaded) -> Home:
    """The folders of a service; relative ones start at the configuration file's."""
    service, folder = loaded.settings.service, loaded.folder
    return Home(str(folder), str(folder / service.workspace), str(folder / service.state_dir))


def default_registry(folder: str = "") -> Registry:
    """Return the parts that can be named, modules in a folder included; with `SPAR_PLUGINS=off` only those in the
    box by name."""
    return Registry(allow_plugins=os.environ.get("SPAR_PLUGINS", "").lower() != "off", folder=folder)


class Parts:
    """Builds the parts that the settings name. Raises: ConfigError with file and line."""

    def __init__(self, loaded: Loaded, registry: Registry | None = None) -> None:
        self.loaded, self.settings = loaded, loaded.settings
        self.home = home_of(loaded)
        self.registry = registry or default_registry(self.home.config)

    def memory(self, **more: Any) -> Any:
        part = self.settings.memory
        return self._build("spar.stores", ("memory",), part.use, {**part.options, **more}, options_path=("memory",))

    def sense(self) -> Any:
        return self._module(
            "sense", "spar.senses", {"sensors": tuple(self.sensors()), "pipeline": self.settings.perception}
        )

    def sensors(self) -> list[SensorSpec]:
        specs = []
        for index, part in enumerate(self.settings.sensors):
            sensor = self._build("spar.sensors", ("sensors", index), part.use, part.options)
            try:
                specs.append(SensorSpec(part.label, sensor, part.every, part.timeout, part.max_failures, part.within,
                                        part.probe_after, part.session, part.when_full))  # fmt: skip
            except ContractError as error:
                raise explain(ConfigError(str(error), path=("sensors", index, "use")), self.loaded) from None
        return specs

    def tools(self) -> list[Any]:
        tools: dict[str, Any] = {}
        for index, part in enumerate(self.settings.tools):
            tool = self._build("spar.tools", ("tools", index), part.use, part.options)
            if part.terms and is_source(tool):
                sentence = "is for single tools: what offers several takes its terms in its options"
                raise explain(ConfigError(sentence, path=("tools", index, next(iter(part.terms)))), self.loaded)
            if part.name or part.terms:
                tool = under(tool, {**part.terms, **({"name": part.name} if part.name else {})})
            if (name := name_of(tool)) in tools:
                sentence = f"{name!r} is the name of another tool already; give this one a `name` of its own"
                raise explain(ConfigError(sentence, path=("tools", index, "name" if part.name else "use")), self.loaded)
            tools[name] = tool
        return list(tools.values())

    def plan(self, tool_names: list[str]) -> Any:
        return self._module("plan", "spar.planners", {"rules": list(self.settings.rules), "tools": tool_names})

    def act(self, tools: list[Any]) -> Any:
        extra = {"tools": tuple(tools), **defaults.acting(self.settings)}
        module = self._module("act", "spar.actors", extra)
        self._know_what_rules_name([name_of(tool) for tool in tools])
        return module

    def _know_what_rules_name(self, names: list[str]) -> None:
        """A rule that forbids what is not there because its name is misspelt would forbid nothing, and nobody knew."""
        for index, rule in enumerate(self.settings.approval.rules):
            name = rule.tool or "*"
            if not set(name) & set("*?[") and name not in names and f"{name.partition('__')[0]}__*" not in names:
                sentence = f"no tool named {name!r:.100}; known: {', '.join(sorted(names)) or 'none'}"
                raise explain(ConfigError(sentence, path=("approval", "rules", index, "tool")), self.loaded)

    def plugins(self) -> list[Callable[[Agent], object]]:
        """What is handed the agent before it starts: functions, or objects with `register`."""
        found = []
        for index, part in enumerate(self.settings.plugins):
            made = self._build("spar.plugins", ("plugins", index), part.use, part.options)
            register = made.register if offers(made, Plugin) else made
            if not callable(register):
                sentence = f"{part.use!r} makes {made!r:.100}, which is no function and has no method 'register'"
                raise explain(ConfigError(sentence, path=("plugins", index, "use")), self.loaded)
            found.append(register)
        return found

    def reflect(self) -> Any:
        return self._module("reflect", "spar.reflectors", {})

    def _module(self, phase: Phase, group: str, extra: Mapping[str, Any]) -> Any:
        part: Part = getattr(self.settings, phase)
        module = self._build(group, (phase,), part.use, part.options, extra=extra)
        if not callable(getattr(module, phase, module)):
            sentence = f"{part.use!r} makes {module!r:.100}, which is no function and has no method {phase!r}"
            raise explain(ConfigError(sentence, path=(phase, "use")), self.loaded)
        return module

    def _build(self, group: str, path: tuple[str | int, ...], use: str, options: Mapping[str, Any], *,
               extra: Mapping[str, Any] | None = None, options_path: tuple[str, ...] | None = None) -> Any:  # fmt: skip
        try:
            return self.registry.build(
                group, path, use, options, home=self.home, extra=extra, options_path=options_path
            )
        except ConfigError as error:
            raise explain(error, self.loaded) from error


def name_of(tool: Any) -> str:
    """What calls name a tool by: an object's `name`, what `@tool` says, the function's own; `name__*` of a source."""
    if is_source(tool):
        return f"{tool.name}__*"
    own = tool.name if offers(tool, Named) else ""
    return str(own or terms_of(tool).name or getattr(tool, "__name__", ""))


def is_source(part: Any) -> bool:
    """Whether it offers tools rather than being one."""
    return offers(part, ToolSource)


def under(tool: Any, terms: Mapping[str, Any]) -> Any:
    """The tool under other terms (its name is one); a function is left as it is for those who call it by its own."""
    if not inspect.isroutine(tool) and not isinstance(tool, functools.partial):
        for key, value in terms.items():
            setattr(tool, key, value)
        return tool
    alias = functools.partial(tool)
    alias.__doc__ = tool.__doc__
    stated = terms_of(tool)
    alias.__spar_tool__ = replace(stated, **{"name": name_of(tool), **terms})  # type: ignore[attr-defined]
    return alias


def build_agent(loaded: Loaded, *, clock: Clock | None = None, registry: Registry | None = None) -> Agent:
    """The agent that the settings describe, not yet started. Raises: ConfigError."""
    parts = Parts(loaded, registry)
    tools = parts.tools()
    planner, actor = parts.plan([name_of(tool) for tool in tools]), parts.act(tools)
    judge_written_calls(planner, actor, loaded)
    agent = Agent(
        sense=parts.sense(),
        plan=planner,
        act=actor,
        reflect=parts.reflect(),
        memory=parts.memory(),
        settings=loaded.settings,
        clock=clock,
        home=parts.home,
    )
    agent.assembly.makers = makers(parts)
    for register in parts.plugins():
        register(agent)
    return agent


def makers(parts: Parts) -> dict[Phase, Callable[[], Any]]:
    """What makes each module anew, by its phase."""
    return {
        "sense": parts.sense,
        "plan": lambda: parts.plan([name_of(tool) for tool in parts.tools()]),
        "act": lambda: parts.act(parts.tools()),
        "reflect": parts.reflect,
    }


def judge_written_calls(planner: Any, actor: Any, loaded: Loaded) -> None:
    """Have each call that the configuration writes out judged by its tools. Raises: ConfigError with file and line."""
    if not isinstance(planner, WritesCalls) or not isinstance(actor, JudgesCalls):
        return
    for written in planner.written_calls():
        for tool in written.tools:
            if sentence := actor.objection(tool, written.params, written.unresolved):
                raise explain(ConfigError(sentence, path=written.path), loaded)


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
        self._reloading = asyncio.Lock()
        self.started_at = datetime.now(UTC)
        self.waiting = Waiting(agent.core, agent.setup)
        self.metrics = Metrics(
            lambda: [self._agent], __version__, log_dropped=log_dropped, waiting=lambda: [self.waiting]
        )
        self.request_stop: Callable[[], None] = lambda: None
        self.on_reloaded: Callable[[Settings], None] = lambda settings: None
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
            "agents": [{**describe(agent), "approvals": self.waiting.snapshot(datetime.now(UTC))}],
        }

    def demand_open(self) -> None:
        """Raises: NotReadyError while the agent starts or stops: what it knows and has promised is not there then."""
        agent = self._agent
        if agent.state in ("stopping", "stopped"):
            raise NotReadyError(f"agent {agent.name!r} is {agent.state}: it takes no work and no decisions any more")
        if agent.state == "created" and not agent.recovery.has_begun:
            raise NotReadyError(f"agent {agent.name!r} is starting: try again in a moment", retry_after=STARTS_WITHIN)

    # -- probes

    def alive(self) -> tuple[bool, dict[str, Any]]:
        """Whether the event loop answers. A paused or failing agent is alive."""
        blocked = self._agent.blocked_for()
        return blocked < DEAD_AFTER, {
            "status": "ok" if blocked < DEAD_AFTER else "dead",
            "blocked_seconds": round(blocked, 1),
        }

    def started(self) -> tuple[bool, dict[str, Any]]:
        """Whether start-up is over and stopping has not begun."""
        state = self._agent.state
        status = {"created": "starting", "stopping": "draining", "stopped": "stopped"}.get(state, "started")
        return status == "started", {"status": status}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether cycles complete and anything new is accepted. Paused by a person is ready; stalled is not, nor is a
        full disk."""
        agent = self._agent
        # While the loop is blocked nothing can open the alert: the watcher's word is enough.
        # Nor is the agent unfit for others because one session is in trouble.
        kinds = {alert.kind for alert in list(agent.health.alerts.values()) if alert.concerns_all}
        alerts = sorted({*kinds, *(["blocked"] if agent.blocked_since is not None else [])})
        is_well = agent.state in ("running", "pausing", "paused") and not {
            "stalled",
            "stuck",
            "blocked",
            "failing",
            "disk",
        } & set(alerts)
        last = agent.last_completed_at
        age = round(datetime.now(UTC).timestamp() - last, 1) if last else None
        report = {"state": agent.state, "alerts": alerts, "degraded": agent.health.makes_do}
        return is_well, {**report, "last_cycle_age_seconds": age}

    # -- reload

    async def reload(self) -> ConfigReloaded:
        """Read the configuration again and apply what can be applied; each session changes over between two of its
        cycles, work is never cut off nor held up.

        Raises: ConfigError that says what is wrong; LifecycleError when the agent does not run. The old
        configuration then stays in force.
        """
        async with self._reloading:
            try:
                done = await self._reloaded()
            except Exception as error:
                refusal = (
                    error if isinstance(error, SparError) else ConfigError(f"the new parts cannot be opened: {error!r}")
                )
                log.error("configuration not reloaded", agent=self._agent.name, reason=str(refusal))
                fault = Fault.of(refusal)
                self._agent.events.publish(
                    ErrorOccurred(cycle_id="", phase="reload", error=fault, policy="continue", exception=error)
                )
                raise refusal from error
            log.info(
                "configuration reloaded",
                agent=self._agent.name,
                changed=list(done.changed),
                needs_restart=list(done.needs_restart),
            )
            self._agent.events.publish(done)
            return done

    async def _reloaded(self) -> ConfigReloaded:
        agent = self._agent
        if agent.state not in ("running", "pausing", "paused"):
            raise LifecycleError("reload", agent.state)
        new = self._reload()
        keys = changed(self.loaded.settings, new.settings)
        live = tuple(key for key in keys if reloads(key) == "live")
        loaded = Loaded(in_force(self.loaded.settings, new.settings), new.sources)
        made = makers(Parts(loaded))
        await agent.exchange(self._rebuilt(made, live, loaded), loaded.settings)
        agent.assembly.makers = made
        self.loaded = loaded
        self.on_reloaded(loaded.settings)
        return ConfigReloaded(changed=live, needs_restart=tuple(key for key in keys if key not in live))

    def _rebuilt(
        self, makers: Mapping[Phase, Callable[[], Any]], keys: tuple[str, ...], loaded: Loaded
    ) -> dict[str, Any]:
        """The modules that a change concerns, built anew but not opened."""
        sections = {key.partition(".")[0].partition("[")[0] for key in keys}
        made: dict[str, Any] = {
            phase: makers[phase]() for phase, sources in BUILT_FROM.items() if sections & set(sources)
        }
        now: dict[str, Any] = {phase: module.part for phase, module in self._agent.modules.items()}
        judge_written_calls(made.get("plan", now["plan"]), made.get("act", now["act"]), loaded)
        return made

    async def stop(self) -> None:
        """Ask for the end and return at once: whoever asked is answered before the door closes."""
        self.request_stop()


def in_force(old: Settings, new: Settings) -> Settings:
    """The new settings as far as they are applied to a running service; what needs a restart stays as it was."""
    sections = {}
    for name in Settings.model_fields:
        rest, exceptions = (old, new) if reloads(name) == "restart" else (new, old)
        section = getattr(rest, name)
        fields = [key.removeprefix(f"{name}.") for key in RELOAD if key.startswith(f"{name}.")]
        swapped = {field: getattr(getattr(exceptions, name), field) for field in fields}
        sections[name] = section.model_copy(update=swapped) if swapped else section
    return new.model_copy(update=sections)


def describe(agent: Agent) -> dict[str, Any]:
    """An agent as its status shows it; safe from any thread."""
    return {
        "name": agent.name,
        "state": agent.state,
        "failure": agent.failure,
        "loop_interval": agent.loop_interval,
        "stats": agent.stats,
        "alerts": [
            {"kind": a.kind, "severity": a.severity, "message": a.message, "since": a.since, "session": a.session}
            for a in list(agent.health.alerts.values())
        ],
        "lanes": [describe_lane(lane) for lane in list(agent.lanes.values())],
        "open_runs": agent.runs.open,
        "kept": agent.kept,
        "left_behind": agent.left_behind,
        "blocked_by": agent.blocked_by,
        "health": agent.health.snapshot(),
        "hooks": agent.hooks.snapshot(),
        "modules": {phase: _snapshot(module) for phase, module in agent.modules.items()},
        "memory": snapshot_of(agent.memory),
        "budgets": agent.budgets.snapshot(),
        "recovery": agent.recovery.snapshot(),
        "models": agent.health.model_report(),
        "waiting_for_models": sum(lane.waits_for_model for lane in list(agent.lanes.values())),
        "calls": agent.account.calls.totals(),
        "warnings": warnings_of(agent),
    }


def warnings_of(agent: Agent) -> list[str]:
    """What of the configuration will not work, as far as the modules know; safe from any thread."""
    found: list[str] = []
    for module in agent.modules.values():
        if isinstance(module.part, Warns):
            try:
                found += [str(each) for each in module.part.warnings()]
            except Exception as error:  # a part of somebody else's; the others are still told
                found.append(f"{module.name} cannot say what is wrong with it: {error!r:.200}")
    return found


def describe_lane(lane: Any) -> dict[str, Any]:
    cycle, now = lane.cycle, lane.core.clock.monotonic()
    return {
        "session": lane.session,
        "waiting": lane.waiting,
        "cycle": cycle and cycle.id,
        "phase": cycle and cycle.phase,
        "phase_seconds": None if cycle is None else round(max(now - cycle.phase_began, 0.0), 1),
        "waits_for_model": lane.waits_for_model,
        "next_look": lane.planned_look,
        "next_cycle_in": lane.rests_for,
    }


def _snapshot(module: Any) -> dict[str, Any]:
    return {"use": module.name, **snapshot_of(module.part)}
