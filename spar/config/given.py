"""Settings from text: environment variables and `--set` on the command line.

`SPAR_LOG__LEVEL=debug` and `--set log.level=debug` name a key by its path. A whole table or list is written as JSON; a
more exact key has priority over the table around it. Case is ignored in a variable's name, so a part's own keys with
capital letters must stand inside a JSON table.

pydantic-settings merges what was read. Its environment source is not used: it stops at the first value that it cannot
read, silently ignores a variable without a setting, and does not say where a value came from; `--set` needs all three.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin

from msgspec import Struct

from spar.config.lines import Problem, dotted
from spar.config.refusals import did_you_mean, shown, types_in, unknown_key
from spar.config.tables.section import Section, settings_of
from spar.config.tables.settings import Settings
from spar.config.toml_lines import KeyPath

PREFIX = "SPAR_"

#: Variables that are not settings: they apply before settings are read.
PROCESS_VARIABLES = {
    "SPAR_CONFIG": "the configuration file to use when none is named",
    "SPAR_CRASH": "where to crash on purpose, for tests of recovery",
    "SPAR_CRASH_LOG": "where to note the crash points that were reached",
    "SPAR_PLUGINS": '"off": parts of other packages are not looked up by name',
}

#: Label of the place of a value, its key, and its text.
Item = tuple[str, KeyPath, str]


class Given(Struct):
    """Values of environment or command line: a table for each, the more exact first; labels; problems."""

    tables: list[dict[str, Any]]
    given: dict[KeyPath, str]
    wrong: list[Problem]


def from_environment(environ: Mapping[str, str]) -> Iterator[Item]:
    for name, text in environ.items():
        if name.upper().startswith(PREFIX) and name not in PROCESS_VARIABLES:
            yield name, tuple(name[len(PREFIX) :].lower().split("__")), text


def from_command_line(overrides: Mapping[str, str]) -> Iterator[Item]:
    for key, text in overrides.items():
        yield f"--set {key}", tuple(key.split(".")), text


def read_as_given(items: Iterable[Item]) -> Given:
    result = Given([], {}, [])
    # A whole table first, then the keys inside it: the more exact key has priority.
    for label, path, text in sorted(items, key=lambda item: len(item[1])):
        result.given[path] = label
        try:
            value = _parse(label, path, text)
        except ValueError as error:
            result.wrong.append(Problem(path, f": {error}"))
            continue
        result.given |= dict.fromkeys((leaf for leaf, _ in leaves(value, path)), label)
        if isinstance(value, dict) and value:
            del result.given[path]
        for key in reversed(path):
            value = {str(key): value}
        result.tables.insert(0, value)
    return result


def _parse(label: str, path: KeyPath, text: str) -> Any:
    """Return the value of a text for this key. Raises: ValueError with a sentence."""
    read_as = _reader(label, path)
    try:
        return read_as(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(
            f"must be a list or a table written as JSON, found {shown(text, str(path[-1]))} ({error})"
        ) from None


def _reader(label: str, path: KeyPath) -> Callable[[str], Any]:
    """Return the function that reads the text of a key: as it is, as JSON for tables and lists, else either of them.

    Raises: ValueError with a sentence for an unknown key.
    """
    if path[0] not in settings_of(Settings):
        raise ValueError(_unknown_section(label, str(path[0])))
    table: Any = Settings
    for index, key in enumerate(path):
        known, is_last = types_in(table), index == len(path) - 1
        if key not in known:
            if table.rest:
                return _json_or_text
            raise ValueError(unknown_key(path[: index + 1], tuple(known)))
        annotation = known[str(key)]
        table = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
        kind = get_origin(table) or table
        if kind is dict:
            return json.loads if is_last else _json_or_text
        if kind is tuple:
            if not is_last:
                raise ValueError(f"{dotted(path[: index + 1])} is a list: give the whole of it as JSON")
            return json.loads
        if not (isinstance(kind, type) and issubclass(kind, Section)):
            if not is_last:
                raise ValueError(f"{dotted(path[: index + 1])} is a single value, there is nothing inside it")
            return str
    return json.loads


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _unknown_section(label: str, name: str) -> str:
    known = tuple(settings_of(Settings))
    if label.startswith(PREFIX):
        for section in known:
            if name.startswith(f"{section}_"):
                suggestion = f"{PREFIX}{section}__{name[len(section) + 1 :].strip('_')}".upper()
                return f"no such setting; section and key are joined by two underscores: {suggestion}"
        return unknown_key((name,), known) + did_you_mean(label, PROCESS_VARIABLES)
    return unknown_key((name,), known)


def merged(*tables: dict[str, Any]) -> dict[str, Any]:
    """Return the merged values of tables; an earlier one has priority over a later one."""
    from pydantic_settings import BaseSettings, InitSettingsSource

    class Merged(BaseSettings, extra="allow"):
        @classmethod
        def settings_customise_sources(cls, settings_cls: Any, *_: Any, **__: Any) -> Any:
            return tuple(InitSettingsSource(settings_cls, table) for table in tables)

    return Merged().model_extra or {}


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every value in nested tables with its path; lists and empty tables are values."""
    if isinstance(value, Mapping) and (value or not path):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path, value
