"""JSON taken strictly, by one rule for both ways in which a model answers: no key twice, no NaN, no number too large.

Raw line breaks inside strings are taken: models write them, and what they mean is clear. Pure.
"""

from __future__ import annotations

import json
from collections import Counter
from math import isfinite
from typing import Any


def strict(text: str) -> Any:
    """Return the value. Raises: ValueError saying what is wrong, also for a key that stands there twice."""
    return _STRICT.decode(text)


def lenient(text: str) -> Any:
    """Return the value, of a key that stands there twice the last one. Raises: ValueError for what is no JSON."""
    return _LENIENT.decode(text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"the number {text[:50]} is too large")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, times in counts.items() if times > 1)
        raise ValueError(f"the key {twice[:50]!r} is there twice")
    return found


_STRICT = json.JSONDecoder(strict=False, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
_LENIENT = json.JSONDecoder(strict=False)
