"""Rendering of log lines: any value made harmless, then one JSON object or one line for people.

A value may be anything: lone surrogates, control characters, ten megabytes, circular, with a `__repr__` that raises.
The rendered line is bounded, printable, and has no recognisable secrets. Pure; nothing here raises.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import PurePath
from typing import Any

import msgspec

from spar.data.json_safe import text as encodable
from spar.data.scrub import MASK, is_secret_name, scrub
from spar.data.text import escaped
from spar.data.walk import Walk

FIELD_LIMIT = 8 * 1024
"""Most bytes of text in one field."""
LINE_LIMIT = 64 * 1024
"""Most bytes of one line."""

#: Message of a cycle that did something.
CYCLE_ACTED = "cycle acted"
#: Keys with which each line begins, and the keys of an error; fields that hold a stack.
HEAD, ERROR = ("ts", "level", "msg", "logger"), ("error.type", "error.message", "error.stack")
STACKS = ("stack", "error.stack")
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_COLOURS = {"debug": _DIM, "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[1;31m"}


def make_line(
    level: str, logger: str, message: Any, fields: Mapping[str, Any], error: BaseException | None = None,
    at: datetime | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return a line: its head, its fields and its error. All values are plain, bounded and scrubbed copies, so that
    later changes outside cannot change or break it. `ts` is RFC 3339 in UTC.

    Args: at: the time of the line; None: now.
    """
    copier, at = _Copier(), at or datetime.now(UTC)
    ts = at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    line = {"ts": ts, "level": level, "msg": copier.field(text_of(message)), "logger": logger}
    for key, value in fields.items():
        line[f"{key}_" if key in HEAD or key in ERROR else copier.key(key)] = copier.field(value, key)
    if error is not None:
        line |= zip(
            ERROR, (_type_of(error), copier.field(text_of(error)), copier.tail(text_of(error, _stack_of))), strict=True
        )
    return line


def json_line(line: Mapping[str, Any]) -> bytes:
    """Return one JSON object and a line feed; of a line that is too large the short fields."""
    encoded = msgspec.json.encode(line)
    if len(encoded) >= LINE_LIMIT:
        short = [(key, value) for key, value in line.items() if len(str(value)) < 100][:24]
        encoded = msgspec.json.encode(dict(short) | {"msg": line["msg"][:1000], "cut_bytes": len(encoded)})
    return encoded + b"\n"


def time_of(line: Mapping[str, Any]) -> datetime | None:
    """Return the time of a line, None if it has none."""
    try:
        at = datetime.fromisoformat(str(line.get("ts")))
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def pretty_line(line: Mapping[str, Any], *, colour: bool = False, is_dated: bool = False) -> bytes:
    """Return `12:03:04.123 warning sensor failed  sensor=host` in local time; a stack follows on separate lines.

    The line may come from a file and have any values. A cycle that acted reads as a sentence:
    `noticed → decided → calls  duration`. `is_dated` puts the date first.
    """
    at = (time_of(line) or datetime.fromtimestamp(0, UTC)).astimezone()
    clock = at.strftime("%Y-%m-%d %H:%M:%S.%f" if is_dated else "%H:%M:%S.%f")[:-3]
    name, message = escaped(str(line.get("level", ""))[:20]), str(line.get("msg", ""))
    level = f"{name:<7}"
    if colour:
        clock, level = f"{_DIM}{clock}{_PLAIN}", f"{_COLOURS.get(name, '')}{level}{_PLAIN}"
    sentence = _cycle_text(line, colour=colour) if message == CYCLE_ACTED else ""
    if not sentence:
        stacks = [stack for key in STACKS if isinstance(stack := line.get(key), str)]
        fields = fields_text({key: value for key, value in line.items() if key not in (*HEAD, *STACKS)})
        rows = "".join(f"\n    {escaped(row)}" for stack in stacks for row in stack.splitlines())
        sentence = f"{escaped(message)}{'  ' if fields else ''}{fields}{rows}"
    encoded = f"{clock} {level} {sentence}".encode("utf-8", "replace")[: LINE_LIMIT - 1]
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


def text_of(value: Any, render: Callable[[Any], str] = str) -> str:
    """Return the text of any value, also of one whose methods are broken."""
    try:
        return str.__str__(render(value))
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"


def _stack_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _type_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class _Copier(Walk):
    """Walk over the fields of a line: each has at most `FIELD_LIMIT` bytes of text, without secrets."""

    most_bits, deepest, widest, mark = 63, 5, 100, "…"

    def __init__(self) -> None:
        super().__init__(FIELD_LIMIT)
        self._line_left = LINE_LIMIT
        self._open: set[int] = set()

    def field(self, value: Any, name: str = "") -> Any:
        self.left = room = min(FIELD_LIMIT, self._line_left)
        copy = self.member(name, value, -1)
        self._line_left -= room - self.left
        return copy

    def member(self, name: str, value: Any, depth: int) -> Any:
        return MASK if name and value is not None and is_secret_name(name) else self.plain(value, depth + 1)

    def key(self, key: Any) -> str:
        if isinstance(key, str):
            return key if len(key) < 40 and key.isascii() and key.isidentifier() else self.text(key)
        return self.text(text_of(key, repr))

    def text(self, text: str) -> str:
        """Return the text scrubbed and then cut, so that no part of a secret remains at the cut."""
        longest = max(self.left, 16)
        clean = scrub(encodable(text[: 2 * FIELD_LIMIT]))
        size = len(clean) if clean.isascii() else len(clean.encode())
        if size > longest or len(text) > 2 * FIELD_LIMIT:
            clean = clean.encode()[:longest].decode("utf-8", "ignore")
            clean += f"…(+{max(len(text) - len(clean), 1)})"
        self.left -= min(size, longest)
        return clean

    def tail(self, text: str) -> str:
        """Return the end of a text, which is the most important part of a stack."""
        encoded = scrub(encodable(text[-2 * FIELD_LIMIT :])).encode()
        return f"{'…' * (len(encoded) > FIELD_LIMIT)}{encoded[-FIELD_LIMIT:].decode('utf-8', 'ignore')}"

    def compound(self, value: Any, depth: int) -> Any:
        if self.left <= 0:
            return self.rest()
        if id(value) in self._open:
            return "<circular>"
        self._open.add(id(value))
        try:
            return super().compound(value, depth)
        except Exception:  # the value changed meanwhile, or one of its methods is broken
            return f"<{type(value).__name__} that cannot be shown>"
        finally:
            self._open.discard(id(value))

    def other(self, value: Any, depth: int) -> Any:
        if isinstance(value, deque):
            return self.items(value, len(value), depth)
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, BaseException):
            return self.text(f"{type(value).__name__}: {text_of(value)}")
        return self.text(text_of(value, str if isinstance(value, PurePath) else repr))

    def odd_float(self, value: float) -> Any:
        return str(value)

    def text_of_bytes(self, value: Any) -> str:
        return bytes(value[: 2 * FIELD_LIMIT]).decode("utf-8", "backslashreplace")

    def rest_of_list(self, item: Any, number: int) -> list[Any]:
        return [f"…(+{number})"]

    def rest_of_table(self, number: int) -> dict[str, Any]:
        return {"…": f"+{number}"}
