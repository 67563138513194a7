"""Checks a value made by hand: each field against its annotation, one clear sentence about what is wrong.

The hot path does not come here: a value looks at itself first (`__post_init__`), and only what is not plainly right is
looked at field by field. Annotations that are understood: text, numbers, flags, times, `Literal`, `Sequence[…]`, dicts,
other values, any of them or None; a number with bounds is `Annotated[float, Between(0.0, 1.0)]`.
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

#: The types of the values that JSON writes as they are.
SCALARS: Final = frozenset({str, int, float, bool, type(None)})

_brief = reprlib.Repr()  # bounded: what holds itself many times would take for ever
_brief.maxlevel, _brief.maxstring, _brief.maxother, _brief.maxlong = 4, 80, 200, 60


class Between(Struct, frozen=True):
    """The least and the greatest that a number may be."""

    low: float
    high: float


#: A part of a whole: 0..1.
Share = Annotated[float, Between(0.0, 1.0)]
#: More seconds than anything takes, and fewer than no end.
LONGEST = 1e18
#: A duration in seconds.
Seconds = Annotated[float, Between(0.0, LONGEST)]


class Misfit(Struct, frozen=True):
    """A value that msgspec refuses: at which steps, why, and the key where that is unknown or missing.

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
    """Rule of a field: its kinds, choices, the items of a sequence, the bounds of a number."""

    name: str
    expected: str
    kinds: tuple[type, ...] = ()
    choices: tuple[Any, ...] = ()
    item: type | None = None
    bounds: Between | None = None
    is_optional: bool = False


def shorten(value: Any, limit: int = 80) -> str:
    """A value as it is shown in messages: quoted, at most about `limit` characters, never raises."""
    try:
        text = repr(value[:limit]) if isinstance(value, (str, bytes)) else _brief.repr(value)
    except Exception:  # a broken __repr__
        text = f"a {type(value).__name__}"
    return text if len(text) <= limit + 2 else text[:limit] + "…"


def fit(value: Struct) -> None:
    """Keep the sequences of a value as tuples. Raises: TypeError, ValueError for the first field that is wrong."""
    for field in _fields(type(value)):
        given = getattr(value, field.name)
        error = _wrong(field, given)
        if error is not None:
            raise error(f"{type(value).__name__}.{field.name} must be {_demand(field, given)}")
        if field.item is not None and type(given) is not tuple:
            force_setattr(value, field.name, tuple(given))


def problem_of(value: Struct) -> str:
    """Return what is wrong with the first field that is: `duration must be …, found …`; empty when all are right."""
    for field in _fields(type(value)):
        given = getattr(value, field.name)
        if _wrong(field, given) is not None:
            return f"{field.name} must be {_demand(field, given)}"
    return ""


def json_problem(value: Any) -> str:
    """Return why a value cannot be written as JSON; empty when it can."""
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
    """Return the number within its bounds, `unknown` for NaN or null; what is no number is returned as it is."""
    if number is None or (isinstance(number, float) and isnan(number)):
        return unknown
    return min(max(number, low), high) if isinstance(number, (int, float)) else number


def _wrong(field: _Field, given: Any) -> type[Exception] | None:
    """Return what to raise about the value of a field, None if it is right."""
    if given is None and field.is_optional:
        return None
    if field.kinds and (not isinstance(given, field.kinds) or (type(given) is bool and bool not in field.kinds)):
        return TypeError
    if field.item is not None:
        if isinstance(given, (str, bytes)):
            return TypeError
        return None if all(isinstance(item, field.item) for item in given) else TypeError
    if field.choices:
        return None if isinstance(given, str) and given in field.choices else ValueError
    if field.bounds is not None:
        return None if field.bounds.low <= given <= field.bounds.high else ValueError
    if type(given) is float and isnan(given):
        return ValueError
    if field.kinds == (dict,) and not all(isinstance(key, str) for key in given):
        return TypeError
    return None


def _demand(field: _Field, given: Any) -> str:
    """Return what a field must be and what was found instead, of a sequence the item that does not belong there."""
    if field.item is not None and (isinstance(given, (str, bytes)) or not isinstance(given, Sequence)):
        return f"a list, found {type(given).__name__}"
    if field.item is not None:
        stranger = next(item for item in given if not isinstance(item, field.item))
        return f"{field.expected}, found {type(stranger).__name__} ({shorten(stranger)}) in it"
    if field.kinds == (dict,) and isinstance(given, dict):
        return f"{field.expected}, found the key {shorten(next(key for key in given if not isinstance(key, str)))}"
    return f"{field.expected}, found {type(given).__name__} ({shorten(given)})"


@cache
def _fields(kind: type[Struct]) -> tuple[_Field, ...]:
    """Return the fields of a value of which anything is demanded, as its annotations say."""
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
