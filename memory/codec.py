"""Any value to ASCII JSON and back, texts, times and bodies as the columns of a row take them, and the rows of the
journal whose bodies are values: facts, items, open cycles.

ASCII, because then no text can break the database, a log or a terminal: lone surrogates, control characters
and everything else outside ASCII stand as `\\uXXXX`. Values without a form in JSON have this one:

- NaN and infinities are `null`; a struct's field that must be a number reads `null` as NaN;
- datetimes are ISO 8601, bytes base64, sets and tuples lists, keys text, anything unknown its `repr`;
- what is too large or too deep (160 levels) is cut: a text ends in `… truncated`, a list in `"truncated"`, a dict
  has the key `truncated`, and so has the outermost object of a struct.

Nothing here knows tables. `encode` raises only if `exact`, and writes about a megabyte at most.
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
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin
from zlib import crc32

import msgspec
from msgspec import Struct

from spar.decoding import convert
from spar.errors import TooLargeError
from spar.types import Fault

if TYPE_CHECKING:
    from spar.clock import Clock
    from spar.records.journal import Item, Unfinished
    from spar.types import Action

MAX_TEXT = 1 << 16  # characters of a text in a column, and at first of each text in a row that is too large


class AlteredError(ValueError):
    """Error of a text that does not fit its checksum."""


def sealed(text: str) -> str:
    """Add a checksum to a text of `encode`, so that each changed bit on the disk is noticed."""
    return f"{text}\n{crc32(text.encode('ascii')):08x}"


def is_safe(text: str, limit: int = MAX_TEXT) -> bool:
    """Return whether a column can store a text unchanged, by a quick check that may say False too often."""
    return len(text) <= limit and text.isascii() and "\0" not in text


def safe(text: object, limit: int = MAX_TEXT) -> str:
    """Return a text that a column can store: lone surrogates and NUL become escapes, at most `limit` characters.

    A longer text keeps its beginning and gets a digest of the whole at its end, so that different texts stay different.
    """
    result = text if type(text) is str else text_of(text)
    if is_safe(result, limit):
        return result
    if len(result) > limit:
        mark = blake2b(result.encode(errors="surrogatepass"), digest_size=12).hexdigest()
        result = f"{result[: max(limit - len(mark) - 1, 0)]}…{mark}" if limit > 2 * len(mark) else result[:limit]
    result = result.replace("\0", "\\x00")
    try:
        result.encode()
    except UnicodeEncodeError:
        result = result.encode(errors="backslashreplace").decode()
    return result


def seconds(at: datetime) -> float:
    """Return the seconds since 1970; a time without a zone is taken as UTC."""
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def moment(at: Any) -> datetime:
    """Return the time in a column of seconds since 1970."""
    return datetime.fromtimestamp(float(at), UTC)


def text_of(value: object) -> str:
    """Return any object as text; its `repr` if it is no text."""
    if isinstance(value, str):  # a subclass
        return str.__str__(value)
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"


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
            return float(value) if math.isfinite(value) else None
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
        text = raw.decode() if raw.isascii() else _NOT_ASCII.sub(_escape, raw.decode())
        if len(text) <= limit:
            return text, False
    # What must be whole is looked at once: nothing of it is longer than `limit`, so shorter texts would only cut more.
    text, was_cut = _bounded(value, unknown, (limit,) if exact else (limit, *_TIGHTER), limit)
    if was_cut and exact:
        raise TooLargeError(f"too large or too deep to be kept whole: at most {limit} bytes and {MAX_DEPTH} levels")
    return text, was_cut


def _bounded(value: Any, unknown: Any, longest: Iterable[int], limit: int) -> tuple[str, bool]:
    """Return a value with texts of the first of these lengths that leaves room for all of it."""
    for max_text in longest:
        walk = BoundedWalk(unknown, max_text, limit)
        plain = walk.plain(value)
        if walk.left > 0:
            break
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
    return _bounded(value, text_of, (max(limit // 4, _TIGHTER[-1]), _TIGHTER[-1]), limit)


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


# -- rows of the journal

#: Assumed bytes of a body that is not encoded yet.
_ABOUT_A_LARGE_BODY = 1 << 20


class LateBody:
    """Body of a fact that is encoded when it is written: encoding it would hold up the event loop.

    Its text is kept, because a transaction may be repeated.
    """

    __slots__ = ("_encode", "_text")

    def __init__(self, encode: Callable[[], str]) -> None:
        self._encode, self._text = encode, ""

    def __len__(self) -> int:
        return len(self._text) or _ABOUT_A_LARGE_BODY

    def __str__(self) -> str:
        self._text = self._text or self._encode()
        return self._text


#: A fact before it has a number: time (seconds since 1970), id of the cycle, id of the call or item, kind, body.
EventRow = tuple[float, str, str, str, str | LateBody]


#: Most bytes of one body. A larger one is cut, which is reported; such work cannot be continued after a crash.
MOST_BYTES = 64 << 20
#: Most bytes of a fact of a call. It holds the largest result that an actor allows, since after a crash the next call
#: uses this result. Escaped to ASCII, JSON grows to three times its bytes at most.
MOST_CALL_BYTES = 3 * (256 << 20)
_OF_CALLS = frozenset({"planned", "started", "ended"})
#: Characters and parts of a result that is encoded at once.
_FEW = 16_384
#: Number of calls of a plan in one fact.
CALLS_IN_A_FACT = 500


class FactRows:
    """Maker of the rows for the facts, items and open cycles of one journal.

    Args: clock: gives the times of facts; report: called for a body that had to be cut, from any thread.
    """

    __slots__ = ("_clock", "_report")

    def __init__(self, clock: Clock, report: Callable[[Fault], None]) -> None:
        self._clock, self._report = clock, report

    def fact(self, work: str, call: str, kind: str, body: Any) -> EventRow:
        """Return the row of a fact.

        Args: work: the id of the cycle that the fact is about, or ""; call: the id of the call, item or run that it is
            about, or "".
        """
        text = body if isinstance(body, LateBody) else self._encoded(body, kind, work or call)
        return self._clock.now().timestamp(), safe(work), safe(call) if call else "", kind, text

    def ended(self, work: str, call: str, output: Any, end: dict[str, Any]) -> EventRow:
        """Return the row of a fact `ended`. Args: output: the call's result, which `end` contains."""
        late = None if seems_small(output, _FEW) else LateBody(lambda: self._encoded(end, "ended", work))
        return self.fact(work, call, "ended", end if late is None else late)

    def _encoded(self, body: Any, kind: str = "", about: str = "") -> str:
        limit = MOST_CALL_BYTES if kind in _OF_CALLS else MOST_BYTES
        text, was_cut = encoded(body, limit=limit)
        if was_cut:
            what = f"{kind} of {about}" if kind else f"a {type(body).__name__}"
            message = (
                f"{what:.200} is too large or too deep to be kept whole: at most {limit >> 20} MiB; it is kept cut"
            )
            self._report(Fault("too_large", message, "memory", retryable=False))
        return text

    def planned(self, work: str, head: Action, wires: Sequence[dict[str, Any]], effect: str) -> list[EventRow]:
        """Return the facts of an action that is about to be executed. Args: head: the action without its calls; wires:
        these as JSON objects."""
        begun = self.fact(work, head.id, "acting", {"action": head, "effect": effect, "calls": len(wires)})
        return [begun, *self.calls(work, wires)] if wires else [begun]

    def calls(self, work: str, wires: Sequence[dict[str, Any]]) -> list[EventRow]:
        """Return the facts of calls that were planned."""
        starts = range(0, len(wires), CALLS_IN_A_FACT)
        return [self.fact(work, "", "planned", wires[start : start + CALLS_IN_A_FACT]) for start in starts]

    def opened(self, cycle_id: str, cycle: Unfinished) -> EventRow:
        """Return the fact that a cycle has begun."""
        return self.fact(cycle_id, "", "opened", {"items": cycle.items, "run": cycle.run_id})

    def open_cycle(self, cycle_id: str, agent: str, cycle: Unfinished) -> tuple[Any, ...]:
        """Return the row of an open cycle."""
        return safe(cycle_id), safe(agent), cycle.attempts, self.body(cycle)

    def item(self, agent: str, item: Item, body: str = "") -> tuple[Any, ...]:
        """Return the row of an item of work. Args: body: its body if that is encoded already."""
        key, body = None if item.key is None else safe(item.key), body or self.body(item)
        return safe(item.id), safe(agent), safe(item.session), item.kind, key, seconds(item.at), item.attempts, body

    def body(self, value: Any) -> str:
        """Encode the body of a row that may change. It has a checksum, since it is not in the chain of facts."""
        return sealed(self._encoded(value))


