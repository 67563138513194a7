"""JSON encoding of answers, also for values that have no JSON form."""

from __future__ import annotations

from typing import Any

import msgspec


def encode(value: Any) -> bytes:
    """Return any value as JSON; a value without a JSON form becomes its repr()."""
    try:
        return msgspec.json.encode(value, enc_hook=repr)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return msgspec.json.encode(_plain(value))


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a copy that can be encoded: lone surrogates escaped, keys as text, depth limited to 64."""
    if depth > 64:
        return "…"
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name), depth + 1) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {str(_plain(str(key))): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, depth + 1) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode()
