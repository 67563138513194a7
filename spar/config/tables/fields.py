"""Types of single values: their allowed forms, and one sentence for an invalid value.

Durations are numbers of seconds or text like `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"2d"`. The annotations here are plain
values; `spar.config.judge` translates them for pydantic once there is a value to validate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from msgspec import Struct

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?|\.\d{1,18})\s*(ms|s|m|h|d)?\s*", re.ASCII)

#: A hundred years in seconds: a longer duration is a mistake, and date arithmetic would overflow not far above.
LONGEST = 100 * 365 * 86400.0


class Matching(Struct, frozen=True):
    """Mark of a text that must match a regular expression."""

    text: str


class Before(Struct, frozen=True):
    """Mark of a value that `read` converts before the type validates it. `read` raises ValueError with a sentence."""

    read: Callable[[Any], Any]


class After(Struct, frozen=True):
    """Mark of a value that `read` checks after the type has validated it. `read` raises ValueError with a sentence."""

    read: Callable[[Any], Any]


class Reading(Struct, frozen=True):
    """Mark of a value that only `read` validates, whatever its type."""

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of allowed forms."""
        raise NotImplementedError

    def read(self, value: Any) -> Any:
        """Return the value in its final form. Raises: ValueError with a sentence."""
        raise NotImplementedError


def seconds(value: object) -> float | None:
    """Return the seconds of a number or of a text like `"5m"`; None for other values (nan, a bool, -1)."""
    number = _number(value)
    return float(number) if number is not None and 0 <= number <= LONGEST else None


def _number(value: object) -> float | None:
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        return float(match[1]) * _UNITS[match[2] or "s"]
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


class Duration(Reading, frozen=True):
    """Mark of a number of seconds; `words` are allowed in its place.

    `above_zero` refuses 0; with `off_is_zero` the text `"off"` becomes 0, for optional deadlines.
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
            raise ValueError(self.sentence(value))
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

    @property
    def schema(self) -> dict[str, Any]:
        number = {"type": "number", "exclusiveMinimum" if self.above_zero else "minimum": 0, "maximum": LONGEST}
        text = {"type": "string", "pattern": r"^\s*(\d+(\.\d+)?|\.\d+)\s*(ms|s|m|h|d)?\s*$"}
        words = [*self.words, *(["off"] if self.off_is_zero else [])]
        return {"anyOf": [number, text, *([{"enum": words}] if words else [])]}


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
Seconds = Annotated[float, Duration()]
Positive = Annotated[float, Duration(above_zero=True)]
#: A deadline; `"off"` and 0 both mean none and are read as 0.0.
Limit = Annotated[float, Duration(off_is_zero=True)]
Interval = Annotated[float | Literal["adaptive", "off"], Duration(words=("adaptive", "off"))]
AutoSeconds = Annotated[float | Literal["auto"], Duration(words=("auto",), above_zero=True)]
