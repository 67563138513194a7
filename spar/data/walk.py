"""Walk over any value that stops when the room is used up: the one pass behind rows of the store and lines of the log.

Both have marks of their own for what is left out, which their readers know: a walk decides what is kept, its kind how
that is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from msgspec import Struct


class Walk:
    """Walk over values; `left` is the room in characters that is left, `cut` says whether something was left out.

    Subclasses say how many bits an integer, how many levels a value and how many items a container has at most, and how
    texts, keys, objects and marks are written.
    """

    most_bits, deepest, widest = 10_000, 160, 1 << 62
    #: What stands for a value that is left out.
    mark = "truncated"

    def __init__(self, room: int) -> None:
        self.left, self.cut = room, False

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Return a copy of a value that consists of JSON's own types. NaN and infinities are `odd_float`, integers of
        too many bits hexadecimal texts."""
        self.left -= 8
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(str.__str__(value))
        if isinstance(value, int):
            return int(value) if value.bit_length() <= self.most_bits else self.text(hex(value))
        if isinstance(value, float):
            return float(value) if isfinite(value) else self.odd_float(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self.text(self.text_of_bytes(value))
        if depth > self.deepest:
            return self.rest()
        return self.compound(value, depth)

    def compound(self, value: Any, depth: int) -> Any:
        """Return the copy of a container or an object."""
        if isinstance(value, Struct):
            names = value.__struct_fields__
            return {name: self.member(name, getattr(value, name), depth) for name in names}
        if isinstance(value, Mapping):
            table: dict[str, Any] = {}
            for key, item in value.items():
                if self.left <= 0 or len(table) >= self.widest:
                    return table | self.rest_of_table(len(value) - len(table))
                name = self.key(key)
                table[name] = self.member(name, item, depth)
            return table
        if isinstance(value, (list, tuple, set, frozenset)):
            return self.items(value, len(value), depth)
        return self.other(value, depth)

    def items(self, values: Iterable[Any], number: int, depth: int) -> list[Any]:
        items: list[Any] = []
        for item in values:
            if self.left <= 0 or len(items) >= self.widest:
                return items + self.rest_of_list(item, number - len(items))
            items.append(self.plain(item, depth + 1))
        return items

    def member(self, name: str, value: Any, depth: int) -> Any:
        """Return the copy of an item of a table."""
        return self.plain(value, depth + 1)

    def rest(self) -> str:
        """Return the mark of a value that is nested too deeply."""
        self.cut = True
        return self.mark

    def rest_of_list(self, item: Any, number: int) -> list[Any]:
        """Return the marks of `number` items that are left out, of which `item` is the first."""
        return [self.rest()]

    def rest_of_table(self, number: int) -> dict[str, Any]:
        """Return the mark of `number` entries that are left out."""
        return {self.rest(): f"{number} more"}

    def text(self, text: str) -> str:
        raise NotImplementedError

    def key(self, key: Any) -> str:
        raise NotImplementedError

    def odd_float(self, value: float) -> Any:
        return None

    def text_of_bytes(self, value: Any) -> str:
        raise NotImplementedError

    def other(self, value: Any, depth: int) -> Any:
        """Return the copy of an object."""
        raise NotImplementedError
