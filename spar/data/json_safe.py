"""Copies of what tools return, fit to keep: JSON values only, bounded. Pure.

A result goes to state, to the store and to a model, so nothing that one of them chokes on may pass: lone
surrogates become U+FFFD, nan and infinity null, unknown objects their text. `whole` copies a value that something
is computed from: it copies all of it, or raises. `plain` and `shortened` copy a value that is shown: one that is too
large keeps its head and tail with a mark between them; they never raise. What has been through one of these only
needs `copied`.
"""

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

MAX_OUTPUT: Final = 1 << 20
UNBOUNDED: Final = 1 << 62  # what is the caller's own is not cut

_MOST: Final = 1 << 20  # items of a foreign container: its iterator may have no end
_AGAIN: Final = 1 << 16  # items of containers met again: a value that holds itself many times has no end
_PRINTED: Final = 14_000  # bits of an integer; one of more than 4300 digits is printed by no encoder

# What is small enough that nothing has to be spent on bounding it.
_FEW, _SHORT = 16, 256  # entries of an object, characters of a key or bits of an integer
_LARGE: Final = 1 << _SHORT
_ROOM: Final = 1 << 20  # characters that may have been copied in vain
_LEAST: Final = (
    32  # characters that an item takes besides its text and its key: a number is not longer, at four bytes each
)
_MANY: Final = 1 << 11  # items; of more than these the encoder makes a copy faster
_DEEPEST: Final = 16  # levels


def plain(value: Any, cap: int = MAX_OUTPUT) -> Any:
    """Return a JSON-able copy of `value` to show, of at most about `cap` bytes."""
    found = _quick(value, cap)
    return found if found is not _NOT_QUICK else _shortened(value, cap, _Copier)[0]


def shortened(value: Any, cap: int = MAX_OUTPUT) -> tuple[Any, bool]:
    """Return a JSON-able copy of `value` of at most about `cap` bytes, and whether anything is left out."""
    found = _quick(value, cap)
    return (found, False) if found is not _NOT_QUICK else _shortened(value, cap, _Copier)


def shown(value: Any, cap: int) -> tuple[Any, bool]:
    """Return `value` as people are shown it, as `shortened` does; images, sound and blobs are only named."""
    if type(value) in SCALARS and (type(value) is not str or medium_of(value) is None):
        return shortened(value, cap)
    return _shortened(value, cap, _ShowingCopier)


