"""Checks of a value by its annotations, with one clear sentence about the first wrong field.

The annotations say down to the column of the database what a field may hold: an integer has at most 64 bits, a number
is finite, a time has a year. A quick check, compiled from them, accepts the usual correct values; only other values are
checked field by field. Supported annotations: text, numbers, flags, times, `Literal`, `Sequence[…]`, dicts, other
values, any of them or None; a number with bounds is `Annotated[float, Between(0.0, 1.0)]`.
"""

from __future__ import annotations

import json
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from math import inf, isnan
from sys import float_info
from typing import Annotated, Any, Final, Literal, cast

from msgspec import Struct
from msgspec.structs import force_setattr, replace

#: Types of plain JSON values.
SCALARS: Final = frozenset({str, int, float, bool, type(None)})

_brief = reprlib.Repr()  # bounded: a value that contains itself many times would take for ever
_brief.maxlevel, _brief.maxstring, _brief.maxother, _brief.maxlong = 4, 80, 200, 60


class Between(Struct, frozen=True):
    """Bounds of a number, both inclusive."""

    low: float
    high: float

    def words(self, kind: str) -> str:
        """Return what a number must be."""
        if self.high == LONGEST:
            return "seconds, at least 0"
        if self.low == -inf:
            return "a number"
        kind = "whole number" if "whole" in kind else "number"
        return f"a {kind} from {self.low:.16g} to {self.high:.16g}"


class Longest(Struct, frozen=True):
    """Most characters of a text."""

    characters: int


#: Part of a whole: 0..1.
Share = Annotated[float, Between(0.0, 1.0)]
#: Bound of durations: more seconds than anything takes, and less than infinity.
LONGEST = 1e18
#: Duration in seconds.
Seconds = Annotated[float, Between(0.0, LONGEST)]
#: Number that may be infinite.
Real = Annotated[float, Between(-inf, inf)]
#: Number of times that something happened.
Count = Annotated[int, Between(0, (1 << 53) - 1)]
#: Name that stands in the key of a row.
Name = Annotated[str, Longest(32_000)]
#: Bound of integers: a column of the database has 64 bits, with the sign.
INTEGERS = 1 << 63
FINITE = Between(-float_info.max, float_info.max)


class Checked(Struct, frozen=True):
    """Base of values that are checked when they are made, by `spar.types.values.CheckedValue`."""


def keep_tuples(value: Struct, *names: str) -> None:
    """Convert these fields of a value to tuples if they are lists."""
    for name in names:
        if type(content := getattr(value, name)) is list:
            force_setattr(value, name, tuple(content))


def shorten(value: Any, limit: int = 80) -> str:
    """Return a value in the form for messages: quoted, at most about `limit` characters; never raises."""
    try:
        text = repr(value[:limit]) if isinstance(value, (str, bytes)) else _brief.repr(value)
    except Exception:  # a broken __repr__
        text = f"a {type(value).__name__}"
    return text if len(text) <= limit + 2 else text[:limit] + "…"


def make_valid(value: Struct) -> None:
    """Convert the sequences of a value to tuples. Raises: TypeError, ValueError for the first wrong field."""
    lists = [field.name for field in _fields(type(value)) if field.is_list]
    keep_tuples(value, *lists)  # as a decoder makes them: then most values are in their usual form
    if PLAIN[type(value)](value):
        return
    if (problem := _problem(value)) is not None:
        kind, error, clause = problem
        raise error(f"{kind}.{clause}")
    for name in lists:  # other sequences, now that they are known to be some
        if type(content := getattr(value, name)) not in (tuple, type(None)):
            force_setattr(value, name, tuple(content))


def problem_of(value: Struct, checked: object = None) -> str:
    """Return the first wrong field of a value, or of a value in it: `CallResult: duration must be …, found …`; "" when
    all are valid.

    Args: checked: a value in a field of this one whose own fields were checked before.
    """
    problem = None if PLAIN[type(value)](value, checked) else _problem(value)
    return "" if problem is None else f"{problem[0]}: {problem[2]}"


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


class _Rule(Struct, frozen=True):
    """Rule of a value. `longest`: most characters of a text; `item`: rule of the items of a list or an object."""

    expected: str = ""
    kinds: tuple[type, ...] = ()
    choices: tuple[Any, ...] = ()
    bounds: Between | None = None
    longest: int | None = None
    item: _Rule | None = None
    is_list: bool = False
    is_optional: bool = False
    name: str = ""
    default: Any = None

    @property
    def demand(self) -> str:
        return self.expected + (" or None" if self.is_optional else "")


def _problem(value: Struct) -> tuple[str, type[Exception], str] | None:
    """Return the first wrong field of a value or of the values in it: the type of that value, the class of the error,
    and the clause that describes it."""
    for field in _fields(type(value)):
        content = getattr(value, field.name)
        if (error := _error_of(field, content)) is not None:
            return type(value).__name__, error, f"{field.name} must be {_demand(field, content)}"
        parts = (content,) if field.item is None else content.values() if isinstance(content, Mapping) else content
        for part in parts or ():
            if isinstance(part, Struct) and not PLAIN[type(part)](part) and (problem := _problem(part)) is not None:
                return problem
    return None


