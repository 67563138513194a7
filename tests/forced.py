"""Values that nobody can make by hand, as what comes from somewhere else may be: their fields were never looked at."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

V = TypeVar("V", bound=Struct)


def forced(value: V, **fields: object) -> V:
    """The value with these fields, whatever they are."""
    for name, item in fields.items():
        force_setattr(value, name, item)
    return value
