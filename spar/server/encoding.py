"""JSON encoding of answers, also for values that have no JSON form."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def encode(value: Any) -> bytes:
    """Return any value as JSON; a value without a JSON form becomes its repr(), and one that the encoder refuses its
    copy as plain values."""
    try:
        return msgspec.json.encode(value, enc_hook=repr)
    except Exception:  # a lone surrogate, a value that contains itself, an integer of 4,300 digits, a broken repr()
        from spar.data.json_safe import UNBOUNDED, plain  # not at the top: few answers need it

        return json.dumps(plain(value, UNBOUNDED), ensure_ascii=False, separators=(",", ":")).encode()
