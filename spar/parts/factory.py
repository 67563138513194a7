"""Composition root: from settings to parts, for a start, a reload, a recovery, a command and a program alike.

Each part comes from the registry by its name; nothing here names a phase package. A command that needs the memory alone
loads no port of channels and notifiers.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec.structs import asdict

from spar.config.lines import explain, refused
from spar.config.tables.secret import SecretReference, references, with_secrets
from spar.config.tables.section import as_table, settings_of
from spar.config.tables.settings import Loaded, MemorySettings, Part, Settings
from spar.data.text import unknown
from spar.errors import ConfigError, ContractError, KeyPath
from spar.parts.registry import OF_MEMORY, OWN, Ports, Registry, default_registry
from spar.ports.services import Embedder, Programs
from spar.protocols import Home, Lent, SensorSpec
from spar.protocols.tools import is_source, name_of, terms_of
from spar.types import PHASES, Phase, replace

if TYPE_CHECKING:
    from spar.ports.channel import ChannelSpec, NotifierSpec

S = TypeVar("S")

#: Settings from which each module is built: a change to one of them builds that module anew.
BUILT_FROM: dict[Phase, tuple[str, ...]] = {
    "sense": ("sense", "sensors", "perception", "vectors"),
    "plan": ("plan", "rules", "tools"),
    "act": ("act", "tools", "acting", "approval"),
    "reflect": ("reflect",),
}
#: The group of each module.
MODULES: dict[str, str] = {
    "sense": "spar.senses", "plan": "spar.planners", "act": "spar.actors", "reflect": "spar.reflectors",
}  # fmt: skip
#: What the composition root gives to the constructors of a group, or of an attachment, that have a parameter of this
#: name; it is no option.
Given: TypeAlias = "Callable[[Parts], Any]"
GIVEN: dict[str, dict[str, Given]] = {
    "spar.senses": {
        "sensors": lambda parts: tuple(parts.sensors()),
        "pipeline": lambda parts: parts.settings.perception,
        "embedder": lambda parts: parts.embedder(),
    },
    "spar.sensors": {"service_host": lambda parts: parts.settings.service.host},
    "spar.planners": {
        "rules": lambda parts: list(parts.settings.rules),
        "tools": lambda parts: list(parts.named_tools()),
    },
    "spar.actors": {
        "tools": lambda parts: parts.tools(),
        "approval_timeout": lambda parts: parts.settings.approval.expires,
        "settings": lambda parts: parts.terms_of_calls(),
    },
    "spar.stores": {"embedder": lambda parts: parts.embedder()},
    "channels": {"channels": lambda parts: parts.channels()},
    "notices": {"notifiers": lambda parts: parts.notifiers()},
}

#: Built-in attachments in their order, each with the setting that attaches it.
BUILT_IN = {
    "budgets": "[budgets]", "interim": "runs.blocks or runs.reasoning", "commands": "sessions.commands = true",
    "senders": "[[channels]]",
    "channels": "[[channels]]", "notices": "[[notifiers]]", "costs": "a configuration",
    "tracing": "tracing.enabled = true", "forks": "a memory", "learning": "feedback or a memory",
    "nodes": "memory.nodes = true", "breakpoints": "spar break add", "steps": "a single step",
}  # fmt: skip
#: Those that an agent of a configuration has without that setting too, if they are installed: its store may have rows
#: of earlier channels and notifiers, and people decide about senders before there is a channel. An agent with limits
#: has attached its budgets already, and those of its memory are attached when that is open.
ALWAYS = ("budgets", "senders", "channels", "notices", "costs", *OF_MEMORY)


def built_in(settings: Settings, registry: Registry) -> list[str]:
    """Return the names of the built-in attachments of an agent with these settings, in their order. Raises: ConfigError
    if one that a setting needs is not installed."""
    installed = registry.names("spar.attachments")
    wanted = {"senders": settings.channels, "channels": settings.channels, "notices": settings.notifiers,
              "tracing": settings.tracing.enabled, "interim": settings.runs.are_told_early,
              "commands": settings.sessions.commands}  # fmt: skip
    if missing := next((name for name, setting in wanted.items() if setting and name not in installed), None):
        raise not_installed(missing)
    return [name for name in BUILT_IN if wanted.get(name) or (name in ALWAYS and name in installed)]


def not_installed(name: str) -> ConfigError:
    """Return the error for a built-in attachment that a setting needs, and that is not installed."""
    what = f"{BUILT_IN[name]} needs the attachment {name!r}, which is not installed"
    return ConfigError(f"{what}: install it (spar config parts), or turn that off")


def home_of(loaded: Loaded) -> Home:
    """Return the folders of a service; relative ones start at the configuration file's folder."""
    service, folder = loaded.settings.service, loaded.folder
    is_split = loaded.settings.acting.workspace == "per-session"
    return Home(str(folder), str(folder / service.workspace), str(folder / service.state_dir), is_split)


