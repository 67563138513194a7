"""Table in general: plain values, its settings by name, the error for a wrong place inside it; and the types of single
values.

Durations are numbers of seconds or text like `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"2d"`. The marks in the annotations
speak pydantic's protocol for annotations; it is imported once there is a value to validate.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields, replace

from spar.errors import KeyPath

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?|\.\d{1,18})\s*(ms|s|m|h|d)?\s*", re.ASCII)

#: A hundred years in seconds: a longer duration is a mistake, and date arithmetic would overflow not far above.
LONGEST = 100 * 365 * 86400.0


class Also(Struct, frozen=True, eq=False):
    """Mark with further constraints of pydantic's: `Also({"pattern": "^a"})`."""

    constraints: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return self._added(handler(source))

    def _added(self, schema: Any) -> Any:
        inner = {"schema": self._added(schema["schema"])} if "schema" in schema else self.constraints
        return {**schema, **inner}


def _bound(name: str, bound: float) -> Also:
    return Also({name: bound})


#: Bounds of a number: at least, more than, at most.
Ge, Gt, Le = (partial(_bound, name) for name in ("ge", "gt", "le"))
NOT_EMPTY = Also({"min_length": 1})


class After(Struct, frozen=True):
    """Mark of a value that `read` converts after the type has validated it, or before (`is_before`). `read` raises
    ValueError with a sentence."""

    read: Callable[[Any], Any]
    is_before: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core.core_schema import no_info_after_validator_function as after
        from pydantic_core.core_schema import no_info_before_validator_function as before

        return (before if self.is_before else after)(self.read, handler(source))


Before = partial(After, is_before=True)


class MaybeDuration(After, frozen=True):
    """Mark of a number that may be written as a duration."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "type": ["number", "string"]}


def seconds(value: object) -> float | None:
    """Return the seconds of a number or of a text like `"5m"`; None for other values (nan, a bool, -1)."""
    number = None if isinstance(value, bool) else _number(value)
    return float(number) if isinstance(number, (int, float)) and 0 <= number <= LONGEST else None


def _number(value: Any) -> Any:
    """Return the seconds of a text that is a duration, and any other value as it is."""
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        return float(match[1]) * _UNITS[match[2] or "s"]
    return _no_flag(value)


def _no_flag(value: Any) -> Any:
    # Python accepts true as 1; a person who wrote true did not mean a number.
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


NO_FLAG, DURATION = Before(_no_flag), MaybeDuration(_number, is_before=True)
#: A text that may be written in capitals.
LOWER = Before(lambda value: value.lower() if isinstance(value, str) else value)

#: A whole number; bounds are added where it is used.
Whole = Annotated[int, NO_FLAG]
Seconds = Annotated[float, Ge(0), Le(LONGEST), DURATION]
Positive = Annotated[float, Gt(0), Le(LONGEST), DURATION]
#: A deadline; `"off"` and 0 both mean none and are read as 0.0.
if TYPE_CHECKING:
    Limit = float
else:
    Limit = Annotated[Seconds | Literal["off"], After(lambda value: 0.0 if value == "off" else value)]
Interval = Seconds | Literal["adaptive", "off"]
AutoSeconds = Positive | Literal["auto"]


Name = Annotated[str, Also({"min_length": 1, "max_length": 64, "pattern": r"^[\w][\w.@:+-]*$"})]
Text = Annotated[str, NOT_EMPTY]


class GivenText(str):
    """Text of a variable or an option: where any value is allowed, it may be JSON."""


def _read_given(value: Any) -> Any:
    if isinstance(value, GivenText):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return str(value)
    return {key: _read_given(inner) for key, inner in value.items()} if isinstance(value, dict) else value


Options = Annotated[dict[str, Any], Before(_read_given)]


class Section(Struct, frozen=True, kw_only=True):
    """One table.

    Its values are plain and have defaults: an agent that is made without settings needs nothing else. Values from
    outside come through pydantic, which validates and describes a table by its annotations. A table inside another one
    has for defaults the values that it has there. The docstring below a setting describes it.
    """

    #: Name of the field for keys that are not settings of the table; "": such keys are errors.
    rest: ClassVar[str] = ""
    #: Name of a field whose value must not be above another one, and the key of that one.
    ordered: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Check the order of its values."""
        if self.ordered:
            name, other = self.ordered
            value, most = getattr(self, name), getattr(self, other.rpartition(".")[2])
            if value > most:
                refuse((name,), value, f"must be <= {other} ({most:g})")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _schema(cls, None, handler)