def _error_of(rule: _Rule, content: Any) -> type[Exception] | None:
    """Return the error class for a value, None if it is valid."""
    if (content is None and rule.is_optional) or not rule.kinds:
        return None
    if rule.choices:
        return None if isinstance(content, str) and content in rule.choices else ValueError
    if not _is_one_of(content, rule.kinds):
        return TypeError
    if rule.is_list:
        if isinstance(content, (str, bytes)):
            return TypeError
        return TypeError if _wrong_item(rule, content) else None
    if isinstance(content, Mapping) and rule.item is not None:
        has_texts = all(isinstance(key, str) for key in content)
        return None if has_texts and not _wrong_item(rule, content.values()) else TypeError
    if rule.longest is not None:
        return None if len(content) <= rule.longest else ValueError
    if rule.bounds is not None and not rule.bounds.low <= content <= rule.bounds.high:
        return ValueError
    if isinstance(content, int) and not -INTEGERS <= content < INTEGERS:
        return ValueError
    return ValueError if isinstance(content, datetime) and not _is_time(content) else None


def _is_one_of(content: object, kinds: tuple[type, ...]) -> bool:
    """Return whether a value is of one of these types; True and False are no numbers."""
    return isinstance(content, kinds) and (type(content) is not bool or bool in kinds)


def _wrong_item(rule: _Rule, items: Any) -> tuple[Any, ...]:
    """Return the first invalid item of a list or an object, as a tuple of one; () if all are valid."""
    item = rule.item
    assert item is not None
    return next(((content,) for content in items if _error_of(item, content) is not None), ())


def _demand(rule: _Rule, content: Any) -> str:
    """Return what a value must be and what was found; for a list or an object, the item that is invalid."""
    if rule.is_list and (isinstance(content, (str, bytes)) or not isinstance(content, Sequence)):
        return f"a list, found {type(content).__name__}"
    if isinstance(content, Mapping) and (wrong := [key for key in content if not isinstance(key, str)]):
        return f"{rule.demand}, found the key {shorten(wrong[0])}"
    if rule.item is not None and isinstance(content, rule.kinds):
        (item,) = _wrong_item(rule, content.values() if isinstance(content, Mapping) else content)
        return f"{rule.demand}, found {type(item).__name__} ({shorten(item)}) in it"
    if isinstance(content, datetime) and datetime in rule.kinds:
        return f"{rule.demand} in the years 1 to 9999, in a sound time zone, found {shorten(content)}"
    length = f", {len(content)} characters" if rule.longest is not None and isinstance(content, str) else ""
    return f"{rule.demand}, found {type(content).__name__} ({shorten(content)}{length})"


def _is_time(at: datetime) -> bool:
    """Return whether the seconds of a time since 1970 are a time again: at the edges of the calendar they are not."""
    try:
        return -62_135_596_800.0 <= at.replace(tzinfo=at.tzinfo or UTC).timestamp() < 253_402_300_800.0
    except Exception:  # the time zone is a class of a user
        return False


@cache
def _fields(kind: type[Struct]) -> tuple[_Rule, ...]:
    """Return the rules of a value's fields. Raises: TypeError for an annotation that no rule stands for."""
    hints = typing.get_type_hints(kind, include_extras=True)
    names = kind.__struct_fields__
    defaults = dict(zip(reversed(names), reversed(kind.__struct_defaults__), strict=False))
    return tuple(replace(_rule(hints[name]), name=name, default=defaults.get(name)) for name in names)


def _rule(hint: Any) -> _Rule:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (other,) = (arg for arg in args if arg is not type(None))
        return replace(_rule(other), is_optional=True)
    if hint is Any:
        return _Rule("anything")
    if origin is Literal:
        return _Rule(" or ".join(map(repr, args)), (str,), choices=args)
    if origin is Annotated:
        rule, limit = _rule(args[0]), args[1]
        if isinstance(limit, Longest):
            return replace(rule, expected=f"text of at most {limit.characters} characters", longest=limit.characters)
        return replace(rule, expected=limit.words(rule.expected), bounds=limit)
    if isinstance(origin, type) and issubclass(origin, (Sequence, tuple)):
        item = _rule(args[0])
        noun = _PLURALS.get(item.kinds) or item.kinds[0].__name__
        return _Rule(f"a list of {noun}", (Sequence,), item=item, is_list=True)
    if origin is dict:
        return _Rule(_WORDS[dict], (dict,), item=_rule(args[1]))
    if hint is float:
        return _Rule(_WORDS[float], (float, int), bounds=FINITE)
    if not isinstance(hint, type):
        raise TypeError(f"a value cannot have a field of type {hint!r}: no rule checks it")
    return _Rule(_WORDS.get(hint, f"{'an' if hint.__name__[0] in 'AEIOU' else 'a'} {hint.__name__}"), (hint,))


