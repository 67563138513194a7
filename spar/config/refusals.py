"""Errors of pydantic as one sentence each: `path = value: must be …`.

The sentences are the same for settings and for a part's options, from a file or by hand.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from spar.checks import shorten
from spar.config.lines import Problem, dotted
from spar.config.tables.section import GivenText, Section, settings_of
from spar.data.scrub import MASK, is_secret_name, scrub
from spar.errors import KeyPath

if TYPE_CHECKING:
    from pydantic import ValidationError


def problems(error: ValidationError, table: Any, given: Any = None) -> list[Problem]:
    """Return the errors of pydantic, one problem for each place, in the order of the places.

    Args: table: the validated table, or the types of its keys; given: the validated value, which is needed for types
        with unions, to tell keys from pydantic's names of a union's branches.
    """
    places: dict[KeyPath, tuple[Any, dict[str, None]]] = {}
    for item in error.errors(include_url=False):
        path = item["loc"] if given is None else _without_branches(item["loc"], given, item["type"] == "missing")
        _, reasons = places.setdefault(path, (item["input"], {}))
        reasons[_reason(dict(item), path, table)] = None
    return [Problem(path, _tail(path, value, *reasons)) for path, (value, reasons) in places.items()]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'`, or "" if no known name is similar."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}" if near else ""


PREFIX: Final = "SPAR_"

#: Variables that are not settings: they apply before settings are read.
PROCESS_VARIABLES: Final = {
    "SPAR_CONFIG": "the configuration file to use when none is named",
    "SPAR_CRASH": "where to crash on purpose, for tests of recovery",
    "SPAR_CRASH_LOG": "where to note the crash points that were reached",
    "SPAR_PLUGINS": '"off": parts of other packages are not looked up by name',
}

#: Settings that have another name now. `spar config check --fix` writes the new names.
RENAMED: Final[Mapping[KeyPath, KeyPath]] = {("acting", "max_output"): ("acting", "largest_result")}


def unknown_key(path: KeyPath, known: Sequence[str]) -> str:
    """Return the sentence for a key that nothing reads: its new name, or else the known keys.

    Args: path: the path from the top of the settings, or from the top of a part's own options.
    """
    if (new_name := RENAMED.get(path)) is not None:
        return f"was renamed: write {dotted(new_name)} (in a file, `spar config check --fix` does)"
    name = str(path[-1])
    known_keys_text = ", ".join(known) if known else "nothing can be set here"
    hint = did_you_mean(name, known)
    if len(path) == 1:
        section, _, key = name.partition("_")
        if section in known:
            hint = f"; did you mean {section}.{key.strip('_')} ({PREFIX}{section.upper()}__{key.strip('_').upper()})"
        own = {variable.removeprefix(PREFIX): variable for variable in PROCESS_VARIABLES}
        near = difflib.get_close_matches(name.upper(), own, n=1)  # the prefix alone would make any two alike
        hint = hint or (f"; did you mean {own[near[0]]!r}" if near else "")
        if name in ("nodes", "standby"):
            hint = f'; memory.{name} needs memory.use = "postgres"'
    return f"unknown key; known: {known_keys_text}{hint}"


def shown(value: Any, name: str = "") -> str:
    """Return a value in the form for an error: short, and without secrets."""
    if name and is_secret_name(name):
        return MASK
    if isinstance(value, bool):
        return str(value).lower()  # as TOML writes it
    if isinstance(value, (Mapping, list, tuple)):
        return f"a table of {len(value)}" if isinstance(value, Mapping) else f"a list of {len(value)}"
    text = scrub(shorten(value, 200))
    return text if len(text) <= 80 else f"{text[:77]}…"


def _tail(path: KeyPath, value: Any, reason: str, *others: str) -> str:
    if reason.startswith(("unknown key", "was renamed", "missing")):
        return f": {reason}"
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    return f" = {shown(value, name)}: {' or '.join([reason, *(other.removeprefix('must be ') for other in others)])}"


def _without_branches(loc: KeyPath, given: Any, is_missing: bool) -> KeyPath:
    path: list[str | int] = []
    value = given
    for number, part in enumerate(loc):
        is_key = isinstance(value, Mapping) and part in value
        if is_key or (isinstance(value, (list, tuple)) and isinstance(part, int) and part < len(value)):
            value = value[part]
        elif is_missing and number == len(loc) - 1:
            pass
        else:
            continue  # the name of a branch
        path.append(part)
    return tuple(path)


def _reason(item: dict[str, Any], path: KeyPath, table: Any) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown_key(path, _known_keys(table, path[:-1]))
    for beginnings, sentence in _SENTENCES.items():
        if kind.startswith(tuple(beginnings.split())):
            is_json = isinstance(item["input"], GivenText) and sentence in (_LIST, _TABLE)
            shown = {key: f"{value:.16g}" if isinstance(value, float) else value for key, value in context.items()}
            return sentence.format_map(shown) + ", written as JSON" * is_json
    subject, _, rest = str(item["msg"]).partition(" should ")
    return f"must {rest}" if rest else f"{subject[:1].lower()}{subject[1:]}"


_LIST, _TABLE = "must be a list", "must be a table"
#: Beginnings of the names of errors; of two that begin alike the longer one is first. Others have pydantic's words.
_SENTENCES = {
    "missing": "missing, and it has no default",
    "value_error assertion_error": "{error}",
    "greater_than_equal": "must be >= {ge}",
    "greater_than": "must be > {gt}",
    "less_than_equal": "must be <= {le}",
    "less_than": "must be < {lt}",
    "decimal_max_places": "must have at most {decimal_places} decimals",
    "decimal": "must be a decimal number",
    "too_short": "must have at least {min_length} items, found {actual_length}",
    "too_long": "must have at most {max_length} items, found {actual_length}",
    "is_instance_of": "must be an instance of {class}, which a configuration cannot hold",
    "none_required": "must be left out",
    "int": "must be a whole number",
    "float_parsing": 'must be a number or a duration (like "500ms", "30s", "5m", "1h", "2d")',
    "float": "must be a number",
    "bool": "must be true or false",
    "string_type string_sub_type bytes": "must be text",
    "path": "must be a path",
    "datetime": "must be a date and time like 2030-01-31T09:30:00Z",
    "date": "must be a date like 2030-01-31",
    "list tuple set frozen_set iterable sequence": _LIST,
    "dict mapping model dataclass": _TABLE,
}


def types_in(annotation: Any) -> Mapping[str, Any]:
    """Return the types of the keys of the table in an annotation: of the table itself, of one in a list or in a union.

    A mapping is already that; {} without a table.
    """
    if isinstance(annotation, Mapping):
        return annotation
    if get_args(annotation):
        return next((types for part in get_args(annotation) if (types := types_in(part))), {})
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return {name: field.type for name, field in settings_of(annotation).items()}
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {field.alias or name: field.annotation for name, field in annotation.model_fields.items()}
    return {}


def _known_keys(table: Any, path: KeyPath) -> tuple[str, ...]:
    """Return the keys that are known in the table at this path, as they are written."""
    for key in path:
        if isinstance(key, str):
            table = get_args(table)[1] if get_origin(table) is dict else types_in(table).get(key)
    return tuple(types_in(table))
