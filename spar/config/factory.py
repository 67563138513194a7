"""Factory of the parts that the settings name, each from the registry by its name; nothing here names a phase
package."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any

from spar.config import defaults
from spar.config.lines import explain
from spar.config.load import Loaded, Settings
from spar.config.registry import Registry, default_registry
from spar.config.tables.parts import Part
from spar.config.tables.secret import SecretReference, digests, references, with_secrets
from spar.config.tables.section import settings_of
from spar.config.tables.service import MemorySettings
from spar.config.toml_lines import KeyPath
from spar.errors import ConfigError, ContractError
from spar.ports.channel import ChannelSpec
from spar.ports.embedder import Embedder
from spar.ports.notifier import NotifierSpec, QuietHours
from spar.ports.optional import BringsUntrusted, Named, Plugin, ToolSource, offers
from spar.ports.programs import Programs
from spar.ports.webhook import Webhook
from spar.protocols import Borrower, Home, JudgesCalls, Lender, Notifier, SensorSpec, Warns, WritesCalls
from spar.protocols.tools import terms_of
from spar.types import Phase, replace

#: Settings from which each module is built: a change to one of them builds that module anew.
BUILT_FROM: dict[Phase, tuple[str, ...]] = {
    "sense": ("sense", "sensors", "perception", "vectors"),
    "plan": ("plan", "rules", "tools"),
    "act": ("act", "tools", "acting", "approval"),
    "reflect": ("reflect",),
}


def home_of(loaded: Loaded) -> Home:
    """Return the folders of a service; relative ones start at the configuration file's folder."""
    service, folder = loaded.settings.service, loaded.folder
    is_split = loaded.settings.acting.workspace == "per-session"
    return Home(str(folder), str(folder / service.workspace), str(folder / service.state_dir), is_split)


def options_of(settings: Settings) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    """Yield the options of each part that the settings name, with their place."""
    for name in settings_of(Settings):
        section = getattr(settings, name)
        if isinstance(section, MemorySettings):
            yield (name,), section.options
        elif isinstance(section, Part):
            yield (name, "options"), section.options
        elif isinstance(section, (list, tuple)):
            for index, part in enumerate(section):
                if isinstance(part, Part):
                    yield (name, index, "options"), part.options


def secrets_of(loaded: Loaded) -> list[SecretReference]:
    """Return the references to secrets outside of the configuration. Raises: ConfigError with file and line."""
    try:
        return [reference for path, options in options_of(loaded.settings) for reference in references(options, path)]
    except ConfigError as error:
        raise explain(error, loaded) from error


def digests_of(loaded: Loaded) -> dict[KeyPath, str]:
    """Return a digest of each of these secrets by its place, so that a reload notices a change."""
    digest_by_place: dict[KeyPath, str] = {}
    for path, options in options_of(loaded.settings):
        if any(references(options, path)):
            digest_by_place |= digests(options, path, loaded.folder)
    return digest_by_place


