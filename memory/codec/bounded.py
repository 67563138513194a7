"""Slow way of encoding: a walk over a value that stops when the room is used up."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from msgspec import Struct

from memory.codec.columns import text_of
from spar.data.walk import Walk

MAX_DEPTH = 160  # the 128 levels of a value, and the levels of the row around it
_SHORT = 64  # characters of a text that are never cut, so that ids, statuses and times stay whole


class BoundedWalk(Walk):
    """Walk over one value that the fast way cannot encode: too large, too deep or of unusual types."""

    deepest = MAX_DEPTH

    def __init__(self, unknown: Any, max_text: int, limit: int) -> None:
        super().__init__(limit)
        self._unknown, self._max_text = unknown, max_text

    def text(self, text: str) -> str:
        room = max(min(self.left, self._max_text), _SHORT)
        self.left -= min(len(text), room)
        if len(text) <= room:
            return text
        self.cut = True
        return f"{text[:room]}… truncated, {len(text)} characters"

    def key(self, key: Any) -> str:
        return self.text("null" if key is None else key if type(key) is str else text_of(key))

    def text_of_bytes(self, value: Any) -> str:
        return base64.b64encode(bytes(value[: max(self.left, 0) + _SHORT])).decode()

    def other(self, value: Any, depth: int) -> Any:
        try:
            leaf = msgspec.to_builtins(value, enc_hook=self._unknown)
        except ValueError:
            raise
        except Exception:
            leaf = text_of(value)
        return self.text(leaf) if isinstance(leaf, str) else self.plain(leaf, depth + 1)

    def rest_of_list(self, item: Any, number: int) -> list[Any]:
        mark = self.rest()
        return [] if isinstance(item, Struct) else [mark]  # a reader of structs would not understand the mark
