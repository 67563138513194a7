"""Base of all values: a short `repr`, and tuples in place of the lists that people write."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import force_setattr

from spar.checks import shorten

TEXT = frozenset({str})
#: Most characters of all fields in the `repr` of a value.
LONGEST_SHOWN = 160


def utcnow() -> datetime:
    """Return the wall time as an aware UTC datetime."""
    return datetime.now(UTC)


class Value(Struct, frozen=True):
    """Value whose `repr` is one short line: references to earlier values, and large values, are only named."""

    def __repr__(self) -> str:
        fields = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Struct):
                fields.append(f"{name}=<{type(value).__name__}>")
            elif isinstance(value, (tuple, list, dict)):
                if value:
                    fields.append(f"{name}=<{len(value)}>")
            elif value is not None and not (isinstance(value, str) and not value):
                fields.append(f"{name}={shorten(value, LONGEST_SHOWN // 4)}")
        text = ", ".join(fields)
        return f"{type(self).__name__}({text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + '…'})"


def keep_tuples(value: Struct, *names: str) -> None:
    """Convert these fields to tuples if they are lists."""
    for name in names:
        if type(items := getattr(value, name)) is list:
            force_setattr(value, name, tuple(items))
