"""Copies of values: a fast way for small JSON values, `copier` for all others."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

import msgspec

from spar.checks import SCALARS
from spar.data.json_safe.copier import (
    LARGE,
    LEAST,
    SHORT,
    Copier,
    NotJsonError,
    ShowingCopier,
    TooMuchError,
    WholeCopier,
    is_bounded,
    text,
)
from spar.data.media import medium_of
from spar.data.paths import MAX_DEPTH, ValueTooLargeError

MAX_OUTPUT: Final = 1 << 20
UNBOUNDED: Final = 1 << 62  # a caller's own values are not cut
_ROOM: Final = 1 << 20  # characters that may be copied before the fast way gives up
_LEAST: Final = (
    32  # characters that an item takes besides its text and key: no number is longer at four bytes a character
)
_FEW, _WORD, _BRIEF = 16, 64, 4096  # entries of a brief object, characters of an entry, bytes that hold them all
_MANY: Final = 1 << 11  # items; for more items the encoder is faster
_DEEPEST: Final = 16  # levels


def plain(value: Any, cap: int = MAX_OUTPUT) -> Any:
    """Return a JSON-able copy of `value` for people to see, of at most about `cap` bytes."""
    copy = _quick(value, cap)
    return copy if copy is not _NOT_QUICK else _shortened(value, cap, Copier)[0]


def shortened(value: Any, cap: int = MAX_OUTPUT) -> tuple[Any, bool]:
    """Return a JSON-able copy of `value` of at most about `cap` bytes, and whether anything is left out."""
    copy = _quick(value, cap)
    return (copy, False) if copy is not _NOT_QUICK else _shortened(value, cap, Copier)


def shown(value: Any, cap: int) -> tuple[Any, bool]:
    """Return a copy of `value` for people to see, and whether anything is left out, as `shortened` does; images, sound
    and blobs are replaced by their names, and no part of a secret remains at a cut."""
    if type(value) in SCALARS and (type(value) is not str or medium_of(value) is None):
        copy = _quick(value, cap)
        if copy is not _NOT_QUICK:
            return copy, False
    if type(value) is dict and cap >= _BRIEF and _is_brief(value):
        return dict(value), False
    return _shortened(value, cap, ShowingCopier)


def _is_brief(value: dict[Any, Any]) -> bool:
    """Return whether an object consists of a few short scalars without an image, sound or blob, so that it is shown as
    it is."""
    if len(value) > _FEW or "data" in value or "blob" in value:
        return False
    for key, item in value.items():
        if type(key) is not str or len(key) > _WORD or not key.isascii():
            return False
        kind = type(item)
        if kind is str:
            if len(item) > _WORD or not item.isascii():  # a longer one may be the URL of a medium
                return False
        elif kind is int:
            if not LEAST < item < LARGE:
                return False
        elif item is not None and kind is not bool:
            return False
    return True


def _shortened(value: Any, cap: int, copier_type: type[Copier]) -> tuple[Any, bool]:
    kind = type(value)
    # Each round keeps less of each part; most values pass the first.
    for longest, widest, deepest in ((cap, cap, MAX_DEPTH), (cap // 16, 1000, 32), (1000, 50, 12), (200, 10, 6)):
        copier = copier_type(cap, min(longest, cap), widest, deepest)
        try:
            return copier.copy(value, 0), copier.is_cut
        except TooMuchError:
            continue
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # an object that cannot be read at all: its iterator raises
            return f"… a {kind.__name__} that cannot be read: {type(error).__name__} …", True
    return f"… a {kind.__name__} that is too large left out …", True


def whole(value: Any, limit: int) -> Any:
    """Return a JSON-able copy of all of `value`, which takes at most about `limit` bytes as JSON.

    Raises: ValueTooLargeError for a value that is larger, nested more than 128 levels deep or endless; NotJsonError for
        one that is not JSON and cannot be converted (a generator, an object without a text of its own).
    """
    copy = _quick(value, limit)
    return copy if copy is not _NOT_QUICK else measured(value, limit)[0]


def measured(value: Any, limit: int) -> tuple[Any, int]:
    """Return the copy that `whole` returns, and about how many bytes it takes as JSON. Raises: as `whole`."""
    if type(value) in CONTAINERS and is_bounded(value, min(limit, MOST_QUICK)):
        try:  # the encoder takes a tenth of the time of copying in Python
            encoded = msgspec.json.encode(value)
        except Exception:  # a lone surrogate, a large integer: `WholeCopier` handles them
            encoded = b""
        if encoded:
            if len(encoded) > limit:
                raise ValueTooLargeError(f"{len(encoded)} bytes as JSON")
            return msgspec.json.decode(encoded), len(encoded)
    copier = WholeCopier(limit, limit, limit, MAX_DEPTH)
    room = copier.room
    try:
        return copier.copy(value, 0), room - copier.room
    except TooMuchError:
        raise ValueTooLargeError(f"more than {limit} bytes as JSON, or the same containers again and again") from None
    except (KeyboardInterrupt, SystemExit, ValueTooLargeError, NotJsonError):
        raise
    except BaseException as error:
        raise NotJsonError(f"a {type(value).__name__} that cannot be read: {type(error).__name__}") from error


MOST_QUICK: Final = 1 << 22  # values; a larger number may come from a value that contains itself many times
_NOT_QUICK: Final[Any] = object()
CONTAINERS: Final = (dict, list, tuple)


def _quick(value: Any, cap: int) -> Any:
    """Return a copy of a small JSON value; _NOT_QUICK for any other."""
    kind = type(value)
    if value is None or kind is bool or (kind is int and LEAST < value < LARGE):
        return value
    if kind is str and len(value) <= cap and value.isascii():
        return value
    if kind is float:
        return value if isfinite(value) else None
    if kind is dict or kind is list:
        room = _ROOM if cap > 4 * _ROOM else cap // 4
        try:  # most values are small: the same copy at a third of the cost
            return _small(value, room, max(_LEAST, room // _MANY))[0]
        except TooMuchError:
            pass
    return _NOT_QUICK


def copied(value: Any) -> Any:
    """Return a copy of a plain JSON value; texts are shared. Nothing is checked: any other value may raise."""
    # Measured: a fifth of the time of copying in Python, half of marshal's or of a round trip through JSON.
    return value if type(value) in SCALARS else msgspec.to_builtins(value)


def size_of(value: Any) -> int:
    """Return about how many bytes a plain value takes."""
    if value is None or type(value) in SCALARS:
        return len(value) + 50 if type(value) is str else 30
    size, items = 0, [value]
    for item in items:  # the list grows while its containers are read
        if isinstance(item, str):
            size += len(item) + 50
        elif isinstance(item, dict):
            size += 60 + sum(map(len, map(str, item)))  # JSON has numbers as keys, too, which become text
            items += item.values()
        elif isinstance(item, (list, tuple)):
            size += 60
            items += item
        else:
            size += 30
    return size


def sized(value: Any, cap: int) -> tuple[Any, int]:
    """Return a copy of `value` as `plain` does, and about how many bytes it takes."""
    room = cap // 4
    try:
        copy, left_room = _small(value, room, _LEAST)
    except TooMuchError:
        copy = plain(value, cap)
        return copy, size_of(copy)
    return copy, room - left_room


def _small(value: Any, room: int, item_cost: int, deepest: int = _DEEPEST) -> tuple[Any, int]:
    """Return a plain copy of a value that takes at most `room` characters, and the room that is left.

    Each item takes `item_cost` characters besides its text. Scalar items are handled without a recursive call, which
    would cost as much as all the other work. Raises: TooMuchError for a value that is too large or not JSON.
    """
    kind, copy = type(value), value
    if kind is dict:
        room -= item_cost * (len(value) + 1)
        if room < 0 or not deepest:
            raise TooMuchError
        copy = {}
        for key, item in value.items():
            if type(key) is not str or len(key) > SHORT:
                raise TooMuchError
            room -= len(key)
            item_kind = type(item)
            if item_kind is str and item.isascii():
                room -= len(item)
            elif item_kind is int:
                if not LEAST < item < LARGE:
                    raise TooMuchError
            elif item is not None and item_kind is not bool:
                item, room = _small(item, room, item_cost, deepest - 1)
            copy[key if key.isascii() else text(key)] = item
    elif kind is list or kind is tuple:
        room -= item_cost * (len(value) + 1)
        if room < 0 or not deepest:
            raise TooMuchError
        copy = []
        for item in value:
            item_kind = type(item)
            if item_kind is str and item.isascii():
                room -= len(item)
            elif item_kind is int:
                if not LEAST < item < LARGE:
                    raise TooMuchError
            elif item is not None and item_kind is not bool:
                item, room = _small(item, room, item_cost, deepest - 1)
            copy.append(item)
    elif kind is float:
        return (value if isfinite(value) else None), room
    elif kind is str and len(value) <= room:
        copy, room = text(value), room - len(value)
    else:
        raise TooMuchError
    if room < 0:
        raise TooMuchError
    return copy, room
