"""The parts that configuration can name, and how one is built from its options.

A part is found by the name of an entry point (the built-in ones register exactly as a stranger's do) or as
"package.module:Class". Its options are checked against its constructor's signature before it is called, so a part
needs no schema beside its own type annotations. Nothing is imported before it is named.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from spar.config.lines import Problem, Refusal, refusal
from spar.config.refusals import did_you_mean, shown
from spar.config.signature import Signature
from spar.config.toml_lines import KeyPath
from spar.errors import ConfigError
from spar.protocols import Home

#: The groups of entry points, and what one of each is called in a sentence.
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
    "spar.embedders": "embedder",
    "spar.programs": "runner of programs",
}

#: Where a plain function is the part itself; elsewhere a function is called and returns the part.
FUNCTIONS_ARE_PARTS = (
    "spar.senses", "spar.planners", "spar.actors", "spar.tools", "spar.reflectors", "spar.plugins",
)  # fmt: skip

#: The distribution of the parts in the box.
OWN = "spar-agent"


class PartEntry(Struct, frozen=True):
    """One entry point: its group and name, the object it names, who ships it, and why it cannot be loaded, if so."""

    group: str
    name: str
    value: str
    distribution: str
    error: str | None = None


class Registry:
    """Finds and builds parts.

    Args: allow_plugins: False knows only the names of the parts in the box; folder: where modules of "module:Class" are
    looked for last, the configuration file's folder; "": nowhere else than on Python's own path.
    """

    def __init__(self, *, allow_plugins: bool = True, folder: str = "") -> None:
        self.allow_plugins, self.folder = allow_plugins, folder
        self._listed: dict[str, dict[str, list[PartEntry]]] | None = None

    def names(self, group: str) -> tuple[str, ...]:
        """The names known in a group, sorted."""
        return tuple(sorted(self._entries(group)))

    def resolve(self, group: str, use: Any, path: KeyPath = ()) -> Any:
        """Return the object that `use` names, an entry point or "package.module:attr"; what is no text stays as it is.

        Args: path: where it was named, for the error.
        Raises: ConfigError that says whether the name, the module, the attribute or the import was wrong.
        """
        if not isinstance(use, str):
            return use
        entries = self._entries(group).get(use, [])
        if len(entries) > 1:
            owners = " and ".join(entry.distribution for entry in entries)
            targets = " or ".join(repr(entry.value) for entry in entries)
            raise _error(path, f"{owners} both ship a {GROUPS[group]} named {use!r}; say which: {targets}")
        if not entries and ":" not in use:
            raise _error(path, self._unknown(group, use))
        target = entries[0].value if entries else use
        if not entries and self.folder and self.folder not in sys.path:
            sys.path.append(self.folder)  # last: a file there must not stand in for a library of the service
            importlib.invalidate_caches()
        try:
            return _imported(target)
        except _NotFoundError as error:
            whose = f"the {GROUPS[group]} {use!r} of {entries[0].distribution} is broken: " if entries else ""
            looked = f"; looked on Python's path and in {self.folder}" if error.is_absent and self.folder else ""
            raise _error(path, f"{whose}{error}{looked}") from error.__cause__

    def build(
        self,
        group: str,
        spec_path: KeyPath,
        use: Any,
        options: Mapping[str, Any] | None = None,
        *,
        home: Home | None = None,
        extra: Mapping[str, Any] | None = None,
        options_path: KeyPath | None = None,
    ) -> Any:
        """Find a part and make it from its options.

        Args:
            spec_path: where it is configured, e.g. `("sensors", 0)`, for errors.
            home: given to a parameter that is annotated `Home`.
            extra: what the composition root gives, to the parameters of these names, if there are any; they cannot
                be configured.
            options_path: where the options stand, if not under `spec_path` in "options".
        Raises: ConfigError with the path of what is wrong, and nothing else.
        """
        where = (*spec_path, "options") if options_path is None else options_path
        options = options or {}
        target = self.resolve(group, use, (*spec_path, "use"))
        is_class = isinstance(target, type)
        if not is_class and (group in FUNCTIONS_ARE_PARTS or not isinstance(use, str) or not callable(target)):
            if options:
                first = str(next(iter(options)))
                raise _error((*where, first), f"{use!r} is used as it is and takes no options; known: none")
            return target
        name = f"{GROUPS[group]} {use!r}"
        signature = Signature.of(target, name, spec_path)
        values = signature.read(options, where, home=home, extra=extra or {})
        return _made(
            target, signature, values, name, spec_path, where, lambda: {*signature.options(extra or {}), *options}
        )

    def wants_programs(self, group: str, spec_path: KeyPath, use: Any) -> tuple[str, ...]:
        """Return the names of a part's parameters that are given what runs programs. Raises: ConfigError."""
        target = self.resolve(group, use, (*spec_path, "use"))
        if not isinstance(use, str) or not callable(target):
            return ()
        return Signature.of(target, f"{GROUPS[group]} {use!r}", spec_path).programs

    def parts(self) -> list[PartEntry]:
        """Every entry point there is, loaded to see whether it can be; by group and name."""
        found = []
        for group in GROUPS:
            for _, entries in sorted(self._entries(group).items()):
                found += [PartEntry(e.group, e.name, e.value, e.distribution, _problem_with(e.value)) for e in entries]
        return found

    def _unknown(self, group: str, use: str) -> str:
        names = self.names(group)
        if "." in use:
            module, _, attribute = use.rpartition(".")
            hint = f"; did you mean '{module}:{attribute}'"
        else:
            hint = did_you_mean(use, names)
        known = ", ".join([*(names or ["none"]), 'or use "module:Class"'])
        off = "" if self.allow_plugins else "; parts of other packages are turned off (SPAR_PLUGINS)"
        return f"no {GROUPS[group]} named {use!r}; known: {known}{hint}{off}"

    def _entries(self, group: str) -> dict[str, list[PartEntry]]:
        if group not in GROUPS:
            raise ValueError(f"no group named {group!r}; known: {', '.join(GROUPS)}")
        if self._listed is None:
            self._listed = self._read()
        return self._listed[group]

    def _read(self) -> dict[str, dict[str, list[PartEntry]]]:
        listed: dict[str, dict[str, list[PartEntry]]] = {group: {} for group in GROUPS}
        known = importlib.metadata.entry_points()
        owners: dict[Any, str] = {}  # a name is read from all that a distribution says of itself
        for group, names in listed.items():
            for point in known.select(group=group):
                if point.dist not in owners:
                    owners[point.dist] = point.dist.name if point.dist is not None else "an unknown distribution"
                owner = owners[point.dist]
                if self.allow_plugins or owner == OWN:
                    target = point.value.partition("[")[0].strip()  # without the extras that it wants
                    names.setdefault(point.name, []).append(PartEntry(group, point.name, target, owner))
        return listed