# -- back to values

T = TypeVar("T")


def decode(text: str, kind: type[T]) -> T:
    """Return the value of a given type that `encode` wrote, sealed or not.

    Raises: ValueError (msgspec.ValidationError is one) saying where the text does not match the type.
    """
    return read(json.loads(unsealed(text), parse_constant=_no_constant), kind)


def read(plain: Any, kind: type[T]) -> T:
    """Return parsed JSON as a value of a type. Raises: ValueError."""
    try:
        return convert(plain, kind, strict=False)
    except msgspec.ValidationError:
        return convert(_with_numbers(plain, kind), kind, strict=False)


def unsealed(text: str) -> str:
    """Remove the checksum; a text without one is returned unchanged. Raises: AlteredError when it does not fit."""
    if text[-9:-8] != "\n":
        return text
    body = text[:-9]
    if f"{crc32(body.encode(errors='replace')):08x}" != text[-8:]:
        raise AlteredError("its checksum does not fit: it was altered")
    return body


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_fields = cache(typing.get_type_hints)


def _with_numbers(value: Any, kind: Any) -> Any:
    """Return the value with NaN in the place of `null` where the type requires a float."""
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
        restored = getattr(kind, "restored", None)  # the type has limits today that older rows may exceed
        return fields if restored is None else restored(fields)
    if origin in (tuple, Sequence) and isinstance(value, list):
        return [_with_numbers(item, args[0]) for item in value]
    if origin is dict and isinstance(value, dict):
        return {key: _with_numbers(item, args[1]) for key, item in value.items()}
    return value
