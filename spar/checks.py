"""Checks of a value by its annotations, with one clear sentence about the first wrong field.

The hot path does not use them: a value makes a quick check of itself first (`__post_init__`), and only other values are
checked field by field. Supported annotations: text, numbers, flags, times, `Literal`, `Sequence[…]`, dicts, other
values, any of them or None; a number with bounds is `Annotated[float, Between(0.0, 1.0)]`.
"""

from __future__ import annotations

import json
import re
import reprlib
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from math import isnan
from typing import Annotated, Any, Final, Literal

from msgspec import Struct, ValidationError
from msgspec.structs import force_setattr

#: Types of plain JSON values.
SCALARS: Final = frozenset({str, int, float, bool, type(None)})

_brief = reprlib.Repr()  # bounded: a value that contains itself many times would take for ever
_brief.maxlevel, _brief.maxstring, _brief.maxother, _brief.maxlong = 4, 80, 200, 60


class Between(Struct, frozen=True):
    """Bounds of a number, both inclusive."""

    low: float
    high: float


#: Part of a whole: 0..1.
Share = Annotated[float, Between(0.0, 1.0)]
#: Bound of durations: more seconds than anything takes, and less than infinity.
LONGEST = 1e18
#: Duration in seconds.
Seconds = Annotated[float, Between(0.0, LONGEST)]


class Misfit(Struct, frozen=True):
    """Value that msgspec refuses: the steps that lead to it, the reason, and the unknown or missing key.

    A step is a key or an index; `...` stands for a key of a table whose values are all of one type.
    """

    steps: tuple[Any, ...]
    message: str
    unknown: str | None = None
    missing: str | None = None


