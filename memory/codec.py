"""Any value to ASCII JSON and back: what goes into a row.

ASCII, because then no text can break the database, a log or a terminal: lone surrogates, control characters
and everything else outside ASCII stand as `\\uXXXX`. `encode` never raises and never writes more than about
a megabyte. What JSON has no word for is written so:

- NaN and infinities are `null`; a struct's field that must be a number reads `null` as NaN;
- datetimes are ISO 8601, bytes base64, sets and tuples lists, keys text, anything unknown its `repr`;
- what is too large or too deep (160 levels) is cut: a text ends in `… truncated`, a list in `"truncated"`, a dict
  has the key `truncated`, and so has the outermost object of a struct.

It does not know rows or tables.
"""

from __future__ import annotations

import base64
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, TypeVar, get_args, get_origin
from zlib import crc32

import msgspec
from msgspec import Struct

from spar.errors import TooLargeError

T = TypeVar("T")

MAX_BYTES = 1 << 20  # of a row: what SQLite still writes well, and a person can still look at
MAX_TEXT = 1 << 16  # characters of a text in a column, and at first of each text in a row that is too large
_TIGHTER = (MAX_TEXT, 1 << 12, 1 << 8)  # tried in turn, so that a few large texts cannot crowd out the rest
MAX_DEPTH = 160  # the 128 levels of a value, and of the rows that it stands in
_SHORT = 64  # characters that are never cut: ids, statuses and times must stay readable as what they are
_MAX_INT_BITS = 10_000  # Python refuses to write integers of more than 4,300 digits

_NOT_ASCII = re.compile("[^\x00-\x7f]+")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ALIKE = bytes.maketrans(b"{}", b"[]")
_OPENING = b"["[0]
_SCALARS = frozenset({bool, int, float, type(None), datetime})
_dumps = json.JSONEncoder(allow_nan=False, separators=(",", ":"), check_circular=False).encode


def encode(value: Any, *, exact: bool = False, limit: int = MAX_BYTES) -> str:
    """Return the value as ASCII JSON.

    Args: exact: refuse what could only be written cut or as its `repr`; limit: bytes that it may take.
    Raises: ValueError (TooLargeError is one), and only when `exact`, saying what cannot be kept.
    """
    return encoded(value, exact=exact, limit=limit)[0]


def encoded(value: Any, *, exact: bool = False, limit: int = MAX_BYTES) -> tuple[str, bool]:
    """Encode as `encode` does; returns also whether the value had to be cut. Raises: as `encode`."""
    unknown = _refuse if exact else _text_of
    try:
        raw = msgspec.json.encode(value, enc_hook=unknown)
    except Exception:  # lone surrogates, strange keys, circles, a broken method of a stranger's object
        raw = b""
    if raw.isascii() and 0 < len(raw) <= min(limit, 2 * MAX_DEPTH):  # too short to be deep
        return raw.decode(), False
    if raw and len(raw) <= limit and not _is_deep(raw):
        text = raw.decode()
        if not raw.isascii():
            text = _NOT_ASCII.sub(_escape, text)
        if len(text) <= limit:
            return text, False
    for max_text in (limit, *_TIGHTER):
        walk = _Bounded(unknown, max_text, limit)
        plain = walk.plain(value, 0)
        if walk.left > 0:
            break
    if walk.cut and exact:
        raise TooLargeError(f"too large or too deep to be kept whole: at most {limit} bytes and {MAX_DEPTH} levels")
    if walk.cut and isinstance(value, Struct):
        plain["truncated"] = True
    return _dumps(plain), walk.cut


def exactly(value: Any, what: str, *, limit: int = MAX_BYTES) -> str:
    """Return the value as ASCII JSON, whole: state is never cut.

    Args: what: names it in an error; limit: bytes that it may take.
    Raises: TooLargeError when it is larger or deeper; ValueError when it cannot be kept as what it is.
    """
    try:
        return encode(value, exact=True, limit=limit)
    except TooLargeError as error:
        raise TooLargeError(f"{what} is {error}; keep a row for each thing instead") from None
    except ValueError as error:
        raise ValueError(f"{what} cannot be kept: {error}") from None


