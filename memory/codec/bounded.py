"""Slow way of encoding: a walk over a value that stops when the room is used up."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from memory.codec.columns import text_of

MAX_DEPTH = 160  # the 128 levels of a value, and the levels of the row around it
_SHORT = 64  # characters of a text that are never cut, so that ids, statuses and times stay whole
_MAX_INT_BITS = 10_000  # Python refuses to write integers of more than 4,300 digits


class BoundedWalk:
    """Walk over one value that the fast way cannot encode: too large, too deep or of unusual types.

    `left` is the room that is left; `cut` says whether something was left out.
    """

    def __init__(self, unknown: Any, max_text: int, limit: int) -> None:
        self.left, self.cut, self._unknown, self._max_text = limit, False, unknown, max_text

    def plain(self, value: Any, depth: int) -> Any:
        self.left -= 8
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, int):
            return int(value) if value.bit_length() <= _MAX_INT_BITS else self._text(hex(value))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._text(base64.b64encode(bytes(value[: max(self.left, 0) + _SHORT])).decode())
        if isinstance(value, Struct):
            pairs = ((name, getattr(value, name)) for name in value.__struct_fields__)
            return {name: self._deeper(item, depth) for name, item in pairs}
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._list(value, depth)
        try:
            leaf = msgspec.to_builtins(value, enc_hook=self._unknown)
        except ValueError:
            raise
        except Exception:
            leaf = text_of(value)
        return self._text(leaf) if isinstance(leaf, str) else self._deeper(leaf, depth)

    def _deeper(self, value: Any, depth: int) -> Any:
        if depth >= MAX_DEPTH and not isinstance(value, (str, int, float, type(None))):
            self.cut = True
            return "truncated"
        return self.plain(value, depth + 1)

    def _text(self, text: str) -> str:
        room = max(min(self.left, self._max_text), _SHORT)
        self.left -= min(len(text), room)
        if len(text) <= room:
            return text
        self.cut = True
        return f"{text[:room]}… truncated, {len(text)} characters"

    def _list(self, items: Any, depth: int) -> list[Any]:
        bounded: list[Any] = []
        for item in items:
            if self.left <= 0:
                self.cut = True
                if not isinstance(item, Struct):
                    bounded.append("truncated")
                break
            bounded.append(self._deeper(item, depth))
        return bounded

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        bounded: dict[str, Any] = {}
        for key, item in value.items():
            if self.left <= 0:
                self.cut = True
                bounded["truncated"] = f"{len(value) - len(bounded)} more"
                break
            bounded[self._text(key if type(key) is str else _key_of(key))] = self._deeper(item, depth)
        return bounded


def _key_of(key: object) -> str:
    return "null" if key is None else text_of(key)
