"""Rendering of log lines: any value made harmless, then one JSON object or one line for people.

A value may be anything: lone surrogates, control characters, ten megabytes, circular, with a `__repr__` that raises.
The rendered line is bounded, printable, and has no recognisable secrets. Pure; nothing here raises.
"""

from __future__ import annotations

import math
import re
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import Struct

from spar.data.scrub import MASK, is_secret_name
from spar.data.text import escaped

Scrub = Callable[[str], str]

FIELD_LIMIT = 8 * 1024
"""Most bytes of text in one field."""
LINE_LIMIT = 64 * 1024
"""Most bytes of one line."""
ITEMS, DEPTH, NODES = 100, 6, 2000
"""Most items of one list or table, most levels, and most values in one line that are shown."""

#: Message of a cycle that did something.
CYCLE_ACTED = "cycle acted"
#: Fields that hold a stack: the line for people shows it on separate lines.
STACKS = ("stack", "error.stack")
_OWN_KEYS = frozenset({"ts", "level", "msg", "logger", "error.type", "error.message", "error.stack"})
_ERROR_KEYS = ("error.type", "error.message", "error.stack")
_SURROGATE = re.compile("[\ud800-\udfff]")
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_COLOURS = {"debug": _DIM, "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[1;31m"}


class Line(Struct, frozen=True):
    """Line before it is written: all values are plain, bounded and scrubbed."""

    level: str
    message: str
    logger: str
    fields: dict[str, Any]
    error: dict[str, str]


def make_line(
    level: str, logger: str, message: Any, fields: Mapping[str, Any], error: BaseException | None, scrub: Scrub
) -> Line:
    """Return a copy of all values of a line, so that later changes outside cannot change or break it."""
    copier = _Copier(scrub)
    plain = {
        f"{key}_" if key in _OWN_KEYS else copier.name(key): copier.field(value, key) for key, value in fields.items()
    }
    text = message if isinstance(message, str) else _safe(str, message)
    return Line(level, copier.field(text), logger, plain, _error_fields(error, copier) if error is not None else {})


def json_line(line: Line, at: datetime) -> bytes:
    """Return one JSON object and a line feed; `ts` is RFC 3339 in UTC."""
    head = {"ts": _utc(at), "level": line.level, "msg": line.message, "logger": line.logger}
    encoded = msgspec.json.encode({**head, **line.fields, **line.error})
    if len(encoded) >= LINE_LIMIT:
        short = [(key, value) for key, value in line.fields.items() if len(str(value)) < 100]
        cut = {**head, "msg": line.message[:1000], **dict(short[:20]), "cut_bytes": len(encoded)}
        encoded = msgspec.json.encode(cut)
    return encoded + b"\n"


def read_line(values: Mapping[str, Any]) -> Line:
    """Return the line that `json_line` wrote, from its fields, which may have any values."""
    error = {key: str(values[key]) for key in _ERROR_KEYS if key in values}
    fields = {str(key): value for key, value in values.items() if key not in _OWN_KEYS}
    return Line(
        escaped(str(values.get("level", ""))[:20]),
        str(values.get("msg", "")),
        str(values.get("logger", "")),
        fields,
        error,
    )


def pretty_line(line: Line, at: datetime, *, colour: bool = False, is_dated: bool = False) -> bytes:
    """Return `12:03:04.123 warning sensor failed  sensor=host` in local time; a stack follows on separate lines.

    A cycle that acted reads as a sentence: `noticed → decided → calls  duration`. `is_dated` puts the date first.
    """
    clock = at.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f" if is_dated else "%H:%M:%S.%f")[:-3]
    level = f"{line.level:<7}"
    if colour:
        clock, level = f"{_DIM}{clock}{_PLAIN}", f"{_COLOURS.get(line.level, '')}{level}{_PLAIN}"
    if line.message == CYCLE_ACTED and not line.error and (sentence := _cycle_text(line.fields, colour=colour)):
        return f"{clock} {level} {sentence}\n".encode("utf-8", "replace")
    values = {**line.fields, **line.error}
    stacks = [stack for key in STACKS if isinstance(stack := values.pop(key, ""), str)]
    fields = fields_text(values)
    text = f"{clock} {level} {escaped(line.message)}{'  ' if fields else ''}{fields}"
    for row in "\n".join(filter(None, stacks)).splitlines():
        text += f"\n    {escaped(row)}"
    encoded = text.encode("utf-8", "replace")[: LINE_LIMIT - 1]
    return encoded.decode("utf-8", "ignore").encode() + b"\n"


def _cycle_text(fields: Mapping[str, Any], *, colour: bool) -> str:
    """Return the sentence for a cycle that acted: `inbox: a.txt → rule 'x' matched → note ✓ files ✗ 230 ms`.

    It names the agent and the session unless they are "main"; "" for a line with other fields.
    """
    parts = [fields.get(name, "") for name in ("noticed", "decided", "calls")]
    seconds = fields.get("milliseconds")
    if not all(isinstance(part, str) for part in parts) or not isinstance(seconds, int | float):
        return ""
    owners = [str(fields[name]) for name in ("agent", "session") if fields.get(name, "main") != "main"]
    text = escaped(" → ".join(part for part in (*parts[:2], parts[2] or "answered") if part))
    duration = f"{seconds:.0f} ms" if seconds < 1000 else f"{seconds / 1000:.1f} s"
    if colour:
        text = text.replace("✓", f"\x1b[32m✓{_PLAIN}").replace("✗", f"\x1b[31m✗{_PLAIN}")
        duration = f"{_DIM}{duration}{_PLAIN}"
    return f"{escaped('/'.join(owners))}{': ' if owners else ''}{text}  {duration}"


