"""Values that nobody can make by hand, as what comes from somewhere else may be, and such as must be there."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

T = TypeVar("T")
V = TypeVar("V", bound=Struct)


def forced(value: V, **fields: object) -> V:
    """The value with these fields, whatever they are."""
    for name, item in fields.items():
        force_setattr(value, name, item)
    return value


def present(value: T | None) -> T:
    """Return a value that is there. Raises: AssertionError when it is None."""
    assert value is not None
    return value
