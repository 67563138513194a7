"""Table in general: plain values, its settings by name, and the error for a wrong place inside it."""

from __future__ import annotations

import functools
from typing import Annotated, Any, ClassVar, NoReturn, get_args, get_origin

from annotated_types import Len
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from spar.config.tables.fields import Matching
from spar.config.toml_lines import KeyPath

Name = Annotated[str, Len(1, 64), Matching(r"^[\w][\w.@:+-]*$")]
Text = Annotated[str, Len(1)]
Options = dict[str, Any]


class Section(Struct, frozen=True, kw_only=True):
    """One table.

    Its values are plain and have defaults: an agent that is made without settings needs nothing else. Values from
    outside come through `spar.config.judge`. The docstring below a setting describes it, and is read when somebody
    displays it (`spar.config.tables.descriptions`).
    """

    #: Name of the field for keys that are not settings of the table; "": such keys are errors.
    rest: ClassVar[str] = ""


class Unfit(ValueError):
    """Error of an invalid value at a place inside the validated one."""

    def __init__(self, path: KeyPath, value: Any, sentence: str) -> None:
        super().__init__(sentence)
        self.path, self.value = path, value


def refuse(path: KeyPath, value: Any, sentence: str) -> NoReturn:
    """Refuse a value at a place inside the validated one. Raises: Unfit."""
    raise Unfit(path, value, sentence)


@functools.cache
def settings_of(table: type[Section]) -> dict[str, FieldInfo]:
    """Return the settings of a table by name, those of its base first, without `rest`."""
    known = {field.name: field for field in fields(table) if field.name != table.rest}
    order = dict.fromkeys(name for base in reversed(table.__mro__) for name in vars(base).get("__annotations__", ()))
    return {name: known[name] for name in order if name in known}


def default_of(field: FieldInfo) -> Any:
    """Return the default of a setting; `msgspec.NODEFAULT` if it is required."""
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def unmarked(annotation: Any) -> Any:
    """Return the type of an annotation without its marks."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def as_table(section: Section, *, without_none: bool = False) -> dict[str, Any]:
    """Return the settings in the form of `config.toml`, including tables inside; `without_none` leaves out None."""
    values = {name: getattr(section, name) for name in settings_of(type(section))}
    shown = {name: value for name, value in values.items() if value is not None or not without_none}
    table = {name: _plain(value, without_none) for name, value in shown.items()}
    return {**table, **(getattr(section, section.rest) if section.rest else {})}


def _plain(value: Any, without_none: bool) -> Any:
    if isinstance(value, Section):
        return as_table(value, without_none=without_none)
    return tuple(_plain(item, without_none) for item in value) if isinstance(value, tuple) else value
