"""Settings: `config.toml`, overridden by the environment, overridden by the command line.

An invalid configuration raises a `ConfigError` with a complete message: file and line (or the variable, or the option),
key, value, what is allowed; one line for each problem. `spar.config.tables` describes valid settings.

`SPAR_LOG__LEVEL=debug` and `--set log.level=debug` name a key by its path. A whole table or list is written as JSON; a
more exact key has priority over the table around it. Case is ignored in a variable's name, so a part's own keys with
capital letters must stand inside a JSON table. pydantic judges them together with the file: unknown keys, lists and
tables in the wrong place.

pydantic-settings merges what was read. Its environment source is not used: it stops at the first value that it cannot
read, silently ignores a variable without a setting, and does not say where a value came from; `--set` needs all three.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date, time
from operator import eq
from pathlib import Path
from typing import Any, Final, Literal

from msgspec.structs import replace
from pydantic import TypeAdapter, ValidationError

from spar.config.lines import PACKAGED, ConfigFile, Refusal, Sources, dotted, find, read
from spar.config.refusals import PREFIX, PROCESS_VARIABLES, problems, shown
from spar.config.tables.section import GivenText, as_table
from spar.config.tables.settings import Loaded
from spar.config.tables.settings import Settings as Settings
from spar.data.scrub import MASK, scrubbed
from spar.errors import ConfigError, KeyPath

#: Label of the place of a value, its key, and its text.
Item = tuple[str, KeyPath, str]


def from_environment(environ: Mapping[str, str]) -> Iterator[Item]:
    for name, text in environ.items():
        if name.upper().startswith(PREFIX) and name not in PROCESS_VARIABLES:
            yield name, tuple(name[len(PREFIX) :].lower().split("__")), text


def from_command_line(overrides: Mapping[str, str]) -> Iterator[Item]:
    for key, text in overrides.items():
        yield f"--set {key}", tuple(key.split(".")), text


def _value(text: str) -> Any:
    """Return the table or list of a text that is one in JSON, and any other text for pydantic to read."""
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return GivenText(text)


def merged(*tables: dict[str, Any]) -> dict[str, Any]:
    """Return the merged values of tables; an earlier one has priority over a later one."""
    if len(tables) == 1:
        return tables[0]
    from pydantic_settings import BaseSettings, InitSettingsSource

    class Merged(BaseSettings, extra="allow"):
        @classmethod
        def settings_customise_sources(cls, settings_cls: Any, *_: Any, **__: Any) -> Any:
            return tuple(InitSettingsSource(settings_cls, table) for table in tables)

    return Merged().model_extra or {}


def leaves(value: Any, path: KeyPath = (), *, of_lists: bool = False) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every value in nested tables with its path; empty tables are values, and lists unless `of_lists`."""
    if isinstance(value, Mapping) and (value or not path):
        items: Iterable[tuple[Any, Any]] = value.items()
    elif of_lists and isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        yield path, value
        return
    for key, inner in items:
        yield from leaves(inner, (*path, key), of_lists=of_lists)


