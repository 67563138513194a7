"""The long way of a copy, for any value: objects of any kind, endless ones, what holds itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from itertools import islice
from math import isfinite
from typing import Any, Final

import msgspec

from spar.data.json_safe.bounds import text
from spar.data.media import medium_of
from spar.data.paths import ValueTooLargeError

_MOST: Final = 1 << 20  # items of a foreign container: its iterator may have no end
_AGAIN: Final = 1 << 16  # items of containers met again: a value that holds itself many times has no end
_PRINTED: Final = 14_000  # bits of an integer; one of more than 4300 digits is printed by no encoder


class TooMuchError(Exception):
    """Error of a copy that does not fit."""


class NotJsonError(TypeError):
    """An object is no value of JSON and cannot be read as one."""


class Copier:
    """One attempt at copying within `room` bytes: strings of at most `longest`, containers of at most `widest`, nested
    at most `deepest` levels."""

    __slots__ = ("again", "deepest", "is_cut", "longest", "met", "room", "widest")

    def __init__(self, room: int, longest: int, widest: int, deepest: int) -> None:
        self.is_cut = False
        self.room, self.longest, self.widest, self.deepest = room + 64, longest, widest, deepest
        self.met: dict[int, Any] = {}  # the containers themselves, or another one could get the id
        self.again = _AGAIN

    def cut(self, found: str) -> str:
        """Return the mark that stands in the place of what is left out, which says what was found there."""
        self.is_cut = True
        return f"… {found} …"

    def spend(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise TooMuchError

    def meet(self, value: Collection[Any]) -> None:
        if id(value) in self.met:
            self.again -= len(value)
            if self.again < 0:
                raise TooMuchError
        self.met[id(value)] = value

    def copy(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return self.string(value)
        if value is None or kind is bool:
            self.spend(4)
            return value
        if kind is int:
            bits = value.bit_length()
            self.spend(2 + bits // 3)
            return value if bits <= _PRINTED else self.cut(f"an integer of {bits} bits")
        if kind is float:
            self.spend(8)
            return value if isfinite(value) else None
        if depth > self.deepest:
            return self.cut("nested too deeply")
        if kind is dict:
            return self.mapping(value, depth)
        if kind is list or kind is tuple:
            return self.sequence(value, depth)
        if isinstance(value, Mapping):
            return self.mapping(value, depth)
        return self.other(value, depth)

    def string(self, value: str) -> str:
        if len(value) > self.longest:
            mark = self.cut(f"{len(value) - self.longest} characters left out")
            half = self.longest // 2
            value = f"{value[:half]}\n{mark}\n{value[len(value) - half :]}"
        value = text(value)
        self.spend(2 + (len(value) if value.isascii() else len(value.encode())))
        return value

    def mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        self.meet(value)
        self.spend(2)
        result: dict[str, Any] = {}
        for count, (key, item) in enumerate(value.items()):
            if count >= self.widest:
                result["…"] = self.cut(f"{len(value) - count} entries left out").strip("… ")
                break
            name = self.string(key if type(key) is str else str(key))
            if name in result:
                self.unreadable("an object with two keys of one text")
            result[name] = self.copy(item, depth + 1)
        return result

    def sequence(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        self.meet(value)
        self.spend(2 + len(value) if len(value) <= self.widest else 2)
        if len(value) <= self.widest:
            return [self.copy(item, depth + 1) for item in value]
        half = self.widest // 2
        head = [self.copy(item, depth + 1) for item in value[:half]]
        tail = [self.copy(item, depth + 1) for item in value[len(value) - half :]]
        return [*head, self.cut(f"{len(value) - 2 * half} items left out"), *tail]

    def other(self, value: Any, depth: int) -> Any:
        for known, convert in _CONVERSIONS:
            if isinstance(value, known):
                found = convert(value)
                if type(found) is list and len(found) > _MOST:
                    self.cut("a container without an end")
                    del found[_MOST:]
                return self.copy(found, depth + 1)
        try:
            found = msgspec.to_builtins(value.model_dump() if hasattr(value, "model_dump") else value, str_keys=True)
        except Exception:
            # The text of an object that has none of its own is its address, another one in each process.
            is_bare = (type(value).__str__, type(value).__repr__) == _NO_TEXT or isinstance(value, _NO_VALUES)
            found = self.unreadable(f"a {type(value).__name__}") if is_bare else str(value)
        return self.copy(found, depth + 1)

    def unreadable(self, found: str) -> str:
        """Return the mark that stands in the place of what is no value of JSON."""
        return self.cut(found)


class ShowingCopier(Copier):
    """One attempt at copying what is shown: media are named and left out."""

    __slots__ = ()

    def string(self, value: str) -> str:
        medium = medium_of(value)
        if medium is not None:
            self.is_cut, value = True, medium.name
        return super().string(value)

    def mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        medium = medium_of(value)
        if medium is None:
            return super().mapping(value, depth)
        self.is_cut = True
        return super().string(medium.name)


class WholeCopier(Copier):
    """Copy of all of a value. Raises: ValueTooLargeError or NotJsonError where others leave something out."""

    __slots__ = ()

    def cut(self, found: str) -> str:
        raise ValueTooLargeError(found)

    def unreadable(self, found: str) -> str:
        raise NotJsonError(f"found {found}")


#: What gives values when it is run, and is none.
_NO_VALUES: Final = (Iterator, AsyncIterator, Awaitable)
_NO_TEXT: Final[Any] = (object.__str__, object.__repr__)


# Subclasses of what JSON knows, and what is nearly a list; anything else is left to msgspec.
_CONVERSIONS: tuple[tuple[Any, Any], ...] = (
    (Enum, lambda value: value.value),
    (bool, bool),
    (int, int),
    (float, float),
    (str, lambda value: str.__str__(value)),
    ((list, tuple), lambda value: list(islice(value, _MOST + 1))),
    (AbstractSet, lambda value: _ordered(value)),
    (BaseException, lambda value: f"{type(value).__name__}: {value}"),
)


def _ordered(values: Iterable[Any]) -> list[Any]:
    found = list(islice(values, _MOST + 1))
    try:
        return sorted(found)
    except TypeError:
        return found
