"""Types of single values.

Durations are numbers of seconds or text like `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"2d"`. The marks in the annotations
speak pydantic's protocol for annotations; it is imported once there is a value to validate.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le
from msgspec import Struct

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
        return {**handler(source), **self.constraints}


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


class MaybeDuration(After, frozen=True):
    """Mark of a number that may be written as a duration."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "type": ["number", "string"]}


class OrOff(Struct, frozen=True):
    """Mark of a number that may be "off", which is read as 0."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core.core_schema import literal_schema, no_info_after_validator_function, union_schema

        off = no_info_after_validator_function(lambda _: 0.0, literal_schema(["off"]))
        return union_schema([handler(source), off])


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

#: A whole number; bounds are added where it is used.
Whole = Annotated[int, NO_FLAG]
Seconds = Annotated[float, Ge(0), Le(LONGEST), DURATION]
Positive = Annotated[float, Gt(0), Le(LONGEST), DURATION]
#: A deadline; `"off"` and 0 both mean none and are read as 0.0.
Limit = Annotated[float, Ge(0), Le(LONGEST), DURATION, OrOff()]
Interval = Seconds | Literal["adaptive", "off"]
AutoSeconds = Positive | Literal["auto"]