def entries(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each setting in a table by its key; a table of a list has its name in the key."""
    for path, value in leaves(table):
        key = dotted(path)
        if isinstance(value, (list, tuple)) and value and all(isinstance(inner, Mapping) for inner in value):
            for number, inner in enumerate(value):
                yield f"{key}[{inner.get('name') or inner.get('use') or number}]", inner
        elif value != {}:
            yield key, value


#: Effect of a change, by the longest matching key: "live" applies at the next cycle boundary, where the parts concerned
#: are built anew; "restart" applies when the service starts again.
RELOAD: dict[str, Literal["live", "restart"]] = {
    **dict.fromkeys(("agent", "health", "runs", "sessions", "fork", "breakpoints", "senders", "sense", "plan", "act",
                     "reflect", "perception", "vectors", "sensors", "rules", "tools", "acting", "approval", "budgets",
                     "memory.learning", "service.drain", "log.level"), "live"),
    **dict.fromkeys(("agent.name", "acting.workspace", "memory", "channels", "notifiers", "plugins", "attachments",
                     "service", "log", "tracing"), "restart"),
}  # fmt: skip


def load(
    path: str | Path | None = None,
    *,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    only: Collection[str] = (),
) -> Loaded:
    """Read all sources, in rising priority: defaults, file, environment, `{"log.level": "debug"}` (overrides).

    Args:
        path: the file; None: the one that `lines.find` finds, if any.
        environ: `os.environ` by default.
        only: dotted keys; other tables have their defaults, and their mistakes are not reported: this is faster.
    Raises: ConfigError that lists all problems.
    """
    environ = os.environ if environ is None else environ
    return _loaded(_file(path, environ), overrides, environ, only)


def load_again(
    loaded: Loaded, *, overrides: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
) -> Loaded:
    """Read all sources again, the same file as before: no other one that would be found today takes its place.

    Raises: ConfigError that lists all problems, or says that the file is gone.
    """
    file = loaded.sources.file
    if file is not None:
        # The folder is absolute, the path perhaps not, and the working directory may have changed.
        path = file.path if file.path.is_absolute() else file.folder / file.path.name
        file = replace(read(path, folder=file.folder), path=file.path)
    return _loaded(file, overrides, os.environ if environ is None else environ)


def _loaded(file: ConfigFile | None, overrides: Mapping[str, str] | None, environ: Mapping[str, str],
            only: Collection[str] = ()) -> Loaded:  # fmt: skip
    table = file.table if file else {}
    if only:
        names = {key.partition(".")[0] for key in only}
        table = {name: table[name] for name in table if name in names}
    tables, labels = [table], dict[KeyPath, str]()
    for items in (from_environment(environ), from_command_line(overrides or {})):
        # A whole table first, then the keys inside it: the more exact key has priority.
        for label, path, text in sorted(items, key=lambda item: len(item[1])):
            if only and not any(all(map(eq, path, key.split("."))) for key in only):
                continue  # it neither contains one of these keys nor lies in one
            value = _value(text)
            labels |= dict.fromkeys((leaf for leaf, _ in leaves(value, path)), label)
            for key in reversed(path):
                value = {str(key): value}
            tables.insert(0, value)
    sources = Sources(file, labels)
    return Loaded(_judge(merged(*tables), sources), sources)


def from_mapping(mapping: Mapping[str, Any] | Settings) -> Settings:
    """Return validated settings from a table shaped like `config.toml`, or from settings made by hand.

    Environment and files are not read. Raises: ConfigError.
    """
    if not isinstance(mapping, (Mapping, Settings)):
        raise ConfigError(f"settings must be a table shaped like config.toml, found {shown(mapping)}")
    try:
        given = as_table(mapping)
    except RecursionError:
        raise ConfigError("settings are nested too deeply: tables of config.toml have a few levels") from None
    return _judge(given, Sources())


def changed(old: Settings, new: Settings) -> tuple[str, ...]:
    """Return the dotted keys whose values differ; a list is one key."""
    before, after = (
        {dotted(path): value for path, value in leaves(as_table(settings)) if value != {}} for settings in (old, new)
    )
    return tuple(different(before, after))


def different(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ, or that only one of two tables has."""
    missing = object()
    return [key for key in dict.fromkeys((*before, *after)) if before.get(key, missing) != after.get(key, missing)]


def reloads(key: str) -> Literal["live", "restart"]:
    """Return the effect of a change of this dotted key; see `RELOAD`."""
    while key not in RELOAD:
        key, dot, _ = key.rpartition(".")
        if not dot:
            return "restart"
    return RELOAD[key]


# -- building


@functools.cache
def _settings() -> TypeAdapter[Settings]:
    return TypeAdapter(Settings)


def _file(path: str | Path | None, environ: Mapping[str, str]) -> ConfigFile | None:
    """Return the named file, or else the one that is found. Raises: ConfigError."""
    file_path = find(environ) if path is None else Path(path)
    # The packaged file describes a service that lives in the current folder, not in the package.
    folder = Path.cwd() if path is None and file_path == PACKAGED else None
    return read(file_path, folder=folder) if file_path is not None else None


def _judge(given: Mapping[str, Any], sources: Sources) -> Settings:
    """Return the validated settings. Raises: ConfigError with all problems."""
    try:
        return _settings().validate_python(given)
    except ValidationError as error:
        raise Refusal(problems(error, Settings, given), sources) from None


# -- showing


#: Headers that hold no secrets.
_PLAIN_HEADERS: Final = frozenset(("accept", "accept-language", "content-type", "user-agent"))
#: Types of values that are secrets by their names. A table names the place of a secret, and is shown.
_NAMED: Final = (str, int, float, list, tuple)


def show(loaded: Loaded, *, origins: bool = False, form: Literal["toml", "json"] = "toml") -> str:
    """Return the present values, as TOML that can be loaded again or as JSON; secrets are masked.

    With `origins` each line of TOML ends with the place where its value was set, and JSON becomes one object by dotted
    key.
    """
    table = masked(loaded.settings)
    if form == "toml":
        return "\n".join(_table_lines(table, (), loaded if origins else None)).lstrip("\n") + "\n"
    if origins:
        table = {dotted(path): {"value": value, "from": loaded.origin(path)} for path, value in leaves(table)}
    return json.dumps(table, indent=2, default=str) + "\n"


def masked(settings: Settings) -> dict[str, Any]:
    """Return settings in the form of `config.toml` as people may read them: secrets and headers are masked."""
    table: dict[str, Any] = scrubbed(_without_headers(as_table(settings, without_none=True)), named=_NAMED)
    return table


def _without_headers(value: Any, name: str = "") -> Any:
    """Return a value with the mask in place of each header, since any may hold a secret."""
    if isinstance(value, Mapping):
        return {key: MASK if name == "headers" and key.lower() not in _PLAIN_HEADERS and isinstance(inner, _NAMED) else
                _without_headers(inner, key) for key, inner in value.items()}  # fmt: skip
    return list(map(_without_headers, value)) if isinstance(value, list) else value


def _table_lines(table: Mapping[str, Any], path: KeyPath, loaded: Loaded | None) -> Iterator[str]:
    """Yield the plain values of a table first, then the tables inside it, each under its header."""
    inner: list[tuple[KeyPath, str, Mapping[str, Any]]] = []
    for key, value in table.items():
        here = (*path, key)
        header = dotted(tuple(name for name in here if isinstance(name, str)))
        if isinstance(value, Mapping) and value:
            inner.append((here, f"[{header}]", value))
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            inner += [((*here, index), f"[[{header}]]", item) for index, item in enumerate(value)]
        else:
            comment = f"  # {loaded.origin(here)}" if loaded else ""
            yield f"{dotted((key,))} = {_toml(value)}{comment}"
    for here, header, value in inner:
        has_own = not value or any(not isinstance(item, Mapping) or not item for item in value.values())
        if has_own or header.startswith("[["):
            yield f"\n{header}"
        yield from _table_lines(value, here, loaded)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{dotted((key,))} = {_toml(item)}" for key, item in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, (date, time)):
        return value.isoformat()
    text = json.dumps(value, default=str, ensure_ascii=False)  # a text and a number look alike in JSON and in TOML
    return text.encode("utf-8", "replace").decode().replace("\x7f", "\\u007f")