def default_registry(folder: str = "") -> Registry:
    """Return the parts that can be named, modules in a folder included; with `SPAR_PLUGINS=off` only those in the
    box by name."""
    return Registry(allow_plugins=os.environ.get("SPAR_PLUGINS", "").lower() != "off", folder=folder)


def _made(
    target: Callable[..., Any],
    signature: Signature,
    values: Mapping[str, Any],
    name: str,
    spec_path: KeyPath,
    where: KeyPath,
    options: Callable[[], Collection[str]],
) -> Any:
    try:
        return signature.call(target, values)
    except ConfigError as error:
        # What is no option was given by the composition root and stands at its own place in the file.
        is_option = bool(error.path) and error.path[0] in options()
        raise refusal(error, where if is_option else () if error.path else spec_path) from error
    except Exception as error:
        raise _error(spec_path, f"the {name} cannot be made: {_sentence(error)}") from error


def _error(path: KeyPath, sentence: str) -> ConfigError:
    return Refusal([Problem(path, f": {sentence}")])


# -- importing


class _NotFoundError(Exception):
    """An import string names nothing that is there; the message says why. `is_absent`: there is no such module."""

    def __init__(self, message: str, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.is_absent = is_absent


def _imported(target: str) -> Any:
    module_name, colon, attribute = target.partition(":")
    keys = attribute.split(".")
    if not colon or not all(key.isidentifier() for key in [*module_name.split("."), *keys]):
        raise _NotFoundError(f'{shown(target)} is not of the form "package.module:Class"')
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            sentence = f"there is no module {error.name!r} to import (of {target!r})"
            raise _NotFoundError(sentence, is_absent=True) from error
        raise _NotFoundError(f"importing {module_name!r} failed inside it: {_sentence(error)}") from error
    except (Exception, SystemExit) as error:
        raise _NotFoundError(f"importing {module_name!r} failed inside it: {_sentence(error)}") from error
    for key in keys:
        try:
            found = getattr(found, key)
        except AttributeError as error:
            holder = getattr(found, "__name__", type(found).__name__)
            near = did_you_mean(key, [name for name in dir(found) if not name.startswith("_")])
            raise _NotFoundError(f"module {holder!r} has no {key!r} (of {target!r}){near}") from error
    return found


def _problem_with(target: str) -> str | None:
    try:
        _imported(target)
    except _NotFoundError as error:
        return str(error)
    return None


def _sentence(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # a broken __str__ must not hide whose failure it is
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
