"""Canonical JSON, RFC 8785: keys sorted by UTF-16 units, no spaces, numbers as ECMAScript writes them, so that two
values with the same text are the same value.

This project has its own writer, because libraries refuse two values: integers beyond 2**53 stay exact (written as
ECMAScript's `123n`, which no float is), and lone surrogates stay what they are. NaN, infinity and values of other types
are refused. Approvals and grants hold hashes of this text, so its form must stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from hashlib import sha256
from math import isfinite
from typing import Any

_quoted = json.JSONEncoder(ensure_ascii=False).encode
_EXACT = 1 << 53  # the largest integer that a float next to it is told apart from
_DEEPEST = 200  # levels; parameters and what tools say are shallower


def canonical(value: Any) -> bytes:
    """Return a value as canonical JSON. Raises: ValueError for a value that JSON cannot express."""
    parts: list[str] = []
    _write(value, parts.append, 0)
    return "".join(parts).encode("utf-8", "surrogatepass")


def fingerprint(value: Any) -> str:
    """Return the SHA-256 (hexadecimal) of the canonical JSON of a value. Raises: ValueError."""
    return sha256(canonical(value)).hexdigest()


def _write(value: Any, put: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"a value nested more than {_DEEPEST} levels deep cannot be written exactly")
    if value is None or value is True or value is False:
        put("null" if value is None else "true" if value else "false")
    elif isinstance(value, str):
        put(_quoted(value))
    elif isinstance(value, int):
        put(f"{int.__repr__(value)}{'' if abs(value) <= _EXACT else 'n'}")
    elif isinstance(value, float):
        put(_number(value))
    elif isinstance(value, Mapping):
        put("{")
        for index, key in enumerate(sorted(value, key=_units)):
            put(f"{',' if index else ''}{_quoted(key)}:")
            _write(value[key], put, depth + 1)
        put("}")
    elif isinstance(value, (list, tuple)):
        put("[")
        for index, item in enumerate(value):
            if index:
                put(",")
            _write(item, put, depth + 1)
        put("]")
    else:
        raise ValueError(f"a {type(value).__name__} cannot be written exactly: use text, numbers, lists and objects")


def _units(key: Any) -> bytes:
    if not isinstance(key, str):
        raise ValueError(f"an object's keys are text, found a {type(key).__name__}")
    return key.encode("utf-16-be", "surrogatepass")


def _number(value: float) -> str:
    """Return a number as ECMAScript's `Number::toString` writes it; Python's `repr` finds the same shortest digits."""
    if not isfinite(value):
        raise ValueError("nan and infinity cannot be written exactly")
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    if 0 < point <= 21:
        text = text.ljust(point, "0") if len(text) <= point else f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{text}"
    else:
        tail = f".{text[1:]}" if len(text) > 1 else ""
        text = f"{text[0]}{tail}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return f"-{text}" if sign else text
