"""Parts that configuration can name, and their construction from options.

A part is found by the name of an entry point (the built-in ones register exactly as those of other packages) or as
"package.module:Class". Its options are checked against its constructor's signature before it is called, so a part needs
no schema besides its own type annotations: pydantic checks and converts the options by them (a text to a path, a list
to a tuple), and a number may be written as a duration (`"5m"` is 300). Parameters that the composition root fills in,
and those annotated with `Home` or a Protocol, are no options. Nothing is imported before it is named.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypeAlias, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import TypedDict, is_protocol

from spar.config.lines import Refusal, refusal, refused, sentence_of
from spar.config.refusals import did_you_mean, problems, shown
from spar.config.tables.section import DURATION, Whole
from spar.errors import ConfigError, KeyPath
from spar.protocols import Home

if TYPE_CHECKING:
    from pydantic import TypeAdapter

typed_dict: Any = TypedDict  # type checkers know only those that are written out
#: Functions that make the values of parameters, by the Protocols with which these are annotated.
Ports: TypeAlias = Mapping[Any, Callable[[], Any]]

#: Groups of entry points, each with the noun for its parts.
GROUPS = {
    "spar.senses": "sense module",
    "spar.sensors": "sensor",
    "spar.planners": "planner",
    "spar.actors": "actor",
    "spar.tools": "tool",
    "spar.reflectors": "reflector",
    "spar.stores": "store",
    "spar.notifiers": "notifier",
    "spar.channels": "channel",
    "spar.plugins": "plug-in",
    "spar.attachments": "attachment",
    "spar.commands": "command",
    "spar.embedders": "embedder",
    "spar.programs": "runner of programs",
}

#: Groups in which a plain function is the part itself; in others a function is called and returns the part.
FUNCTIONS_ARE_PARTS = (
    "spar.senses", "spar.planners", "spar.actors", "spar.tools", "spar.reflectors", "spar.plugins",
    "spar.attachments",
)  # fmt: skip

#: Distribution of the built-in parts.
OWN = "spar-agent"
#: Attachments of an agent with a memory, which may have forks and abilities of earlier processes.
OF_MEMORY = ("forks", "learning")


class PartEntry(Struct, frozen=True):
    """Entry point: its group and name, the object it names, its distribution, and why it cannot be loaded, if so."""

    group: str
    name: str
    value: str
    distribution: str
    error: str | None = None


class Registry:
    """Finder and builder of parts.

    Args: allow_plugins: False knows only the names of the built-in parts; folder: folder that is searched last for the
        modules of "module:Class", that of the configuration file; "": only Python's own path is searched.
    """

    def __init__(self, *, allow_plugins: bool = True, folder: str = "") -> None:
        self.allow_plugins, self.folder = allow_plugins, folder
        self._listed: dict[str, list[PartEntry]] = {}

    def names(self, group: str) -> tuple[str, ...]:
        """Return the names known in a group, sorted."""
        return tuple(dict.fromkeys(entry.name for entry in self.entries(group)))

    def entries(self, group: str) -> list[PartEntry]:
        """Return the entry points of a group by name, none of them imported."""
        if group not in GROUPS:
            raise ValueError(f"no group named {group!r}; known: {', '.join(GROUPS)}")
        if not self._listed:
            points = importlib.metadata.entry_points()
            for known in GROUPS:
                self._listed[known] = [
                    # the value without the required extras
                    PartEntry(known, point.name, point.value.partition("[")[0].strip(), owner)
                    for point in sorted(points.select(group=known), key=attrgetter("name"))
                    if (owner := _owner_of(point.dist)) == OWN or self.allow_plugins
                ]
        return self._listed[group]

    def origin(self, group: str, use: str) -> str:
        """Return the distribution of the part that `use` names; `use` itself if it is no entry point."""
        return next((entry.distribution for entry in self.entries(group) if entry.name == use), use)

    def resolve(self, group: str, use: Any, path: KeyPath = ()) -> Any:
        """Return the object that `use` names: an entry point or "package.module:attr". A value that is not text is
        returned as is.

        Args: path: the place of the name, for errors.
        Raises: ConfigError that says whether the name, the module, the attribute or the import was wrong.
        """
        if not isinstance(use, str):
            return use
        entries = [entry for entry in self.entries(group) if entry.name == use]
        if len(entries) > 1:
            owners = " and ".join(entry.distribution for entry in entries)
            targets = " or ".join(repr(entry.value) for entry in entries)
            raise refused(path, f"{owners} both ship a {GROUPS[group]} named {use!r}; say which: {targets}")
        if not entries and ":" not in use:
            raise refused(path, self._unknown(group, use))
        target, owner = use, ""
        if entries:
            target, owner = entries[0].value, f"the {GROUPS[group]} {use!r} of {entries[0].distribution} is broken: "
        elif self.folder and self.folder not in sys.path:
            sys.path.append(self.folder)  # last: a file there must not replace a library of the service
            importlib.invalidate_caches()
        module, _, attribute = target.partition(":")
        try:
            return attrgetter(attribute)(importlib.import_module(module))
        except (Exception, SystemExit) as error:
            raise refused(path, owner + _why_not(error, target, module, self.folder)) from error

    def build(self, group: str, path: KeyPath, use: Any, options: Mapping[str, Any] | None = None, *,
              home: Home | None = None, extra: Mapping[str, Any] | None = None, ports: Ports | None = None,
              options_path: KeyPath | None = None) -> Any:  # fmt: skip
        """Find a part and make it from its options.

        Args:
            path: where it is configured, for example `("sensors", 0)`, for errors.
            home: the value of a parameter annotated `Home`.
            extra: values from the composition root, for existing parameters of these names; not configurable.
            ports: functions that make the values of parameters annotated with these Protocols.
            options_path: the place of the options, if it is not "options" under `path`.
        Raises: ConfigError with the path of the problem, and no other error.
        """
        where = (*path, "options") if options_path is None else options_path
        options = {} if options is None else options
        target = self.resolve(group, use, (*path, "use"))
        is_part = group in FUNCTIONS_ARE_PARTS or not isinstance(use, str) or not callable(target)
        if isinstance(target, type) or not is_part:
            signature = Signature(target, f"{GROUPS[group]} {use!r}", path)
            return signature.make(options, where, home, ports or {}, extra or {})
        if options:
            first = str(next(iter(options)))
            raise refused((*where, first), f"{use!r} is used as it is and takes no options; known: none")
        return target

    def parts(self) -> list[PartEntry]:
        """Return every entry point, imported as a test, by group and name."""
        return [self._tried(entry) for group in GROUPS for entry in self.entries(group)]

    def _tried(self, entry: PartEntry) -> PartEntry:
        try:
            self.resolve(entry.group, entry.value)
        except ConfigError as error:
            return replace(entry, error=str(error))
        return entry

    def _unknown(self, group: str, use: str) -> str:
        names = self.names(group)
        module, _, attribute = use.rpartition(".")
        hint = f"; did you mean '{module}:{attribute}'" if module else did_you_mean(use, names)
        known = ", ".join([*(names or ["none"]), 'or use "module:Class"'])
        off = "" if self.allow_plugins else "; parts of other packages are turned off (SPAR_PLUGINS)"
        return f"no {GROUPS[group]} named {use!r}; known: {known}{hint}{off}"


@functools.lru_cache(maxsize=1000)  # reading the name parses all metadata of a distribution
def _owner_of(distribution: importlib.metadata.Distribution | None) -> str:
    return "an unknown distribution" if distribution is None else distribution.name


def default_registry(folder: str = "") -> Registry:
    """Return the registry of all parts, including modules in a folder; with `SPAR_PLUGINS=off` only the built-in
    names."""
    return Registry(allow_plugins=os.environ.get("SPAR_PLUGINS", "").lower() != "off", folder=folder)


# -- options


class Signature:
    """Parameters of a part's constructor.

    Args: target: the class, or the function that makes the part; name: its name for errors; path: where it is
        configured.
    Raises: ConfigError if its parameters cannot be read.
    """

    def __init__(self, target: Callable[..., Any], name: str, path: KeyPath = ()) -> None:
        self._target, self._name, self._path = target, name, path
        try:
            parameters = inspect.signature(target).parameters.values()
            # A class has its own __init__, or (a Struct, a dataclass) only annotated fields.
            init = inspect.getattr_static(target, "__init__") if isinstance(target, type) else None
            hints = typing.get_type_hints(init if inspect.isfunction(init) else target, include_extras=True)
        except Exception as error:
            raise refused(path, f"the parameters of the {name} cannot be read: {sentence_of(error)}") from error
        self._takes_any = any(item.kind is item.VAR_KEYWORD for item in parameters)
        self._parameters = {
            item.name: item for item in parameters if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
        }
        self._required = {key for key, item in self._parameters.items() if item.default is inspect.Parameter.empty}
        self._hints = {key: hints.get(key, Any) for key in self._parameters}
        #: Parameters that code alone can fill in: the folders of the service, the runner of programs, other ports.
        self._ports = {key: kind for key, hint in self._hints.items() for kind in (hint, *get_args(hint))
                       if kind is Home or is_protocol(kind)}  # fmt: skip

    def make(self, options: Any, where: KeyPath, home: Home | None, ports: Ports, extra: Mapping[str, Any]) -> Any:
        """Make the part from the given options, checked and converted, and from the injected values.

        Args: where: the place of the options; home, ports, extra: see `Registry.build`.
        Raises: ConfigError with one line for each wrong option, or with the reason why the part cannot be made.
        """
        given = {key: value for key, value in extra.items() if key in self._parameters}
        for key, port in self._ports.items():
            if port in ports:
                given[key] = ports[port]()
            elif port is Home and home is not None:
                given[key] = home
            elif port is Home and key in self._required:
                raise refused(where, f"the {self._name} needs a home, and there is none here")
        values = self._validate(options, where, given) | given
        positional = [values.pop(key) for key, item in self._parameters.items()
                      if item.kind is item.POSITIONAL_ONLY and key in values]  # fmt: skip
        try:
            return self._target(*positional, **values)
        except ConfigError as error:
            # An argument of the composition root is not an option, and stands at its own place in the file.
            is_option = bool(error.path) and error.path[0] in {*self.options(given), *options}
            raise refusal(error, where if is_option else () if error.path else self._path) from error
        except Exception as error:
            raise refused(self._path, f"the {self._name} cannot be made: {sentence_of(error)}") from error

    def options(self, extra: Collection[str]) -> tuple[str, ...]:
        """Return the names of the options that can be configured."""
        return tuple(key for key in self._hints if key not in extra and key not in self._ports)

    def judge(self, extra: Collection[str]) -> TypeAdapter[dict[str, Any]]:
        """Return the judge of a table of options, without those in `extra`, which the composition root fills in."""
        return self._table(self.options(extra))

    def _validate(self, options: Any, path: KeyPath, extra: Mapping[str, Any]) -> dict[str, Any]:
        known = self.options(extra)
        names = [key for key in known if key in options or key in self._required]
        if options == {} and not names:
            return {}
        from pydantic import ValidationError  # heavy, and not needed for a part without options

        try:
            return self._table(names).validate_python(options)
        except ValidationError as error:
            wrong = problems(error, {key: self._hints[key] for key in known}, options)
            raise refusal(Refusal(wrong), path) from None
        except Exception as error:
            raise refused(path, f"the options of the {self._name} cannot be checked: {sentence_of(error)}") from error

    def _table(self, names: Iterable[str]) -> TypeAdapter[dict[str, Any]]:
        """Return the judge of a table with these options."""
        from pydantic import TypeAdapter, with_config

        kinds = {key: _lenient(self._hints[key]) for key in names}
        extra: Literal["allow", "forbid"] = "allow" if self._takes_any else "forbid"
        config = with_config(extra=extra, allow_inf_nan=False, arbitrary_types_allowed=True)
        keys = {key: kind if key in self._required else NotRequired[kind] for key, kind in kinds.items()}
        return TypeAdapter(config(typed_dict("Options", keys)))


def _lenient(annotation: Any) -> Any:
    """Return the annotation whose numbers accept durations and refuse true and false."""
    if annotation in (float, int):
        return Whole if annotation is int else Annotated[float, DURATION]
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return Annotated[(_lenient(inner), *metadata)]
    if get_origin(annotation) in (Union, types.UnionType):
        return Union[tuple(map(_lenient, get_args(annotation)))]  # noqa: UP007
    return annotation


# -- importing


_TARGET = re.compile(r"(?!\d)\w+(\.(?!\d)\w+)*:(?!\d)\w+(\.(?!\d)\w+)*")


def _why_not(error: BaseException, target: str, module: str, folder: str) -> str:
    """Return why an import string names nothing. Args: folder: where else Python looks."""
    if not _TARGET.fullmatch(target):
        return f'{shown(target)} is not of the form "package.module:Class"'
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        looked = f"; looked on Python's path and in {folder}" * bool(folder)
        return f"there is no module {error.name!r} to import (of {target!r}){looked}"
    if not isinstance(error, AttributeError) or module not in sys.modules:
        return f"importing {module!r} failed inside it: {sentence_of(error)}"
    holder = getattr(error.obj, "__name__", type(error.obj).__name__)
    suggestion = did_you_mean(str(error.name), [name for name in dir(error.obj) if not name.startswith("_")])
    return f"module {holder!r} has no {error.name!r} (of {target!r}){suggestion}"