class Parts:
    """Factory of the parts that the settings name. Raises: ConfigError with file and line."""

    def __init__(self, loaded: Loaded, registry: Registry | None = None) -> None:
        self.loaded, self.settings = loaded, loaded.settings
        self.home = home_of(loaded)
        self.registry = registry or default_registry(self.home.config)
        #: Names of tools that the planner lends to the actor.
        self._lent: list[str] = []

    def memory(self, **more: Any) -> Any:
        part = self.settings.memory
        extra = {"embedder": self.embedder()}
        return self._build(
            "spar.stores", ("memory",), part.use, {**part.options, **more}, extra=extra, options_path=("memory",)
        )

    def sense(self) -> Any:
        return self._module(
            "sense",
            "spar.senses",
            {
                "sensors": tuple(self.sensors()),
                "pipeline": self.settings.perception,
                "embedder": self.embedder(),
            },
        )

    def embedder(self) -> Embedder | None:
        """Return the embedder of texts; None if vectors are not used."""
        part = self.settings.vectors
        return None if part.use is None else self._build("spar.embedders", ("vectors",), part.use, part.options)

    def sensors(self) -> list[SensorSpec]:
        specs = []
        for index, part in enumerate(self.settings.sensors):
            sensor = self._sensor(index, part)
            try:
                specs.append(SensorSpec(part.label, sensor, part.every, part.timeout, part.max_failures, part.within,
                                        part.probe_after, part.session, part.when_full))  # fmt: skip
            except ContractError as error:
                raise explain(ConfigError(str(error), path=("sensors", index, "use")), self.loaded) from None
            if offers(sensor, Webhook) and not sensor.has_secret and not is_loopback(self.settings.service.host):
                host = self.settings.service.host
                sentence = (
                    f"anybody could post to it: service.host = {host!r} is not only this machine; "
                    "give it a token or a secret"
                )
                path = ("sensors", index, "options", "unauthenticated")
                raise explain(ConfigError(sentence, path=path), self.loaded)
        return specs

    def _sensor(self, index: int, part: Part) -> Any:
        path = ("sensors", index)
        try:
            parameters = self.registry.wants_programs("spar.sensors", path, part.use)
        except ConfigError as error:
            raise explain(error, self.loaded) from error
        extra = dict.fromkeys(parameters, self.programs()) if parameters else {}
        return self._build("spar.sensors", path, part.use, part.options, extra=extra)

    def programs(self) -> Programs:
        """Return the runner of programs for parts other than the actor."""
        runner: Programs = self._build("spar.programs", ("sensors",), "sandboxed", {})
        return runner

    def tools(self) -> list[Any]:
        tools: dict[str, Any] = {}
        for index, part in enumerate(self.settings.tools):
            tool = self._build("spar.tools", ("tools", index), part.use, part.options)
            if part.terms and is_source(tool):
                sentence = "is for single tools: what offers several takes its terms in its options"
                raise explain(ConfigError(sentence, path=("tools", index, next(iter(part.terms)))), self.loaded)
            if part.name or part.terms:
                tool = with_terms(tool, {**part.terms, **({"name": part.name} if part.name else {})})
            if not is_source(tool) and _brings_untrusted(tool) is None:
                tool = with_terms(tool, {"brings_untrusted": True})
            if (name := name_of(tool)) in tools:
                sentence = f"{name!r} is the name of another tool already; give this one a `name` of its own"
                raise explain(ConfigError(sentence, path=("tools", index, "name" if part.name else "use")), self.loaded)
            tools[name] = tool
        return list(tools.values())

    def plan(self, tool_names: list[str]) -> Any:
        extra = {"rules": list(self.settings.rules), "tools": tool_names}
        module = self._module("plan", "spar.planners", extra)
        lent = module.lends().tools if isinstance(module, Lender) else ()
        self._lent = [tool.name for tool in lent if offers(tool, Named)]
        return module

    def act(self, tools: list[Any]) -> Any:
        extra = {"tools": tuple(tools), **defaults.acting(self.settings)}
        module = self._module("act", "spar.actors", extra)
        self._check_approval_rules([*[name_of(tool) for tool in tools], *self._lent])
        return module

    def _check_approval_rules(self, names: list[str]) -> None:
        """Check that approval rules name known tools: a rule with a misspelt name would silently forbid nothing.

        Raises: ConfigError with file and line.
        """
        for index, rule in enumerate(self.settings.approval.rules):
            name = rule.tool or "*"
            if not set(name) & set("*?[") and name not in names and f"{name.partition('__')[0]}__*" not in names:
                sentence = f"no tool named {name!r:.100}; known: {', '.join(sorted(names)) or 'none'}"
                raise explain(ConfigError(sentence, path=("approval", "rules", index, "tool")), self.loaded)

    def plugins(self) -> list[Callable[[Any], object]]:
        """Return the functions that get the agent before it starts, among them the `register` of objects."""
        functions = []
        for index, part in enumerate(self.settings.plugins):
            plugin = self._build("spar.plugins", ("plugins", index), part.use, part.options)
            register = plugin.register if offers(plugin, Plugin) else plugin
            if not callable(register):
                sentence = f"{part.use!r} makes {plugin!r:.100}, which is no function and has no method 'register'"
                raise explain(ConfigError(sentence, path=("plugins", index, "use")), self.loaded)
            functions.append(register)
        return functions

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

    def notifiers(self) -> list[NotifierSpec]:
        """Return the notifiers of alerts. Raises: ConfigError, also for one that cannot work."""
        specs = []
        for index, part in enumerate(self.settings.notifiers):
            path = ("notifiers", index, "use")
            notifier = self._build("spar.notifiers", ("notifiers", index), part.use, part.options)
            if not offers(notifier, Notifier):
                sentence = f"{part.use!r} makes {notifier!r:.100}, which has no method 'notify'"
                raise explain(ConfigError(sentence, path=path), self.loaded)
            if offers(notifier, Warns) and (warnings := list(notifier.warnings())):
                raise explain(ConfigError(f"{part.use!r} cannot work: {warnings[0]}", path=path), self.loaded)
            quiet = QuietHours.parse(part.quiet) if part.quiet else None
            specs.append(NotifierSpec(part.label, notifier, part.kinds, part.min_severity, part.repeat, part.timeout,
                                      part.give_up_after, quiet))  # fmt: skip
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
        where = (*path, "options") if options_path is None else options_path
        try:
            values = with_secrets(options, where, self.loaded.folder)
            return self.registry.build(group, path, use, values, home=self.home, extra=extra, options_path=options_path)
        except ConfigError as error:
            raise explain(error, self.loaded) from error


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address to listen on."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def name_of(tool: Any) -> str:
    """Return the name of a tool in calls: an object's `name`, that of `@tool`, or the function's own.

    A source of tools has `name__*`.
    """
    if is_source(tool):
        return f"{tool.name}__*"
    stated_name = tool.name if offers(tool, Named) else ""
    return str(stated_name or terms_of(tool).name or getattr(tool, "__name__", ""))