def _shortened(value: Any, cap: int, copier_type: type[_Copier]) -> tuple[Any, bool]:
    kind = type(value)
    # Each round keeps less of each part; most values pass the first.
    for longest, widest, deepest in ((cap, cap, MAX_DEPTH), (cap // 16, 1000, 32), (1000, 50, 12), (200, 10, 6)):
        copier = copier_type(cap, min(longest, cap), widest, deepest)
        try:
            return copier.copy(value, 0), copier.is_cut
        except _TooMuchError:
            continue
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # an object that cannot even be looked at: its iterator raises
            return f"… a {kind.__name__} that cannot be read: {type(error).__name__} …", True
    return f"… a {kind.__name__} that is too large left out …", True


def whole(value: Any, limit: int) -> Any:
    """Return a JSON-able copy of all of `value`, which takes at most about `limit` bytes as JSON.

    Raises: ValueTooLargeError for what is larger, nested more than 128 levels deep or endless; NotJsonError for what
        is no value of JSON and cannot be read as one (a generator, an object without a text of its own).
    """
    found = _quick(value, limit)
    if found is not _NOT_QUICK:
        return found
    if type(value) in _CONTAINERS and is_bounded(value, min(limit, _MOST_QUICK)):
        try:  # by the encoder: a tenth of the cost of walking it in Python
            encoded = msgspec.json.encode(value)
        except Exception:  # a lone surrogate, a large integer: the long way knows what to do
            encoded = b""
        if encoded:
            if len(encoded) > limit:
                raise ValueTooLargeError(f"{len(encoded)} bytes as JSON")
            return msgspec.json.decode(encoded)
    try:
        return _WholeCopier(limit, limit, limit, MAX_DEPTH).copy(value, 0)
    except _TooMuchError:
        raise ValueTooLargeError(f"more than {limit} bytes as JSON, or the same containers again and again") from None
    except (KeyboardInterrupt, SystemExit, ValueTooLargeError, NotJsonError):
        raise
    except BaseException as error:
        raise NotJsonError(f"a {type(value).__name__} that cannot be read: {type(error).__name__}") from error


_MOST_QUICK: Final = 1 << 22  # values; more may be one that holds itself many times
_NOT_QUICK: Final[Any] = object()
_CONTAINERS: Final = (dict, list, tuple)


def _quick(value: Any, cap: int) -> Any:
    """Return a copy of a small value of JSON; _NOT_QUICK for any other."""
    kind = type(value)
    if value is None or kind is bool or (kind is int and -_LARGE < value < _LARGE):
        return value
    if kind is str and len(value) <= cap and value.isascii():
        return value
    if kind is float:
        return value if isfinite(value) else None
    if kind is dict or kind is list:
        room = _ROOM if cap > 4 * _ROOM else cap // 4
        try:  # most values are small: the same copy at a third of the cost
            return _small(value, room, max(_LEAST, room // _MANY))[0]
        except _TooMuchError:
            pass
    return _NOT_QUICK


def copied(value: Any) -> Any:
    """A copy of what is plain already; texts are shared. Nothing is judged: on anything else this may raise."""
    # Measured: a fifth of the cost of walking it in Python, a half of marshal or of a round trip through JSON.
    return value if type(value) in SCALARS else msgspec.to_builtins(value)


def sized(value: Any, cap: int) -> tuple[Any, int]:
    """Return a copy of `value` as `plain` does, and about how many bytes it takes."""
    room = cap // 4
    try:
        found, left = _small(value, room, _LEAST)
    except _TooMuchError:
        found = plain(value, cap)
        return found, size_of(found)
    return found, room - left


def size_of(value: Any) -> int:
    """Return about how many bytes a plain value takes."""
    size, rest = 0, [value]
    for item in rest:  # which grows while containers are met
        if isinstance(item, str):
            size += len(item) + 50
        elif isinstance(item, dict):
            size += 60 + sum(map(len, item))
            rest += item.values()
        elif isinstance(item, list):
            size += 60
            rest += item
        else:
            size += 30
    return size


def text(value: str) -> str:
    """The text with lone surrogates replaced, so that it can be encoded."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


# -- what is plain as it stands


def is_flat(value: dict[Any, Any]) -> bool:
    """Return whether this is a small object of small scalars, which is fit to keep as it is."""
    return len(value) <= _FEW and all(map(_is_name, value)) and all(map(_is_short, value.values()))


def is_bounded(value: Any, cap: int) -> bool:
    """Return whether it is made of JSON's own types, with as few values and levels as may be encoded."""
    level, count = [item for item in (value,) if type(item) not in SCALARS], 0
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is dict:
                if not _TEXT.issuperset(map(type, each)):
                    return False
                each = each.values()
            elif kind is not list and kind is not tuple:
                return False
            count += 1 + len(each)  # none of them takes less than a character
            if count > cap:
                return False
            if not SCALARS.issuperset(map(type, each)):
                below += [item for item in each if type(item) not in SCALARS]
        if not below:
            return True
        level = below
    return False


_TEXT: Final = frozenset({str})


def _is_name(key: Any) -> bool:
    return type(key) is str and len(key) <= _SHORT and key.isascii()


def _is_short(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return len(value) <= _SHORT and value.isascii()
    return value is None or kind is bool or (kind is int and -_LARGE < value < _LARGE)


# -- the short way, for small values of JSON


class _TooMuchError(Exception):
    """Error of a copy that does not fit."""


class NotJsonError(TypeError):
    """An object is no value of JSON and cannot be read as one."""


def _small(value: Any, room: int, each: int, deepest: int = _DEEPEST) -> tuple[Any, int]:
    """Return a plain copy of what has room in `room` characters, each item taking `each` besides, and what is left.

    A child that may stay as it is does so without a call of its own, which would cost as much as all the rest.
    Raises: _TooMuchError for what has no room, or is no JSON.
    """
    kind, found = type(value), value
    if kind is dict:
        room -= each * (len(value) + 1)
        if room < 0 or not deepest:
            raise _TooMuchError
        found = {}
        for key, item in value.items():
            if type(key) is not str or len(key) > _SHORT:
                raise _TooMuchError
            room -= len(key)
            what = type(item)
            if what is str and item.isascii():
                room -= len(item)
            elif what is int:
                if not -_LARGE < item < _LARGE:
                    raise _TooMuchError
            elif item is not None and what is not bool:
                item, room = _small(item, room, each, deepest - 1)
            found[key if key.isascii() else text(key)] = item
    elif kind is list or kind is tuple:
        room -= each * (len(value) + 1)
        if room < 0 or not deepest:
            raise _TooMuchError
        found = []
        for item in value:
            what = type(item)
            if what is str and item.isascii():
                room -= len(item)
            elif what is int:
                if not -_LARGE < item < _LARGE:
                    raise _TooMuchError
            elif item is not None and what is not bool:
                item, room = _small(item, room, each, deepest - 1)
            found.append(item)
    elif kind is float:
        return (value if isfinite(value) else None), room
    elif kind is str and len(value) <= room:
        found, room = text(value), room - len(value)
    else:
        raise _TooMuchError
    if room < 0:
        raise _TooMuchError
    return found, room


# -- the long way, for everything


class _Copier:
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
            raise _TooMuchError

    def meet(self, value: Collection[Any]) -> None:
        if id(value) in self.met:
            self.again -= len(value)
            if self.again < 0:
                raise _TooMuchError
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


class _ShowingCopier(_Copier):
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


class _WholeCopier(_Copier):
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
