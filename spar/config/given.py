"""Settings from text: environment variables and `--set` on the command line.

`SPAR_LOG__LEVEL=debug` and `--set log.level=debug` name a key by its path. A whole table or list is written as JSON; a
more exact key has priority over the table around it. Case is ignored in a variable's name, so a part's own keys with
capital letters must stand inside a JSON table. pydantic judges them together with the file: unknown keys, lists and
tables in the wrong place.

pydantic-settings merges what was read. Its environment source is not used: it stops at the first value that it cannot
read, silently ignores a variable without a setting, and does not say where a value came from; `--set` needs all three.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import eq
from typing import Any

from spar.config.refusals import PREFIX, PROCESS_VARIABLES
from spar.config.tables.section import GivenText
from spar.config.toml_lines import KeyPath

#: Label of the place of a value, its key, and its text.
Item = tuple[str, KeyPath, str]


def from_environment(environ: Mapping[str, str]) -> Iterator[Item]:
    for name, text in environ.items():
        if name.upper().startswith(PREFIX) and name not in PROCESS_VARIABLES:
            yield name, tuple(name[len(PREFIX) :].lower().split("__")), text


def from_command_line(overrides: Mapping[str, str]) -> Iterator[Item]:
    for key, text in overrides.items():
        yield f"--set {key}", tuple(key.split(".")), text


def read_as_given(items: Iterable[Item], only: Collection[str]) -> tuple[list[dict[str, Any]], dict[KeyPath, str]]:
    """Return a table for each item, the more exact first, and the labels of their values.

    Args: only: dotted keys; items that neither contain one nor lie in one are left out. Empty: all items count.
    """
    tables: list[dict[str, Any]] = []
    labels: dict[KeyPath, str] = {}
    # A whole table first, then the keys inside it: the more exact key has priority.
    for label, path, text in sorted(items, key=lambda item: len(item[1])):
        if only and not any(all(map(eq, path, key.split("."))) for key in only):
            continue
        value = _value(text)
        labels |= dict.fromkeys((leaf for leaf, _ in leaves(value, path)), label)
        for key in reversed(path):
            value = {str(key): value}
        tables.insert(0, value)
    return tables, labels


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