_PLURALS: dict[Any, str] = {(): "values", (str,): "texts", (dict,): "objects"}
_WORDS: dict[Any, str] = {
    str: "text",
    float: "a finite number",
    int: "a whole number of at most 64 bits",
    bool: "True or False",
    dict: "an object (a dict with text as keys)",
    datetime: "a datetime",
}


class _QuickChecks(dict[type[Struct], Callable[..., bool]]):
    """Quick checks of values by their types, each compiled when it is first used.

    A check is one expression over the fields, as fast as one that is written by hand.
    """

    def __missing__(self, kind: type[Struct]) -> Callable[..., bool]:
        self[kind] = _quick_check(kind)
        return self[kind]


#: Quick checks: `PLAIN[type(value)](value)` returns whether each field of a value, and of the values in it, has its
#: most usual valid form. A dict, since it is used for each value, and a call takes as long as the check of a small one.
PLAIN: Final = _QuickChecks()


def _quick_check(kind: type[Struct]) -> Callable[..., bool]:
    names: dict[str, Any] = {"kind": kind, "UTC": UTC, "is_time": _is_time, "empty": (), "most": FINITE.high,
                             "last_year": datetime(9999, 1, 1, tzinfo=UTC)}  # fmt: skip
    fields = _fields(kind)
    finite = [field for field in fields if field.bounds is FINITE and not field.is_optional]
    tests = ["type(v) is kind", *(_test(f"v.{field.name}", field, names) for field in fields if field not in finite)]
    if finite:
        places = [f"v.{field.name}" for field in finite]
        tests.append(f"{' is '.join(f'type({place})' for place in places)} is float")
        tests.append(f"-most <= {' + '.join(places)} <= most")  # a sum is finite only if each part is
    return _compiled(tests, names, [f"v.{field.name}" for field in fields if dict in field.kinds])


def _compiled(tests: Iterable[str], names: dict[str, Any], objects: Sequence[str] = ()) -> Callable[..., bool]:
    """Return a check of a value, and of one in it that needs none: all tests hold, all keys of `objects` are texts."""
    test = " and ".join(filter(None, tests)) or "True"
    # A `map` takes as long to begin as a loop over four keys.
    loops = [f"if {place}:\n  for key in {place}:\n   if type(key) is not str: return False" for place in objects]
    exec("\n ".join(("def check(v, checked=None):", f"if not ({test}): return False", *loops, "return True")), names)
    return cast("Callable[..., bool]", names.pop("check"))


def _test(place: str, rule: _Rule, names: dict[str, Any]) -> str:
    """Return an expression that is true for the usual values of a rule. Args: names: gets the names that it uses."""
    if not rule.kinds:
        return ""

    def named(value: Any) -> str:
        names[name := f"n{len(names)}"] = value
        return name

    kind = tuple if rule.is_list else rule.kinds[0]
    tests = [f"type({place}) is {named(kind)}"]
    if _is_unchecked(kind):
        tests.append(f"({place} is checked or {named(PLAIN[kind])}({place}))")
    if rule.choices:
        tests.append(f"{place} in {named(frozenset(rule.choices))}")
    if rule.longest is not None:
        tests.append(f"len({place}) <= {rule.longest}")
    if rule.bounds is not None or kind is int:
        low, high = (-INTEGERS, INTEGERS - 1) if rule.bounds is None else (rule.bounds.low, rule.bounds.high)
        tests.append(f"{named(low)} <= {place} <= {named(high)}")
    if kind is datetime:
        tests.append(f"(({place}.tzinfo is UTC and {place} < last_year) or is_time({place}))")
    if rule.item is not None:
        tests.append(_items_test(f"{place}.values()" if kind is dict else place, rule.item, names, named))
    test = " and ".join(filter(None, tests))
    if type(rule.default) is str:  # as most texts with a default are
        test = f"({place} is {named(rule.default)} or ({test}))"
    if rule.is_list:  # most lists are empty, and there is only one empty tuple
        test = f"({place} is empty or ({test}))"
    return f"({place} is None or {test})" if rule.is_optional else test


def _is_unchecked(kind: type) -> bool:
    return issubclass(kind, Struct) and not issubclass(kind, Checked)


def _items_test(items: str, rule: _Rule, names: dict[str, Any], named: Callable[[Any], str]) -> str:
    """Return the expression for the items of a list, or for the values of an object."""
    if not rule.kinds:
        return ""
    kind = rule.kinds[0]
    if _is_unchecked(kind):
        return f"all(map({named(PLAIN[kind])}, {items}))"
    if rule == _Rule(rule.expected, (kind,)) and kind not in (int, datetime):  # nothing but the type is to be checked
        return f"{named(frozenset(rule.kinds))}.issuperset(map(type, {items}))"
    return f"all(map({named(_compiled([_test('v', rule, names)], names, ['v'] * (kind is dict)))}, {items}))"
