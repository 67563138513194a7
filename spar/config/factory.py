"""The parts that the settings name, each from the registry by its name there; nothing here names a phase package."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from spar.config import defaults
from spar.config.lines import explain
from spar.config.load import Loaded
from spar.config.registry import Registry
from spar.config.tables.parts import Part
from spar.errors import ConfigError, ContractError
from spar.ports.channel import ChannelSpec
from spar.ports.optional import Named, Plugin, ToolSource, offers
from spar.protocols import Home, JudgesCalls, Lender, SensorSpec, WritesCalls
from spar.protocols.tools import terms_of
from spar.types import Phase, replace

#: Which settings each module is built from: a change to one of them builds that module anew.
BUILT_FROM: dict[Phase, tuple[str, ...]] = {
    "sense": ("sense", "sensors", "perception"),
    "plan": ("plan", "rules", "tools"),
    "act": ("act", "tools", "acting", "approval"),
    "reflect": ("reflect",),
}


def home_of(loaded: Loaded) -> Home:
    """The folders of a service; relative ones start at the configuration file's."""
    service, folder = loaded.settings.service, loaded.folder
    is_split = loaded.settings.acting.workspace == "per-session"
    return Home(str(folder), str(folder / service.workspace), str(folder / service.state_dir), is_split)


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
        #: Names of tools that the planner lends the actor.
        self._lent: list[str] = []

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
        extra = {"rules": list(self.settings.rules), "tools": tool_names}
        module = self._module("plan", "spar.planners", extra)
        lent = module.lends().tools if isinstance(module, Lender) else ()
        self._lent = [each.name for each in lent if offers(each, Named)]
        return module

    def act(self, tools: list[Any]) -> Any:
        extra = {"tools": tuple(tools), **defaults.acting(self.settings)}
        module = self._module("act", "spar.actors", extra)
        self._know_what_rules_name([*[name_of(tool) for tool in tools], *self._lent])
        return module

    def _know_what_rules_name(self, names: list[str]) -> None:
        """A rule that forbids what is not there because its name is misspelt would forbid nothing, and nobody knew."""
        for index, rule in enumerate(self.settings.approval.rules):
            name = rule.tool or "*"
            if not set(name) & set("*?[") and name not in names and f"{name.partition('__')[0]}__*" not in names:
                sentence = f"no tool named {name!r:.100}; known: {', '.join(sorted(names)) or 'none'}"
                raise explain(ConfigError(sentence, path=("approval", "rules", index, "tool")), self.loaded)

    def plugins(self) -> list[Callable[[Any], object]]:
        """Return what the agent is given before it starts: functions, or objects with `register`."""
        found = []
        for index, part in enumerate(self.settings.plugins):
            made = self._build("spar.plugins", ("plugins", index), part.use, part.options)
            register = made.register if offers(made, Plugin) else made
            if not callable(register):
                sentence = f"{part.use!r} makes {made!r:.100}, which is no function and has no method 'register'"
                raise explain(ConfigError(sentence, path=("plugins", index, "use")), self.loaded)
            found.append(register)
        return found

    def channels(self) -> list[ChannelSpec]:
        """Return the channels on which people talk with the agent."""
        specs = []
        for index, part in enumerate(self.settings.channels):
            channel = self._build("spar.channels", ("channels", index), part.use, part.options)
            try:
                specs.append(ChannelSpec(part.label, channel, part.timeout, part.max_failures, part.within,
                                         part.probe_after, part.session or "", part.mode, part.stream,
                                         part.give_up_after, part.reasoning))  # fmt: skip
            except ContractError as error:
                raise explain(ConfigError(str(error), path=("channels", index, "use")), self.loaded) from None
        return specs

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
    """Return the name that calls use for a tool: an object's `name`, that of `@tool`, or the function's own.

    A source of tools has `name__*`.
    """
    if is_source(tool):
        return f"{tool.name}__*"
    own = tool.name if offers(tool, Named) else ""
    return str(own or terms_of(tool).name or getattr(tool, "__name__", ""))


def is_source(part: Any) -> bool:
    """Return whether a part offers tools rather than being one."""
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


def makers(parts: Parts) -> dict[Phase, Callable[[], Any]]:
    """Return the function that makes each module anew, by its phase."""
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
