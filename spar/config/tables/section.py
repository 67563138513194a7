"""A table in general: plain values, its settings by name, and how what is wrong inside one is said."""

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

    Its values are plain, and it is its own defaults: an agent that is made without settings needs nothing else. Values
    from outside come through `spar.config.judge`. What stands below a setting describes it; it is read when somebody
    shows it (`spar.config.tables.descriptions`).
    """

    #: The field that takes the keys which are no settings of the table; "": they are errors.
    rest: ClassVar[str] = ""


class Unfit(ValueError):
    """A value that does not fit, at a place inside the one that is judged."""

    def __init__(self, path: KeyPath, value: Any, sentence: str) -> None:
        super().__init__(sentence)
        self.path, self.value = path, value


def refuse(path: KeyPath, value: Any, sentence: str) -> NoReturn:
    """Say of a place inside what is judged that it is wrong. Raises: Unfit."""
    raise Unfit(path, value, sentence)


@functools.cache
def settings_of(table: type[Section]) -> dict[str, FieldInfo]:
    """Return the settings of a table by name: those of its base first, `rest` left out."""
    known = {field.name: field for field in fields(table) if field.name != table.rest}
    order = dict.fromkeys(name for base in reversed(table.__mro__) for name in vars(base).get("__annotations__", ()))
    return {name: known[name] for name in order if name in known}


def default_of(field: FieldInfo) -> Any:
    """Return the default of a setting; `msgspec.NODEFAULT` where it has to be given."""
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def unmarked(annotation: Any) -> Any:
    """Return the type that an annotation is about, without its marks."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def as_table(section: Section, *, without_none: bool = False) -> dict[str, Any]:
    """Return the settings as they stand in `config.toml`, tables inside it as well; `without_none`: those left out."""
    kept = {name: getattr(section, name) for name in settings_of(type(section))}
    found = {name: _plain(value, without_none) for name, value in kept.items() if value is not None or not without_none}
    return {**found, **(getattr(section, section.rest) if section.rest else {})}


def _plain(value: Any, without_none: bool) -> Any:
    if isinstance(value, Section):
        return as_table(value, without_none=without_none)
    return tuple(_plain(each, without_none) for each in value) if isinstance(value, tuple) else value
