"""Slow way of encoding: a walk over a value that stops when the room is used up."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec
from msgspec import Struct

from memory.codec.columns import text_of

MAX_DEPTH = 160  # the 128 levels of a value, and the levels of the row around it
_MOST_BITS = 10_000  # an integer of more bits is stored as a hexadecimal text
_SHORT = 64  # characters of a text that are never cut, so that ids, statuses and times stay whole
_MARK = "truncated"  # what stands for a value that is left out


class BoundedWalk:
    """Walk over one value that the fast way cannot encode: too large, too deep or of unusual types.

    `left` is the room in characters that is left, `cut` says whether something was left out.
    """

    def __init__(self, unknown: Any, max_text: int, limit: int) -> None:
        self.left, self.cut = limit, False
        self._unknown, self._max_text = unknown, max_text

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Return a copy of a value that consists of JSON's own types. NaN and infinities are null, integers of too many
        bits hexadecimal texts."""
        self.left -= 8
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, int):
            return int(value) if value.bit_length() <= _MOST_BITS else self._text(hex(value))
        if isinstance(value, float):
            return float(value) if isfinite(value) else None
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._text(base64.b64encode(bytes(value[: max(self.left, 0) + _SHORT])).decode())
        return self._rest() if depth > MAX_DEPTH else self._compound(value, depth)

    def _compound(self, value: Any, depth: int) -> Any:
        """Return the copy of a container or an object."""
        if isinstance(value, Struct):
            return {name: self.plain(getattr(value, name), depth + 1) for name in value.__struct_fields__}
        if isinstance(value, Mapping):
            table: dict[str, Any] = {}
            for key, item in value.items():
                if self.left <= 0:
                    return table | {self._rest(): f"{len(value) - len(table)} more"}
                name = self._text("null" if key is None else key if type(key) is str else text_of(key))
                table[name] = self.plain(item, depth + 1)
            return table
        if isinstance(value, (list, tuple, set, frozenset)):
            items: list[Any] = []
            for item in value:
                if self.left <= 0:
                    mark = self._rest()
                    return items if isinstance(item, Struct) else [*items, mark]  # no reader of structs knows it
                items.append(self.plain(item, depth + 1))
            return items
        return self._other(value, depth)

    def _other(self, value: Any, depth: int) -> Any:
        """Return the copy of an object."""
        try:
            leaf = msgspec.to_builtins(value, enc_hook=self._unknown)
        except ValueError:
            raise
        except Exception:
            leaf = text_of(value)
        return self._text(leaf) if isinstance(leaf, str) else self.plain(leaf, depth + 1)

    def _text(self, text: str) -> str:
        room = max(min(self.left, self._max_text), _SHORT)
        self.left -= min(len(text), room)
        if len(text) <= room:
            return text
        self.cut = True
        return f"{text[:room]}… truncated, {len(text)} characters"

    def _rest(self) -> str:
        self.cut = True
        return _MARK
