"""What a call states about its result: finished and verified are different.

`_expect` on a call is its postcondition: a JSON Schema that the result must satisfy, or any other JSON value, which
the result must then equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from acting.paths import shorten


def objection(expected: Any) -> str:
    """Why this cannot be expected of anything; "" if it can."""
    if isinstance(expected, Mapping):
        try:
            _checker(_key(expected))
        except Exception as error:
            return f"'_expect' is no JSON Schema that can be used: {error}"
    return ""


def unmet(expected: Any, found: Any) -> str:
    """In what way the result is not what was expected; "" if it is."""
    if isinstance(expected, Mapping):
        return _checker(_key(expected)).check(found) or ""
    return "" if expected == found and type(expected) is type(found) else f"{shorten(found)} is not {shorten(expected)}"


def _key(schema: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(schema)


@lru_cache(256)
def _checker(encoded: bytes) -> Any:
    from acting.schema import Output

    return Output(msgspec.json.decode(encoded))