_MISFIT = re.compile(r"(?P<message>.*?)(?: - at `(?P<place>[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)


def misfit(error: ValidationError) -> Misfit:
    """Return the parts of msgspec's message, such as ``Expected `int` >= 1 - at `$.dedup.window` ``."""
    parts = _MISFIT.fullmatch(str(error))
    message, place = (parts["message"], parts["place"] or "") if parts else (str(error), "")
    steps = tuple(name or (int(index) if index else ...) for name, index in _STEP.findall(place))
    unknown, missing = _UNKNOWN.fullmatch(message), _MISSING.fullmatch(message)
    return Misfit(steps, message, unknown and unknown[1], missing and missing[1])


class _Field(Struct, frozen=True):
    """Rule of a field: its types, its choices, the item type of a sequence, the bounds of a number."""

    name: str
    expected: str
    kinds: tuple[type, ...] = ()
    choices: tuple[Any, ...] = ()
    item: type | None = None
    bounds: Between | None = None
    is_optional: bool = False


def shorten(value: Any, limit: int = 80) -> str:
    """Return a value in the form for messages: quoted, at most about `limit` characters; never raises."""
    try:
        text = repr(value[:limit]) if isinstance(value, (str, bytes)) else _brief.repr(value)
    except Exception:  # a broken __repr__
        text = f"a {type(value).__name__}"
    return text if len(text) <= limit + 2 else text[:limit] + "…"


def fit(value: Struct) -> None:
    """Check the fields of a value and convert its sequences to tuples.

    Raises: TypeError, ValueError for the first wrong field.
    """
    for field in _fields(type(value)):
        content = getattr(value, field.name)
        error = _error_of(field, content)
        if error is not None:
            raise error(f"{type(value).__name__}.{field.name} must be {_demand(field, content)}")
        if field.item is not None and type(content) is not tuple:
            force_setattr(value, field.name, tuple(content))


def problem_of(value: Struct) -> str:
    """Return the first wrong field as a clause: `duration must be …, found …`; "" when all are valid."""
    for field in _fields(type(value)):
        content = getattr(value, field.name)
        if _error_of(field, content) is not None:
            return f"{field.name} must be {_demand(field, content)}"
    return ""


def json_problem(value: Any) -> str:
    """Return why a value cannot be written as JSON; "" when it can."""
    if type(value) in SCALARS:
        return ""
    try:
        json.dumps(value)
    except RecursionError:
        return "it is nested too deeply"
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


def clamped(number: Any, low: float, high: float, unknown: float | None) -> Any:
    """Return the number within its bounds, `unknown` for NaN or null; a value that is not a number stays as it is."""
    if number is None or (isinstance(number, float) and isnan(number)):
        return unknown
    return min(max(number, low), high) if isinstance(number, (int, float)) else number


def _error_of(field: _Field, content: Any) -> type[Exception] | None:
    """Return the error class for the value of a field, None if it is valid."""
    if content is None and field.is_optional:
        return None
    if field.kinds and (not isinstance(content, field.kinds) or (type(content) is bool and bool not in field.kinds)):
        return TypeError
    if field.item is not None:
        if isinstance(content, (str, bytes)):
            return TypeError
        return None if all(isinstance(item, field.item) for item in content) else TypeError
    if field.choices:
        return None if isinstance(content, str) and content in field.choices else ValueError
    if field.bounds is not None:
        return None if field.bounds.low <= content <= field.bounds.high else ValueError
    if type(content) is float and isnan(content):
        return ValueError
    if field.kinds == (dict,) and not all(isinstance(key, str) for key in content):
        return TypeError
    return None


def _demand(field: _Field, content: Any) -> str:
    """Return what a field must be and what was found; for a sequence, the item that is invalid."""
    if field.item is not None and (isinstance(content, (str, bytes)) or not isinstance(content, Sequence)):
        return f"a list, found {type(content).__name__}"
    if field.item is not None:
        wrong_item = next(item for item in content if not isinstance(item, field.item))
        return f"{field.expected}, found {type(wrong_item).__name__} ({shorten(wrong_item)}) in it"
    if field.kinds == (dict,) and isinstance(content, dict):
        return f"{field.expected}, found the key {shorten(next(key for key in content if not isinstance(key, str)))}"
    return f"{field.expected}, found {type(content).__name__} ({shorten(content)})"


@cache
def _fields(kind: type[Struct]) -> tuple[_Field, ...]:
    """Return the rules of a value's fields, as its annotations state; fields without a rule are left out."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(field for name in kind.__struct_fields__ if (field := _field(name, hints[name])) is not None)


def _field(name: str, hint: Any) -> _Field | None:
    is_optional = False
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        is_optional = type(None) in args
        hint = next(arg for arg in args if arg is not type(None))
        origin, args = typing.get_origin(hint), typing.get_args(hint)
    bounds = None
    if origin is Annotated:
        hint, bounds = args[0], args[1]
        origin, args = typing.get_origin(hint), typing.get_args(hint)
    or_none = " or None" if is_optional else ""
    if origin is Literal:
        return _Field(name, " or ".join(map(repr, args)) + or_none, choices=args, is_optional=is_optional)
    if isinstance(origin, type) and issubclass(origin, (Sequence, tuple)):
        item = typing.get_origin(args[0]) or args[0]
        return _Field(name, f"a list of {_WORDS.get(item, item.__name__)}", (Sequence,), item=item)
    kind = origin or hint
    if kind is Any:
        return None
    expected = _WORDS_OF_ONE.get(kind, f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}")
    if bounds is not None:
        is_time = bounds.high == LONGEST
        expected = "seconds, at least 0" if is_time else f"a number from {bounds.low:g} to {bounds.high:g}"
    kinds = _KINDS.get(kind, (kind,))
    return _Field(name, expected + or_none, kinds, bounds=bounds, is_optional=is_optional)


_KINDS: dict[Any, tuple[type, ...]] = {float: (float, int), Mapping: (Mapping,)}
_WORDS: dict[Any, str] = {str: "texts", dict: "objects"}
_WORDS_OF_ONE: dict[Any, str] = {
    str: "text",
    float: "a number",
    int: "a whole number",
    bool: "True or False",
    dict: "an object (a dict with text as keys)",
    datetime: "a datetime",
}