def _schema(table: type[Section], usual: Section | None, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Return the schema of a table.

    Args: usual: the table with the defaults, if they are not those of its class.
    """
    from pydantic_core.core_schema import no_info_after_validator_function, typed_dict_field, typed_dict_schema

    keys, defaults = {}, defaults_of(table, usual)
    for name, field in settings_of(table).items():
        default = defaults[name]
        is_table = isinstance(default, Section) and field.type is type(default)  # not under a mark
        schema = _schema(field.type, default, handler) if is_table else handler.generate_schema(field.type)
        keys[name] = typed_dict_field(schema, required=default is NODEFAULT)
    extra: Literal["allow", "forbid"] = "allow" if table.rest else "forbid"
    schema = typed_dict_schema(keys, extra_behavior=extra, config={"allow_inf_nan": False})
    described = {"pydantic_js_functions": [partial(_describe, table, defaults)]}
    return no_info_after_validator_function(partial(_table_of, table, usual), schema, metadata=described)


def _table_of(table: type[Section], usual: Section | None, given: dict[str, Any]) -> Section:
    if table.rest:
        others = {key: given.pop(key) for key in list(given) if key not in settings_of(table)}
        given[table.rest] = _read_given(others)
    return replace(usual, **given) if usual is not None else table(**given)


def _describe(table: type[Section], defaults: Mapping[str, Any], schema: CoreSchema, handler: GetJsonSchemaHandler,
              ) -> dict[str, Any]:  # fmt: skip
    from pydantic_core import to_jsonable_python

    shown = handler(schema) | {"title": table.__name__, "description": inspect.getdoc(table)}
    for name, text in describe(table).items():
        key = shown["properties"][name]
        key["description"] = text
        if (usual := defaults[name]) is not NODEFAULT and not isinstance(usual, Section):
            key["default"] = to_jsonable_python(usual)
    return shown


def describe(table: type[Section]) -> dict[str, str]:
    """Return the descriptions of a table's settings by name: the docstrings below them in the source, or that of the
    table that a setting is."""
    from docstring_parser import parse_from_object

    bases = (base for base in reversed(table.__mro__) if base not in (object, Struct, Section))
    texts = {
        param.arg_name: inspect.cleandoc(param.description or "")
        for base in bases
        for param in parse_from_object(base).params
    }
    return {name: texts.get(name) or inspect.getdoc(field.type) or "" for name, field in settings_of(table).items()}


def refuse(path: KeyPath, value: Any, sentence: str) -> NoReturn:
    """Refuse a value at a place inside the validated one. Raises: pydantic's ValidationError, a ValueError."""
    from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

    problem = PydanticCustomError("allowed", "{sentence}", {"sentence": sentence})
    raise ValidationError.from_exception_data("settings", [InitErrorDetails(type=problem, loc=path, input=value)])


@cache
def settings_of(table: type[Section]) -> dict[str, FieldInfo]:
    """Return the settings of a table by name, those of its base first, without `rest`."""
    return {field.name: field for field in fields(table) if field.name != table.rest}


def defaults_of(table: type[Section], usual: Section | None = None) -> dict[str, Any]:
    """Return the default of each setting, as `usual` has it or the class; `msgspec.NODEFAULT` if it is required."""
    return {name: getattr(usual, name) if usual is not None else
            field.default if field.default_factory is NODEFAULT else field.default_factory()
            for name, field in settings_of(table).items()}  # fmt: skip


def as_table(value: Any, *, without_none: bool = False) -> Any:
    """Return settings in the form of `config.toml`, or a copy of plain values with text keys; `without_none` leaves out
    None."""
    if isinstance(value, Section):
        own = {name: getattr(value, name) for name in settings_of(type(value))}
        value = {**own, **(getattr(value, value.rest) if value.rest else {})}
    if isinstance(value, Mapping):
        return {str(key): as_table(inner, without_none=without_none) for key, inner in value.items()
                if inner is not None or not without_none}  # fmt: skip
    return [as_table(item, without_none=without_none) for item in value] if isinstance(value, (list, tuple)) else value
