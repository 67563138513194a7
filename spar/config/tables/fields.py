"""Types of single values: their allowed forms, and one sentence for an invalid value.

Durations are numbers of seconds or text like `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"2d"`. The marks in the annotations
speak pydantic's protocol for annotations; it is imported once there is a value to validate.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?|\.\d{1,18})\s*(ms|s|m|h|d)?\s*", re.ASCII)

#: A hundred years in seconds: a longer duration is a mistake, and date arithmetic would overflow not far above.
LONGEST = 100 * 365 * 86400.0


class Matching(Struct, frozen=True):
    """Mark of a text that must match a regular expression."""

    text: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return {**handler(source), "pattern": self.text}


class After(Struct, frozen=True):
    """Mark of a value that `read` converts after the type has validated it, or before (`is_before`). `read` raises
    ValueError with a sentence."""

    read: Callable[[Any], Any]
    is_before: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core.core_schema import no_info_after_validator_function as after
        from pydantic_core.core_schema import no_info_before_validator_function as before

        return (before if self.is_before else after)(self.read, handler(source))


Before = functools.partial(After, is_before=True)


class Reading(Struct, frozen=True, eq=False):
    """Mark of a value that only `convert` validates, whatever its type.

    Args: kind: what is allowed, for people; forms: the same as JSON schemas; convert: returns the value in its final
        form, raises ValueError with a sentence; words: texts that are allowed too, with their values.
    """

    kind: str
    forms: tuple[dict[str, Any], ...]
    convert: Callable[[Any], Any]
    words: Mapping[str, Any]

    def read(self, value: Any) -> Any:
        return self.words[value] if isinstance(value, str) and value in self.words else self.convert(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core.core_schema import no_info_plain_validator_function

        return no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [*self.forms, *([{"enum": [*self.words]}] if self.words else [])]}


def seconds(value: object) -> float | None:
    """Return the seconds of a number or of a text like `"5m"`; None for other values (nan, a bool, -1)."""
    number = _number(value)
    return float(number) if number is not None and 0 <= number <= LONGEST else None


def _number(value: object) -> float | None:
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        return float(match[1]) * _UNITS[match[2] or "s"]
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def duration(words: Mapping[str, Any] | None = None, *, above_zero: bool = False) -> Reading:
    """Return the mark of a number of seconds; `above_zero` refuses 0."""
    words = words or {}

    def convert(value: Any) -> float:
        number = seconds(value)
        if number is not None and (number > 0 or not above_zero):
            return number
        bound = "> 0" if above_zero else ">= 0"
        if (_number(value) or 0) > LONGEST:
            bound += f" and <= {LONGEST:.0f} (100 years)"
        hint = '; durations are written like "500ms", "30s", "5m", "1h", "2d"' if isinstance(value, str) else ""
        allowed = either([f"a number of seconds {bound}", *(f'"{word}"' for word in words)])
        raise ValueError(f"must be {allowed}{hint}")

    number = {"type": "number", "exclusiveMinimum" if above_zero else "minimum": 0, "maximum": LONGEST}
    text = {"type": "string", "pattern": r"^\s*(\d+(\.\d+)?|\.\d+)\s*(ms|s|m|h|d)?\s*$"}
    return Reading("seconds above 0" if above_zero else "seconds", (number, text), convert, words)


def either(words: Iterable[str]) -> str:
    """Return words as `a`, `a or b`, `a, b or c`."""
    known = list(words)
    return known[0] if len(known) == 1 else f"{', '.join(known[:-1])} or {known[-1]}"


def _refuse_flag(value: Any, kind: str) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"must be {kind}")
    return value


# Python accepts true as 1; a person who wrote true did not mean a number.
not_a_flag = Before(lambda value: _refuse_flag(value, "a number"))
_not_a_flag_but_whole = Before(lambda value: _refuse_flag(value, "a whole number"))

#: A whole number; bounds are added where it is used.
Whole = Annotated[int, _not_a_flag_but_whole]
Seconds = Annotated[float, duration()]
Positive = Annotated[float, duration(above_zero=True)]
#: A deadline; `"off"` and 0 both mean none and are read as 0.0.
Limit = Annotated[float, duration({"off": 0.0})]
Interval = Annotated[float | Literal["adaptive", "off"], duration({"adaptive": "adaptive", "off": "off"})]
AutoSeconds = Annotated[float | Literal["auto"], duration({"auto": "auto"}, above_zero=True)]