def fields_text(fields: Mapping[str, Any]) -> str:
    """Return fields as `sensor=host seconds=0.5 path="a b"`."""
    return " ".join(f"{escaped(key)}={_value_text(value)}" for key, value in fields.items())


def _value_text(value: Any) -> str:
    if isinstance(value, str):
        is_word = value and not any(character in value for character in " =\"'") and value.isprintable()
        return value if is_word else f'"{escaped(value)}"'
    return escaped(msgspec.json.encode(value).decode())


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _error_fields(error: BaseException, copier: _Copier) -> dict[str, str]:
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    try:
        stack = "".join(traceback.format_exception(error))
    except Exception:
        stack = "the stack cannot be shown"
    return {
        "error.type": f"{module}{kind.__qualname__}",
        "error.message": str(copier.field(_safe(str, error))),
        "error.stack": copier.tail(stack),
    }


def _safe(render: Callable[[Any], str], value: Any) -> str:
    try:
        return str.__str__(render(value))
    except Exception:  # its own __str__ or __repr__ is broken
        return f"<{type(value).__name__} that cannot be shown>"


def _without_surrogates(text: str) -> str:
    """Return the text without lone surrogates, which no encoder accepts."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


class _Copier:
    """Copier of values within bounds: bytes for each field, number of values for the whole line."""

    def __init__(self, scrub: Scrub) -> None:
        self._scrub, self._room, self._nodes = scrub, FIELD_LIMIT, NODES
        self._open: set[int] = set()

    def field(self, value: Any, name: str = "") -> Any:
        self._room = FIELD_LIMIT
        if name and is_secret_name(name) and value is not None:
            return MASK
        return self._value(value, 0)

    def name(self, key: Any) -> str:
        if isinstance(key, str):
            return key if len(key) < 40 and key.isascii() and key.isidentifier() else self.text(key)
        return self.text(_safe(repr, key))

    def text(self, text: str) -> str:
        """Return the text scrubbed and then cut, so that no part of a secret remains at the cut."""
        longest = max(self._room, 16)
        clean = self._scrub(_without_surrogates(text[: 2 * FIELD_LIMIT]))
        size = len(clean) if clean.isascii() else len(clean.encode())
        if size > longest or len(text) > 2 * FIELD_LIMIT:
            clean = clean.encode()[:longest].decode("utf-8", "ignore")
            clean += f"…(+{max(len(text) - len(clean), 1)})"
        self._room -= min(size, longest)
        return clean

    def tail(self, text: str) -> str:
        """Return the end of a text, which is the most important part of a stack."""
        clean = self._scrub(_without_surrogates(text[-2 * FIELD_LIMIT :]))
        encoded = clean.encode()
        return clean if len(encoded) <= FIELD_LIMIT else f"…{encoded[-FIELD_LIMIT:].decode('utf-8', 'ignore')}"

    def _value(self, value: Any, depth: int) -> Any:
        self._nodes -= 1
        self._room -= 4
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else self.text(hex(value))
        if kind is float:
            return value if math.isfinite(value) else str(value)
        if isinstance(value, str):
            return self.text(str.__str__(value))
        if self._nodes <= 0 or self._room <= 0 or depth >= DEPTH:
            return "…"
        if id(value) in self._open:
            return "<circular>"
        self._open.add(id(value))
        try:
            return self._compound(value, depth)
        except Exception:  # the value changed meanwhile, or one of its methods is broken
            return f"<{kind.__name__} that cannot be shown>"
        finally:
            self._open.discard(id(value))

    def _compound(self, value: Any, depth: int) -> Any:
        if isinstance(value, Mapping):
            return self._table(value.items(), len(value), depth)
        if isinstance(value, Struct):
            names = value.__struct_fields__
            return self._table(((name, getattr(value, name)) for name in names), len(names), depth)
        if isinstance(value, (list, tuple, set, frozenset, deque)):
            items: list[Any] = []
            for item in value:
                if len(items) >= ITEMS or self._nodes <= 0 or self._room <= 0:
                    items.append(f"…(+{len(value) - len(items)})")
                    break
                items.append(self._value(item, depth + 1))
            return items
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self.text(bytes(value[: 2 * FIELD_LIMIT]).decode("utf-8", "backslashreplace"))
        if isinstance(value, BaseException):
            return self.text(f"{type(value).__name__}: {_safe(str, value)}")
        if isinstance(value, (date, PurePath)):
            return self.text(value.isoformat() if isinstance(value, date) else str(value))
        return self.text(_safe(repr, value))

    def _table(self, items: Any, size: int, depth: int) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, item in items:
            if len(table) >= ITEMS or self._nodes <= 0 or self._room <= 0:
                table["…"] = f"+{size - len(table)}"
                break
            name = self.name(key)
            table[name] = MASK if is_secret_name(name) and item is not None else self._value(item, depth + 1)
        return table