def shortened(value: Any, limit: int) -> tuple[str, bool]:
    """Return the value as ASCII JSON of about `limit` bytes at most, cut if need be, and whether it was.

    What is too large is never encoded whole: the work is bounded by what is kept.
    """
    if seems_small(value, limit):
        text = encode(value, limit=1 << 62)
        if len(text) <= limit:
            return text, False
    for max_text in (max(limit // 4, _TIGHTER[-1]), _TIGHTER[-1]):
        walk = _Bounded(_text_of, max_text, limit)
        plain = walk.plain(value, 0)
        if walk.left > 0:
            break
    if walk.cut and isinstance(value, Struct):
        plain["truncated"] = True
    return _dumps(plain), walk.cut


def seems_small(value: Any, limit: int) -> bool:
    """Return whether a quick look finds fewer than `limit` characters and parts in a value; it stops when it finds
    more.

    It is done for each cycle with calls: of a struct what is empty is passed over without a step for each field, and so
    is what holds a number, a time or one of a few words.
    """
    left = limit
    todo: list[Any] = [value]
    for each in todo:  # it grows meanwhile
        kind = type(each)
        left -= 2
        if kind in _SCALARS:
            pass
        elif isinstance(each, (str, bytes, bytearray)):
            left -= len(each)
        elif issubclass(kind, Struct):
            found = _large_fields(kind)(each)
            try:
                todo += filter(None, found)
            except Exception:  # a stranger's object that does not know whether it is true
                todo += found
        elif kind is dict or (kind is not tuple and isinstance(each, Mapping)):
            left -= 8 * len(each)
            if left > 0:
                todo += each
                todo += each.values()
        elif isinstance(each, (list, tuple, set, frozenset)):
            left -= 2 * len(each)
            if left > 0:
                todo += each
        if left <= 0:
            return False
    return True


@cache
def _large_fields(kind: type[Struct]) -> Callable[[Any], Iterable[Any]]:
    """Return the reader of a struct's large fields, by the types that they should have."""
    hints = _fields(kind)
    names = [name for name in kind.__struct_fields__ if not _is_scalar(hints[name])]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: [getattr(value, name) for name in names]


def _is_scalar(hint: Any) -> bool:
    if get_origin(hint) in (typing.Union, types.UnionType):
        return all(map(_is_scalar, get_args(hint)))
    return get_origin(hint) is typing.Literal or hint in _SCALARS


def sealed(text: str) -> str:
    """Add a checksum to what `encode` wrote, so that no bit of it can change unseen while it lies on disk."""
    return f"{text}\n{crc32(text.encode('ascii')):08x}"


def unsealed(text: str) -> str:
    """Remove the checksum; a text without one is given back as it is. Raises: AlteredError when the checksum does not
    fit."""
    if text[-9:-8] != "\n":
        return text
    body = text[:-9]
    if f"{crc32(body.encode(errors='replace')):08x}" != text[-8:]:
        raise AlteredError("its checksum does not fit: it was altered")
    return body


def decode(text: str, kind: type[T]) -> T:
    """Return the value of a given type that `encode` wrote, sealed or not.

    Raises: ValueError (msgspec.ValidationError is one) saying where it is not what the type asks for.
    """
    return read(json.loads(unsealed(text), parse_constant=_no_constant), kind)


def read(plain: Any, kind: type[T]) -> T:
    """Parsed JSON as a value of a type. Raises: ValueError."""
    try:
        return msgspec.convert(plain, kind, strict=False)
    except msgspec.ValidationError:
        return msgspec.convert(_with_numbers(plain, kind), kind, strict=False)


def is_safe(text: str, limit: int = MAX_TEXT) -> bool:
    """Return whether a quick look finds that a column takes a text as it is."""
    return len(text) <= limit and text.isascii() and "\0" not in text


def safe(text: object, limit: int = MAX_TEXT) -> str:
    """Text that a column takes: lone surrogates and NUL replaced by their escapes, never longer than `limit`.

    What is longer keeps its beginning and has a digest of the whole at its end: what differs stays different.
    """
    kept = text if type(text) is str else _text_of(text)
    if is_safe(kept, limit):
        return kept
    if len(kept) > limit:
        mark = blake2b(kept.encode(errors="surrogatepass"), digest_size=12).hexdigest()
        kept = f"{kept[: max(limit - len(mark) - 1, 0)]}…{mark}" if limit > 2 * len(mark) else kept[:limit]
    if "\0" in kept:
        kept = kept.replace("\0", "\\x00")
    try:
        kept.encode()
    except UnicodeEncodeError:
        kept = kept.encode(errors="backslashreplace").decode()
    return kept


class AlteredError(ValueError):
    """A text does not say any more what was written."""


class _Bounded:
    """One walk over a value that was too large, too deep or too strange for the fast way."""

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
            leaf = _text_of(value)
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
        kept: list[Any] = []
        for item in items:
            if self.left <= 0:
                self.cut = True
                if not isinstance(item, Struct):
                    kept.append("truncated")
                break
            kept.append(self._deeper(item, depth))
        return kept

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, item in value.items():
            if self.left <= 0:
                self.cut = True
                kept["truncated"] = f"{len(value) - len(kept)} more"
                break
            kept[self._text(key if type(key) is str else _key_of(key))] = self._deeper(item, depth)
        return kept


def _text_of(value: object) -> str:
    if isinstance(value, str):  # a subclass
        return str.__str__(value)
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"


def _key_of(key: object) -> str:
    return "null" if key is None else _text_of(key)


def _refuse(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise ValueError(f"a {type(value).__name__} cannot be kept; use text, numbers, lists and objects")


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match.group())[1:-1]


def _is_deep(raw: bytes) -> bool:
    if len(raw) <= 2 * MAX_DEPTH:
        return False
    # Brackets inside texts count too: that only sends a rare value the slow way, which looks exactly.
    brackets = raw.translate(_ALIKE, _NOT_BRACKETS)
    depth = 0  # of what is taken away
    while len(brackets) + depth > MAX_DEPTH and depth < MAX_DEPTH:
        # One level at a time from the inside, so that not each of them is looked at in Python.
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


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@cache
def _fields(kind: type[Struct]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _with_numbers(value: Any, kind: Any) -> Any:
    """Return the value with NaN where a number must stand and `null` was written."""
    if kind is float:
        return math.nan if value is None else value
    origin, args = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        others = [arg for arg in args if arg is not type(None)]
        return value if value is None or len(others) != 1 else _with_numbers(value, others[0])
    if origin is typing.Annotated:
        return _with_numbers(value, args[0])
    if isinstance(kind, type) and issubclass(kind, Struct) and isinstance(value, dict):
        hints = _fields(kind)
        fields = {name: _with_numbers(item, hints.get(name, Any)) for name, item in value.items()}
        restored = getattr(kind, "restored", None)  # a type that bounds today what it did not before
        return fields if restored is None else restored(fields)
    if origin in (tuple, Sequence) and isinstance(value, list):
        return [_with_numbers(item, args[0]) for item in value]
    if origin is dict and isinstance(value, dict):
        return {key: _with_numbers(item, args[1]) for key, item in value.items()}
    return value


def seconds(at: datetime) -> float:
    """Return the seconds since 1970; a time without a zone is taken as UTC."""
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
