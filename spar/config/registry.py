"""Parts that configuration can name, and their construction from options.

A part is found by the name of an entry point (the built-in ones register exactly as those of other packages) or as
"package.module:Class". Its options are checked against its constructor's signature before it is called, so a part needs
no schema besides its own type annotations. Nothing is imported before it is named.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from msgspec import Struct

from spar.config.lines import refused, sentence_of
from spar.config.refusals import did_you_mean, shown
from spar.config.signature import Signature
from spar.config.toml_lines import KeyPath
from spar.ports.programs import Programs
from spar.protocols import Home

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
    "spar.embedders": "embedder",
    "spar.programs": "runner of programs",
}

#: Groups in which a plain function is the part itself; in others a function is called and returns the part.
FUNCTIONS_ARE_PARTS = (
    "spar.senses", "spar.planners", "spar.actors", "spar.tools", "spar.reflectors", "spar.plugins",
)  # fmt: skip

#: Distribution of the built-in parts.
OWN = "spar-agent"


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
        self._listed: dict[str, dict[str, list[PartEntry]]] | None = None

    def names(self, group: str) -> tuple[str, ...]:
        """Return the names known in a group, sorted."""
        return tuple(sorted(self._entries(group)))

    def resolve(self, group: str, use: Any, path: KeyPath = ()) -> Any:
        """Return the object that `use` names: an entry point or "package.module:attr". A value that is not text is
        returned as is.

        Args: path: the place of the name, for errors.
        Raises: ConfigError that says whether the name, the module, the attribute or the import was wrong.
        """
        if not isinstance(use, str):
            return use
        entries = self._entries(group).get(use, [])
        if len(entries) > 1:
            owners = " and ".join(entry.distribution for entry in entries)
            targets = " or ".join(repr(entry.value) for entry in entries)
            raise refused(path, f"{owners} both ship a {GROUPS[group]} named {use!r}; say which: {targets}")
        if not entries and ":" not in use:
            raise refused(path, self._unknown(group, use))
        target = entries[0].value if entries else use
        if not entries and self.folder and self.folder not in sys.path:
            sys.path.append(self.folder)  # last: a file there must not replace a library of the service
            importlib.invalidate_caches()
        try:
            return _import(target)
        except _NotFoundError as error:
            owner = f"the {GROUPS[group]} {use!r} of {entries[0].distribution} is broken: " if entries else ""
            places = f"; looked on Python's path and in {self.folder}" if error.is_absent and self.folder else ""
            raise refused(path, f"{owner}{error}{places}") from error.__cause__

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
        programs: Callable[[], Programs] | None = None,
    ) -> Any:
        """Find a part and make it from its options.

        Args:
            spec_path: where it is configured, for example `("sensors", 0)`, for errors.
            home: the value of a parameter annotated `Home`.
            extra: values from the composition root, for existing parameters of these names; not configurable.
            options_path: the place of the options, if it is not "options" under `spec_path`.
            programs: makes the value of a parameter annotated `Programs`.
        Raises: ConfigError with the path of the problem, and no other error.
        """
        where = (*spec_path, "options") if options_path is None else options_path
        options = options or {}
        target = self.resolve(group, use, (*spec_path, "use"))
        if not isinstance(target, type) and (
            group in FUNCTIONS_ARE_PARTS or not isinstance(use, str) or not callable(target)
        ):
            if options:
                first = str(next(iter(options)))
                raise refused((*where, first), f"{use!r} is used as it is and takes no options; known: none")
            return target
        return Signature(target, f"{GROUPS[group]} {use!r}", spec_path).make(options, where, home, extra, programs)

    def parts(self) -> list[PartEntry]:
        """Return every entry point, imported as a test, by group and name."""
        parts = []
        for group in GROUPS:
            for _, entries in sorted(self._entries(group).items()):
                parts += [PartEntry(e.group, e.name, e.value, e.distribution, _problem_with(e.value)) for e in entries]
        return parts

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
            self._listed, points = {}, importlib.metadata.entry_points()
            for point in (point for name in GROUPS for point in points.select(group=name)):
                owner = _owner_of(point.dist)
                if self.allow_plugins or owner == OWN:
                    target = point.value.partition("[")[0].strip()  # without the required extras
                    names = self._listed.setdefault(point.group, {})
                    names.setdefault(point.name, []).append(PartEntry(point.group, point.name, target, owner))
        return self._listed.get(group, {})


@functools.lru_cache(maxsize=1000)  # reading the name parses all metadata of a distribution
def _owner_of(distribution: importlib.metadata.Distribution | None) -> str:
    return "an unknown distribution" if distribution is None else distribution.name


def default_registry(folder: str = "") -> Registry:
    """Return the registry of all parts, including modules in a folder; with `SPAR_PLUGINS=off` only the built-in
    names."""
    return Registry(allow_plugins=os.environ.get("SPAR_PLUGINS", "").lower() != "off", folder=folder)


# -- importing


_TARGET = re.compile(r"(?!\d)\w+(\.(?!\d)\w+)*:(?!\d)\w+(\.(?!\d)\w+)*")


class _NotFoundError(Exception):
    """Error of an import string that names nothing; the message says why. `is_absent`: there is no such module."""

    def __init__(self, message: str, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.is_absent = is_absent


def _import(target: str) -> Any:
    module_name, _, attribute = target.partition(":")
    if not _TARGET.fullmatch(target):
        raise _NotFoundError(f'{shown(target)} is not of the form "package.module:Class"')
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent and f"{module_name}.".startswith(f"{absent}."):
            sentence = f"there is no module {absent!r} to import (of {target!r})"
            raise _NotFoundError(sentence, is_absent=True) from error
        raise _NotFoundError(f"importing {module_name!r} failed inside it: {sentence_of(error)}") from error
    try:
        return attrgetter(attribute)(module)
    except AttributeError as error:
        holder = getattr(error.obj, "__name__", type(error.obj).__name__)
        suggestion = did_you_mean(str(error.name), [name for name in dir(error.obj) if not name.startswith("_")])
        raise _NotFoundError(f"module {holder!r} has no {error.name!r} (of {target!r}){suggestion}") from error


def _problem_with(target: str) -> str | None:
    try:
        _import(target)
    except _NotFoundError as error:
        return str(error)
    return None