def options_of(settings: Settings) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    """Yield the options of each part that the settings name, with their place."""
    for name in settings_of(Settings):
        section = getattr(settings, name)
        parts = enumerate(section) if isinstance(section, tuple) else ((None, section),)
        for index, part in parts:
            if isinstance(part, (Part, MemorySettings)):
                path: KeyPath = (name,) if index is None else (name, index)
                yield path if part.rest else (*path, "options"), part.options


def secrets_of(loaded: Loaded) -> list[SecretReference]:
    """Return the references to secrets outside of the configuration. Raises: ConfigError with file and line."""
    try:
        return [reference for path, options in options_of(loaded.settings) for reference in references(options, path)]
    except ConfigError as error:
        raise explain(error, loaded.sources) from error


def digests_of(loaded: Loaded) -> dict[KeyPath, str]:
    """Return a digest of each of these secrets by its place, so that a reload notices a change."""
    return {reference.path: reference.digest(loaded.folder) for reference in secrets_of(loaded)}


def concerned(keys: Iterable[str]) -> list[Phase]:
    """Return the phases whose modules are built from these dotted keys."""
    sections = {key.partition(".")[0].partition("[")[0] for key in keys}
    return [phase for phase, sources in BUILT_FROM.items() if sections & set(sources)]


class Parts:
    """Factory of the parts that the settings name; one factory makes each tool once.

    Args: tools: the tools of the actor; None: those that the settings name.
    Raises: ConfigError with file and line.
    """

    def __init__(self, loaded: Loaded, registry: Registry | None = None, tools: Iterable[Any] | None = None) -> None:
        self.loaded, self.home = loaded, home_of(loaded)
        self.settings: Settings = loaded.settings
        self.registry = registry or default_registry(self.home.config)
        self._ports: Ports = {Programs: self.programs}
        self._tools = None if tools is None else {name_of(tool): tool for tool in tools}

    def modules(
        self, phases: Collection[Phase] = PHASES, current: Mapping[Phase, Any] | None = None
    ) -> dict[Phase, Any]:
        """Return new modules of these phases, which fit each other and the current modules of the other phases."""
        new = {phase: self.module(phase) for phase in phases}
        self._check_fit({**(current or {}), **new})
        return new

    def module(self, phase: Phase) -> Any:
        """Return a new module of a phase."""
        part: Part = getattr(self.settings, phase)
        module = self._build((phase,), MODULES[phase], part.use, part.options)
        self._method(module, phase, (phase,), part.use)
        return module

    def memory(self, **more: Any) -> Any:
        part = self.settings.memory
        return self._build(("memory",), "spar.stores", part.use, {**part.options, **more}, place=("memory",))

    def embedder(self) -> Embedder | None:
        """Return the embedder of texts; None if vectors are not used."""
        part = self.settings.vectors
        return None if part.use is None else self._build(("vectors",), "spar.embedders", part.use, part.options)

    def programs(self) -> Programs:
        """Return the runner of programs for parts other than the actor."""
        runner: Programs = self._build(("sensors",), "spar.programs", "sandboxed")
        return runner

    def rules(self) -> Any:
        """Return the planner of the rules in the configuration, whatever planner it names."""
        given = {"rules": GIVEN["spar.planners"]["rules"]}  # without the tools, which are made then
        return self._build(("plan",), "spar.planners", "rules", given=given)

    def terms_of_calls(self) -> dict[str, Any]:
        """Return the settings of the actor."""
        acting, approval = as_table(self.settings.acting), as_table(self.settings.approval, without_none=True)
        del acting["workspace"]
        return {**acting, "approval": approval}

    def sensors(self) -> list[SensorSpec]:
        return self._specs("sensors", SensorSpec)

    def tools(self) -> tuple[Any, ...]:
        """Return the tools of the actor."""
        return tuple(self.named_tools().values())

    def named_tools(self) -> dict[str, Any]:
        """Return the tools of the actor by their names in calls."""
        if self._tools is not None:
            return self._tools
        tools: dict[str, Any] = {}
        for path, part, tool, terms in self._listed("tools"):
            if is_source(tool):
                if terms:
                    sentence = "is for single tools: what offers several takes its terms in its options"
                    raise self._refused((*path, next(iter(terms))), sentence)
            elif terms_of(tool).brings_untrusted is None:
                terms.setdefault("brings_untrusted", True)  # it says nothing
            if part.name:
                terms["name"] = part.name
            if terms:
                tool = with_terms(tool, terms)
            if (name := name_of(tool)) in tools:
                sentence = f"{name!r} is the name of another tool already; give this one a `name` of its own"
                raise self._refused((*path, "name" if part.name else "use"), sentence)
            tools[name] = tool
        self._tools = tools
        return tools

    def plugins(self) -> list[Callable[[Any], object]]:
        """Return the functions that get the agent before it starts, among them the `register` of objects."""
        return [self._method(plugin, "register", path, part.use) for path, part, plugin, _ in self._listed("plugins")]

    def attach(self, add: Callable[[Any, str, str], object], attached: Container[str] = ()) -> None:
        """Attach the attachments of the settings. Raises: ConfigError.

        Args: add: attaches one, with its origin and its name, and raises ContractError; attached: the names of built-in
        ones that are attached already.
        """
        try:
            for name in built_in(self.settings, self.registry):
                if name not in attached and name not in OF_MEMORY:
                    add(self._build((name,), "spar.attachments", name, given=GIVEN.get(name, {})), OWN, name)
        except ConfigError as error:
            raise explain(error, self.loaded.sources) from error
        for path, part, attachment, _ in self._listed("attachments"):
            self._call(path, add, attachment, self.registry.origin("spar.attachments", part.use), part.label)

    def channels(self) -> list[ChannelSpec]:
        """Return the channels on which people talk with the agent."""
        from spar.ports.channel import ChannelSpec

        return self._specs("channels", ChannelSpec)

    def notifiers(self) -> list[NotifierSpec]:
        """Return the notifiers of alerts. Raises: ConfigError, also for one that cannot work."""
        from spar.ports.channel import NotifierSpec

        return self._specs("notifiers", NotifierSpec.checked)

    def _check_fit(self, modules: Mapping[Phase, Any]) -> None:
        """Check the calls and the approval rules in the configuration by the tools, and that a reflector which asks a
        model has one."""
        from spar.ports.any_part import has
        from spar.ports.phases import OptionalActor
        from spar.ports.planners import OptionalPlanner

        planner, actor = modules["plan"], modules["act"]
        lent = planner.lends() if has(planner, OptionalPlanner.lends) else Lent()
        if has(modules["reflect"], OptionalActor.borrow) and lent.ask is None:
            sentence = (
                f'{self.settings.reflect.use!r} asks the planner\'s model, and there is none: write [plan] use = "llm" '
                '(with rules_are = "first" the rules decide what they match), or take "standard"'
            )
            raise self._refused(("reflect", "use"), sentence)
        rules = self.settings.approval.rules
        names = [*self.named_tools(), *map(name_of, lent.tools)] if rules else []
        for index, rule in enumerate(rules):
            # A rule with a misspelt name would silently forbid nothing.
            name = rule.tool or "*"
            if not set(name) & set("*?[") and name not in names and f"{name.partition('__')[0]}__*" not in names:
                raise self._refused(("approval", "rules", index, "tool"), unknown("tool named", name, sorted(names)))
        if has(planner, OptionalPlanner.written_calls) and has(actor, OptionalActor.objection):
            for written in planner.written_calls():
                for tool in written.tools:
                    if sentence := actor.objection(tool, written.params, written.unresolved):
                        raise self._refused(written.path, sentence)

    def _listed(self, section: str) -> Iterator[tuple[KeyPath, Any, Any, dict[str, Any]]]:
        """Yield of each part in a list of the configuration its place, its settings, the part itself, and its terms:
        the settings besides its name and its options, without those that are left out."""
        for index, part in enumerate(getattr(self.settings, section)):
            path: KeyPath = (section, index)
            terms = {key: value for key, value in asdict(part).items()
                     if value is not None and key not in ("use", "name", "options")}  # fmt: skip
            yield path, part, self._build(path, f"spar.{section}", part.use, part.options), terms

    def _build(self, path: KeyPath, group: str, use: str, options: Mapping[str, Any] | None = None, *,
               place: KeyPath | None = None, given: Mapping[str, Given] | None = None) -> Any:  # fmt: skip
        """Return the part of a name. Args: place: that of its options. Raises: ConfigError with file and line."""
        place = place or (*path, "options")
        makers = GIVEN.get(group, {}) if given is None else given
        extra = {key: make(self) for key, make in makers.items()}
        try:
            options = with_secrets(options, place, Path(self.home.config)) if options else {}
            return self.registry.build(group, path, use, options, home=self.home, extra=extra,
                                       ports=self._ports, options_path=place)  # fmt: skip
        except ConfigError as error:
            raise explain(error, self.loaded.sources) from error

    def _method(self, product: Any, name: str, path: KeyPath, use: str) -> Any:
        """Return a method of a part, or the function that it is. Raises: ConfigError."""
        method = getattr(product, name, product)
        if not callable(method):
            sentence = f"{use!r} makes {product!r:.100}, which is no function and has no method {name!r}"
            raise self._refused((*path, "use"), sentence)
        return method

    def _specs(self, section: str, make: Callable[..., S]) -> list[S]:
        """Return the parts of a list with their names and terms. Raises: ConfigError for one that is not of its
        kind."""
        return [self._call(path, make, part.name or part.use, product, **terms)
                for path, part, product, terms in self._listed(section)]  # fmt: skip

    def _call(self, path: KeyPath, function: Callable[..., S], *args: Any, **more: Any) -> S:
        """Return what a function returns for a part at a path, and add file and line to its errors."""
        try:
            return function(*args, **more)
        except ContractError as error:
            raise self._refused((*path, "use"), str(error)) from error
        except ConfigError as error:
            raise explain(error, self.loaded.sources) from error

    def _refused(self, path: KeyPath, sentence: str) -> ConfigError:
        return explain(refused(path, sentence), self.loaded.sources)


def with_terms(tool: Any, terms: Mapping[str, Any]) -> Any:
    """Return the tool with other terms, among them its name; a function is copied, so that its own callers keep it."""
    if not inspect.isroutine(tool) and not isinstance(tool, functools.partial):
        for key, value in terms.items():
            setattr(tool, key, value)
        return tool
    alias = functools.partial(tool)
    alias.__doc__ = tool.__doc__
    alias.__spar_tool__ = replace(terms_of(tool), **terms)  # type: ignore[attr-defined]
    return alias