def is_source(part: Any) -> bool:
    """Return whether a part offers tools and is not one itself."""
    return offers(part, ToolSource)


def _brings_untrusted(tool: Any) -> bool | None:
    """Return whether a tool says that its results are untrusted text; None if it says nothing."""
    stated = tool.brings_untrusted if offers(tool, BringsUntrusted) else None
    return terms_of(tool).brings_untrusted if stated is None else stated


def with_terms(tool: Any, terms: Mapping[str, Any]) -> Any:
    """Return the tool with other terms, among them its name; a function is copied, so that its own callers keep it."""
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
    """Return the function that makes each module anew, by phase."""
    return {
        "sense": parts.sense,
        "plan": lambda: parts.plan([name_of(tool) for tool in parts.tools()]),
        "act": lambda: parts.act(parts.tools()),
        "reflect": parts.reflect,
    }


def judge_modules(planner: Any, actor: Any, reflector: Any, loaded: Loaded) -> None:
    """Check the calls in the configuration by their tools, and that a reflector which asks a model has one.

    Raises: ConfigError with file and line.
    """
    if isinstance(reflector, Borrower) and not (isinstance(planner, Lender) and planner.lends().ask is not None):
        sentence = (
            f'{loaded.settings.reflect.use!r} asks the planner\'s model, and there is none: write [plan] use = "llm" '
            '(with rules_are = "first" the rules decide what they match), or take "standard"'
        )
        raise explain(ConfigError(sentence, path=("reflect", "use")), loaded)
    if not isinstance(planner, WritesCalls) or not isinstance(actor, JudgesCalls):
        return
    for written in planner.written_calls():
        for tool in written.tools:
            if sentence := actor.objection(tool, written.params, written.unresolved):
                raise explain(ConfigError(sentence, path=written.path), loaded)
