"""Encoding of any value as ASCII JSON. `encode` raises only if `exact`, and writes about a megabyte at most."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct

from memory.codec.bounded import MAX_DEPTH, BoundedWalk
from memory.codec.columns import MAX_TEXT, text_of
from spar.errors import TooLargeError

MAX_BYTES = 1 << 20  # of a row: SQLite still writes this size well, and a person can still read it
_TIGHTER = (MAX_TEXT, 1 << 12, 1 << 8)  # limits of a text, tried in turn: a few large texts must leave room

_NOT_ASCII = re.compile("[^\x00-\x7f]+")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ALIKE = bytes.maketrans(b"{}", b"[]")
_OPENING = b"["[0]
_SCALARS = frozenset({bool, int, float, type(None), datetime})
_dumps = json.JSONEncoder(allow_nan=False, separators=(",", ":"), check_circular=False).encode


def encode(value: Any, *, exact: bool = False, limit: int = MAX_BYTES) -> str:
    """Return the value as ASCII JSON.

    Args: exact: refuse a value that could only be written cut or as its `repr`; limit: most bytes.
    Raises: ValueError (TooLargeError is one), only when `exact`, saying what cannot be stored.
    """
    return encoded(value, exact=exact, limit=limit)[0]


def encoded(value: Any, *, exact: bool = False, limit: int = MAX_BYTES) -> tuple[str, bool]:
    """Return the text as `encode` does, and whether the value had to be cut. Raises: as `encode`."""
    unknown = _refuse if exact else text_of
    try:
        raw = msgspec.json.encode(value, enc_hook=unknown)
    except Exception:  # lone surrogates, unusual keys, circular references, a broken method of a user's object
        raw = b""
    if raw.isascii() and 0 < len(raw) <= min(limit, 2 * MAX_DEPTH):  # too short to be nested too deeply
        return raw.decode(), False
    if raw and len(raw) <= limit and not _is_deep(raw):
        text = raw.decode()
        if not raw.isascii():
            text = _NOT_ASCII.sub(_escape, text)
        if len(text) <= limit:
            return text, False
    for max_text in (limit, *_TIGHTER):
        walk = BoundedWalk(unknown, max_text, limit)
        plain = walk.plain(value, 0)
        if walk.left > 0:
            break
    if walk.cut and exact:
        raise TooLargeError(f"too large or too deep to be kept whole: at most {limit} bytes and {MAX_DEPTH} levels")
    if walk.cut and isinstance(value, Struct):
        plain["truncated"] = True
    return _dumps(plain), walk.cut


def exactly(value: Any, what: str, *, limit: int = MAX_BYTES) -> str:
    """Return the whole value as ASCII JSON, since state is never cut.

    Args: what: the name of the value in an error; limit: most bytes.
    Raises: TooLargeError when it is too large or too deep; ValueError when it is no JSON-able value.
    """
    try:
        return encode(value, exact=True, limit=limit)
    except TooLargeError as error:
        raise TooLargeError(f"{what} is {error}; keep a row for each thing instead") from None
    except ValueError as error:
        raise ValueError(f"{what} cannot be kept: {error}") from None


def shortened(value: Any, limit: int) -> tuple[str, bool]:
    """Return the value as ASCII JSON of about `limit` bytes at most, and whether it was cut.

    A value that is too large is never encoded whole, so the work grows with `limit` and not with the value.
    """
    if seems_small(value, limit):
        text = encode(value, limit=1 << 62)
        if len(text) <= limit:
            return text, False
    for max_text in (max(limit // 4, _TIGHTER[-1]), _TIGHTER[-1]):
        walk = BoundedWalk(text_of, max_text, limit)
        plain = walk.plain(value, 0)
        if walk.left > 0:
            break
    if walk.cut and isinstance(value, Struct):
        plain["truncated"] = True
    return _dumps(plain), walk.cut


def seems_small(value: Any, limit: int) -> bool:
    """Return whether a value has fewer than `limit` characters and parts, by a quick estimate that stops at more.

    This runs for each cycle with calls. So empty fields of a struct are skipped all at once, and fields that hold a
    number, a time or a literal are not read.
    """
    left = limit
    todo: list[Any] = [value]
    for part in todo:  # the list grows during the loop
        kind = type(part)
        left -= 2
        if kind in _SCALARS:
            pass
        elif isinstance(part, (str, bytes, bytearray)):
            left -= len(part)
        elif issubclass(kind, Struct):
            fields = _large_fields(kind)(part)
            try:
                todo += filter(None, fields)
            except Exception:  # an object of a user whose `bool` raises
                todo += fields
        elif kind is dict or (kind is not tuple and isinstance(part, Mapping)):
            left -= 8 * len(part)
            if left > 0:
                todo += part
                todo += part.values()
        elif isinstance(part, (list, tuple, set, frozenset)):
            left -= 2 * len(part)
            if left > 0:
                todo += part
        if left <= 0:
            return False
    return True


@cache
def _large_fields(kind: type[Struct]) -> Callable[[Any], Iterable[Any]]:
    """Return a function that reads the fields of a struct that may be large, by their declared types."""
    hints = typing.get_type_hints(kind)
    names = [name for name in kind.__struct_fields__ if not _is_scalar(hints[name])]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: [getattr(value, name) for name in names]


def _is_scalar(hint: Any) -> bool:
    if get_origin(hint) in (typing.Union, types.UnionType):
        return all(map(_is_scalar, get_args(hint)))
    return get_origin(hint) is typing.Literal or hint in _SCALARS


def _refuse(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise ValueError(f"a {type(value).__name__} cannot be kept; use text, numbers, lists and objects")


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match.group())[1:-1]


def _is_deep(raw: bytes) -> bool:
    if len(raw) <= 2 * MAX_DEPTH:
        return False
    # Brackets inside texts count too. Few values then take the slow way without need, which measures exactly.
    brackets = raw.translate(_ALIKE, _NOT_BRACKETS)
    depth = 0  # levels that were removed
    while len(brackets) + depth > MAX_DEPTH and depth < MAX_DEPTH:
        # Remove the innermost level of all brackets at once, so that Python does not loop over each bracket.
        before = len(brackets)
        brackets = brackets.replace(b"[]", b"")
        if len(brackets) == before:
            break
        depth += 1
    else:
        return bool(brackets) and len(brackets) + depth > MAX_DEPTH
    for bracket in brackets:
        depth += 1 if bracket == _OPENING else -1
        if depth > MAX_DEPTH:
            return True
    return False
