"""Types of values from outside, and their refusal in one sentence.

Durations are numbers of seconds or text like `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"2d"`. What pydantic finds
wrong becomes `path = value: must be …`, the same for settings, for a part's options, from a file or by hand.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from spar.config.lines import Problem
from spar.config.toml_lines import KeyPath
from spar.data.scrub import MASK, is_secret_name, scrub

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?|\.\d{1,18})\s*(ms|s|m|h|d)?\s*", re.ASCII)

#: A hundred years: what is longer is a mistake, and date arithmetic would overflow not far above.
LONGEST = 100 * 365 * 86400.0


def seconds(value: object) -> float | None:
    """The number of seconds that a number or a text like `"5m"` means; None if it means none (nan, a bool, -1)."""
    number = _number(value)
    return float(number) if number is not None and 0 <= number <= LONGEST else None


def _number(value: object) -> float | None:
    if isinstance(value, str) and (found := _DURATION.fullmatch(value)):
        return float(found[1]) * _UNITS[found[2] or "s"]
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Duration:
    """Annotates a number of seconds; `words` are allowed in its place.

    `above_zero` refuses 0; with `off_is_zero` the text `"off"` is read as 0, for deadlines that may be missing.
    """

    words: tuple[str, ...] = ()
    above_zero: bool = False
    off_is_zero: bool = False

    def read(self, value: Any) -> float | str:
        if isinstance(value, str) and value in self.words:
            return value
        if self.off_is_zero and value == "off":
            return 0.0
        number = seconds(value)
        if number is None or (self.above_zero and number == 0):
            raise PydanticCustomError("allowed", "{sentence}", {"sentence": self.sentence(value)})
        return number

    def sentence(self, value: Any) -> str:
        bound = "> 0" if self.above_zero else ">= 0"
        number = _number(value)
        if number is not None and number > LONGEST:
            bound += f" and <= {LONGEST:.0f} (100 years)"
        words = [*self.words, *(["off"] if self.off_is_zero else [])]
        hint = '; durations are written like "500ms", "30s", "5m", "1h", "2d"' if isinstance(value, str) else ""
        allowed = [f"a number of seconds {bound}", *(f'"{word}"' for word in words)]
        return f"must be {either(allowed)}{hint}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        number = {"type": "number", "exclusiveMinimum" if self.above_zero else "minimum": 0, "maximum": LONGEST}
        text = {"type": "string", "pattern": r"^\s*(\d+(\.\d+)?|\.\d+)\s*(ms|s|m|h|d)?\s*$"}
        words = [*self.words, *(["off"] if self.off_is_zero else [])]
        return {"anyOf": [number, text, *([{"enum": words}] if words else [])]}


def _refuse_flag(value: Any, kind: str) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("allowed", "must be {kind}", {"kind": kind})
    return value


# Python takes true for 1; a person who wrote true did not mean a number.
not_a_flag = BeforeValidator(lambda value: _refuse_flag(value, "a number"))
_not_a_flag_but_whole = BeforeValidator(lambda value: _refuse_flag(value, "a whole number"))

#: A whole number; bounds are added where it is used.
Whole = Annotated[int, _not_a_flag_but_whole]
Seconds = Annotated[float, Duration()]
Positive = Annotated[float, Duration(above_zero=True)]
#: A deadline; `"off"` and 0 both mean none and are read as 0.0.
Limit = Annotated[float, Duration(off_is_zero=True)]
Interval = Annotated[float | Literal["adaptive", "off"], Duration(words=("adaptive", "off"))]
AutoSeconds = Annotated[float | Literal["auto"], Duration(words=("auto",), above_zero=True)]


# -- refusals


def problems(error: ValidationError, model: type[BaseModel], given: Any = None) -> list[Problem]:
    """Return what pydantic refused, one problem for each place, in the order of the places.

    `given` is the value that was validated, needed where the model has unions: it tells keys from the names that
    pydantic gives to a union's branches.
    """
    values: dict[KeyPath, Any] = {}
    reasons: dict[KeyPath, list[str]] = {}
    for item in error.errors(include_url=False):
        path = item["loc"] if given is None else _without_branches(item["loc"], given, item["type"] == "missing")
        values.setdefault(path, item["input"])
        reason = _reason(dict(item), path, model)
        known = reasons.setdefault(path, [])
        if reason not in known:
            known.append(reason)
    return [Problem(path, _tail(path, _merge(found), values[path])) for path, found in reasons.items()]


def either(words: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    known = list(words)
    return known[0] if len(known) == 1 else f"{', '.join(known[:-1])} or {known[-1]}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` without the question mark, or nothing when nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}" if near else ""


def unknown_key(name: str, known: Sequence[str]) -> str:
    listed = ", ".join(known) if known else "nothing can be set here"
    return f"unknown key; known: {listed}{did_you_mean(name, known)}"


def shown(value: Any, name: str = "") -> str:
    """A value as it is repeated in an error: short, and no secret."""
    if name and is_secret_name(name):
        return MASK
    if isinstance(value, bool):
        return str(value).lower()  # as TOML writes it
    if isinstance(value, (Mapping, list, tuple)):
        return f"a table of {len(value)}" if isinstance(value, Mapping) else f"a list of {len(value)}"
    try:
        text = repr(value[:200]) if isinstance(value, str) else repr(value)
    except Exception:  # a broken __repr__, or an integer of more than 4300 digits
        text = f"a value of type {type(value).__name__}"
    text = scrub(text)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _tail(path: KeyPath, reason: str, value: Any) -> str:
    if reason.startswith(("unknown key", "missing")):
        return f": {reason}"
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    return f" = {shown(value, name)}: {reason}"


def _merge(reasons: list[str]) -> str:
    if len(reasons) == 1:
        return reasons[0]
    return "must be " + either(reason.removeprefix("must be ") for reason in reasons)


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


def _reason(item: dict[str, Any], path: KeyPath, model: type[BaseModel]) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown_key(str(path[-1]), known_keys(model, path[:-1]))
    if kind == "missing":
        return "missing, and it has no default"
    if kind in ("value_error", "assertion_error"):
        return str(context["error"])
    if sentence := _REASONS.get(kind):
        return sentence.format_map(context)
    for known, sentence in _KINDS:
        if kind.startswith(known):
            return sentence
    message = str(item["msg"])
    return message[:1].lower() + message[1:]


_REASONS = {
    "greater_than": "must be > {gt}",
    "greater_than_equal": "must be >= {ge}",
    "less_than": "must be < {lt}",
    "less_than_equal": "must be <= {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "finite_number": "must be a finite number",
    "int_from_float": "must be a whole number",
    "string_too_short": "must be at least {min_length} characters long",
    "string_too_long": "must be at most {max_length} characters long",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have at least {min_length} items, found {actual_length}",
    "too_long": "must have at most {max_length} items, found {actual_length}",
    "is_instance_of": "must be an instance of {class}, which a configuration cannot hold",
    "none_required": "must be left out",
}
_KINDS = (
    ("int", "must be a whole number"),
    ("float", "must be a number"),
    ("decimal", "must be a decimal number"),
    ("bool", "must be true or false"),
    ("string", "must be text"),
    ("bytes", "must be text"),
    ("path", "must be a path"),
    ("datetime", "must be a date and time like 2030-01-31T09:30:00Z"),
    ("date", "must be a date like 2030-01-31"),
    ("timezone", "must be a date and time with its offset from UTC"),
    ("time_delta", "must be a duration"),
    ("time", "must be a time"),
    ("list", "must be a list"),
    ("tuple", "must be a list"),
    ("set", "must be a list"),
    ("frozen_set", "must be a list"),
    ("iterable", "must be a list"),
    ("sequence", "must be a list"),
    ("dict", "must be a table"),
    ("mapping", "must be a table"),
    ("model", "must be a table"),
    ("dataclass", "must be a table"),
)


def known_keys(model: type[BaseModel], path: KeyPath) -> tuple[str, ...]:
    """The keys that a model knows in the table at this path, as they are written."""
    found: Any = model
    for key in path:
        if isinstance(key, str):
            field = _fields(found).get(key)
            if field is None:
                return ()
            found = _model_in(field)
    return tuple(_fields(found))


def _fields(model: Any) -> dict[str, Any]:
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return {}
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _model_in(annotation: Any) -> Any:
    """The model that an annotation holds, directly or as an element of a list, or of a union."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, BaseModel) else None
    return next((model for part in get_args(annotation) if (model := _model_in(part)) is not None), None)
