"""Bounds of values, and copier of any value, item by item: objects of any class, endless iterators, values that contain
themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from itertools import islice
from math import isfinite
from typing import Any, Final

import msgspec

from spar.checks import SCALARS
from spar.data.media import medium_of
from spar.data.paths import MAX_DEPTH, ValueTooLargeError
from spar.data.scrub import scrub

#: Sizes up to which a value is small, so that it needs no bounding.
_FEW, SHORT = 16, 256  # entries of an object, characters of a key or bits of an integer


LARGE: Final = 1 << SHORT
LEAST: Final = -LARGE


def text(value: str) -> str:
    """Return the text with lone surrogates replaced, so that it can be encoded."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


def is_flat(value: dict[Any, Any]) -> bool:
    """Return whether this is a small object of small scalars, which is stored as it is."""
    return len(value) <= _FEW and all(map(_is_name, value)) and all(map(_is_short, value.values()))


def is_bounded(value: Any, cap: int) -> bool:
    """Return whether a value consists of JSON's own types, with at most `cap` values and few enough levels to
    encode."""
    level, count = [item for item in (value,) if type(item) not in SCALARS], 0
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            kind = type(container)
            if kind is dict:
                if not _TEXT.issuperset(map(type, container)):
                    return False
                container = container.values()
            elif kind is not list and kind is not tuple:
                return False
            count += 1 + len(container)  # each takes at least one character
            if count > cap:
                return False
            if not SCALARS.issuperset(map(type, container)):
                below += [item for item in container if type(item) not in SCALARS]
        if not below:
            return True
        level = below
    return False


_TEXT: Final = frozenset({str})


def _is_name(key: Any) -> bool:
    return type(key) is str and len(key) <= SHORT and key.isascii()


def _is_short(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return len(value) <= SHORT and value.isascii()
    return value is None or kind is bool or (kind is int and LEAST < value < LARGE)


_MOST: Final = 1 << 20  # items of a container of another type: its iterator may have no end
AGAIN: Final = 1 << 16  # items of containers that were copied before: a value may contain itself many times
_AT_CUT: Final = 4096  # characters beyond a cut that are cleaned with what stays: a longer secret is none that we know
_PRINTED: Final = 14_000  # bits of an integer; no encoder prints one of more than 4300 digits


class TooMuchError(Exception):
    """Error of a copy that does not fit."""


class NotJsonError(TypeError):
    """Error of an object that is not a JSON value and cannot be converted to one."""


class Copier:
    """Attempt to copy a value within `room` bytes.

    Strings have at most `longest` characters, containers at most `widest` items and at most `deepest` levels.
    """

    __slots__ = ("again", "deepest", "is_cut", "longest", "met", "room", "widest")

    def __init__(self, room: int, longest: int, widest: int, deepest: int) -> None:
        self.is_cut = False
        self.room, self.longest, self.widest, self.deepest = room + 64, longest, widest, deepest
        self.met: dict[int, Any] = {}  # holds the containers, so that no other object gets their id
        self.again = AGAIN

    def cut(self, description: str) -> str:
        """Return the mark that replaces a part that is left out; the mark describes this part."""
        self.is_cut = True
        return f"… {description} …"

    def clean(self, text: str) -> str:
        """Return a part of a text, before it is cut, as it may be shown."""
        return text

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
            head, tail = self.clean(value[: half + _AT_CUT]), self.clean(value[-half - _AT_CUT :])
            value = f"{head[:half]}\n{mark}\n{tail[len(tail) - half :]}"
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
        for kind, convert in _CONVERSIONS:
            if isinstance(value, kind):
                converted = convert(value)
                if type(converted) is list and len(converted) > _MOST:
                    self.cut("a container without an end")
                    del converted[_MOST:]
                return self.copy(converted, depth + 1)
        try:
            converted = msgspec.to_builtins(
                value.model_dump() if hasattr(value, "model_dump") else value, str_keys=True
            )
        except Exception:
            # An object without a text of its own prints its address, which differs in each process.
            is_bare = (type(value).__str__, type(value).__repr__) == _NO_TEXT or isinstance(value, _NO_VALUES)
            converted = self.unreadable(f"a {type(value).__name__}") if is_bare else self.shown_object(value)
        return self.copy(converted, depth + 1)

    def shown_object(self, value: object) -> str:
        try:
            return str(value)
        except Exception as error:
            return self.unreadable(f"a {type(value).__name__} that cannot be read: {type(error).__name__}")

    def unreadable(self, description: str) -> str:
        """Return the mark that replaces a value that is not JSON."""
        return self.cut(description)


class ShowingCopier(Copier):
    """Attempt to copy a value for people to see: media (images, sound, blobs) are replaced by their names, and no part
    of a secret remains at a cut."""

    __slots__ = ()

    def clean(self, text: str) -> str:
        return scrub(text)

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
    """Copier of a whole value. Raises: ValueTooLargeError or NotJsonError where other copiers leave out a part."""

    __slots__ = ()

    def cut(self, description: str) -> str:
        raise ValueTooLargeError(description)

    def unreadable(self, description: str) -> str:
        raise NotJsonError(f"found {description}")


#: Objects that produce values when they run, and are not values themselves.
_NO_VALUES: Final = (Iterator, AsyncIterator, Awaitable)
_NO_TEXT: Final[Any] = (object.__str__, object.__repr__)


# Subclasses of JSON's types, and types that are nearly lists; msgspec converts all others.
_CONVERSIONS: tuple[tuple[Any, Any], ...] = (
    (Enum, lambda value: value.value),
    (bool, bool),
    (int, int),
    (float, float),
    (str, lambda value: str.__str__(value)),
    ((list, tuple), lambda value: list(islice(value, _MOST + 1))),
    (AbstractSet, lambda value: _sort(value)),
    (BaseException, lambda value: f"{type(value).__name__}: {value}"),
)


def _sort(values: Iterable[Any]) -> list[Any]:
    items = list(islice(values, _MOST + 1))
    try:
        return sorted(items)
    except TypeError:
        return items
