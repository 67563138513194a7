"""Rendering of log lines: any value made harmless, then one JSON object or one line for people.

A value may be anything: lone surrogates, control characters, ten megabytes, circular, with a `__repr__` that raises.
The rendered line is bounded, printable, and has no recognisable secrets. Pure; nothing here raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from spar.data.json_safe import shown, text
from spar.data.scrub import scrubbed
from spar.data.text import escaped
from spar.errors import stack_of

FIELD_LIMIT = 8 * 1024
"""Most bytes of text in one field."""
LINE_LIMIT = 64 * 1024
"""Most bytes of one line."""

#: Keys with which each line begins, and the keys of an error; fields that hold a stack.
HEAD, ERROR = ("ts", "level", "msg", "logger"), ("error.type", "error.message", "error.stack")
STACKS = ("stack", "error.stack")
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_COLOURS = {"debug": _DIM, "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[1;31m"}


def make_line(level: str, logger: str, message: Any, fields: Mapping[str, Any], error: BaseException | None = None,
              at: datetime | None = None) -> dict[str, Any]:  # fmt: skip
    """Return a line: its head, its fields and its error. All values are plain, bounded and scrubbed copies, so that
    later changes outside cannot change or break it. `ts` is RFC 3339 in UTC.

    Args: at: the time of the line; None: now.
    """
    ts = f"{(at or datetime.now(UTC)).astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    values = {"msg": text_of(message), "logger": logger}
    values |= {f"{key}_" if key in HEAD or key in ERROR else key: value for key, value in fields.items()}
    if error is not None:
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        values |= zip(ERROR, (kind, text_of(error), stack_of(error)), strict=True)
    shown_values = {text(key): shown(value, FIELD_LIMIT)[0] for key, value in values.items()}
    return {"ts": ts, "level": level, **scrubbed(shown_values)}


def json_line(line: Mapping[str, Any]) -> str:
    """Return one JSON object; of a line that is too large the short fields."""
    encoded = _json(line)
    if (size := len(encoded.encode())) >= LINE_LIMIT:
        short = [(key, value) for key, value in line.items() if len(str(value)) < 100][:24]
        encoded = _json(dict(short) | {"msg": line["msg"][:1000], "cut_bytes": size})
    return encoded


def time_of(line: Mapping[str, Any]) -> datetime | None:
    """Return the time of a line in local time, None if it has none."""
    try:
        return datetime.fromisoformat(str(line.get("ts"))).astimezone()
    except (ValueError, OverflowError):
        return None


def pretty_line(line: Mapping[str, Any], *, colour: bool = False, is_dated: bool = False) -> str:
    """Return `12:03:04.123 warning sensor failed  sensor=host` in local time; a stack follows on separate lines.

    The line may come from a file and have any values. A cycle that acted reads as a sentence:
    `noticed → decided → calls  duration`. `is_dated` puts the date first.
    """
    at = time_of(line) or datetime.fromtimestamp(0, UTC).astimezone()
    clock = at.strftime("%Y-%m-%d %H:%M:%S.%f" if is_dated else "%H:%M:%S.%f")[:-3]
    level = escaped(str(line.get("level", ""))[:20])
    dim, shade, plain = (_DIM, _COLOURS.get(level, ""), _PLAIN) if colour else ("", "", "")
    sentence = _cycle_text(line, colour=colour)
    if not sentence:
        rows = "".join(f"\n    {escaped(row)}" for key in STACKS for row in str(line.get(key, "")).splitlines())
        sentence = f"{text_line(line)}{rows}"
    pretty = f"{dim}{clock}{plain} {shade}{level:<7}{plain} {sentence}"
    return pretty.encode("utf-8", "replace")[:LINE_LIMIT].decode("utf-8", "ignore")


def text_line(line: Mapping[str, Any]) -> str:
    """Return message and fields without stacks, as `sensor failed  sensor=host seconds=0.5 path="a b"`."""
    fields = [(key, value) for key, value in line.items() if key not in (*HEAD, *STACKS)]
    text = " ".join(f"{escaped(key)}={_value_text(value)}" for key, value in fields)
    return f"{escaped(str(line.get('msg', '')))}{'  ' if text else ''}{text}"


def _cycle_text(fields: Mapping[str, Any], *, colour: bool) -> str:
    """Return the sentence for a cycle that acted: `inbox: a.txt → rule 'x' matched → note ✓ files ✗ 230 ms`.

    It names the agent and the session unless they are "main"; "" for a line with other fields.
    """
    parts = [fields.get(name) for name in ("noticed", "decided", "calls")]
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


def _value_text(value: Any) -> str:
    if isinstance(value, str):
        is_word = value and not any(character in value for character in " =\"'") and value.isprintable()
        return value if is_word else f'"{escaped(value)}"'
    return escaped(_json(value))


def text_of(value: Any) -> str:
    """Return the text of any value, also of one whose methods are broken."""
    try:
        return str.__str__(str(value))
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"
