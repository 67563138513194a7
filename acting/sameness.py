"""Hashes a call and its result without what changes by itself, to compare the calls of a run. Pure.

When a result was made is no part of what it says, nor under which number it was asked for: times at which and for
which, and ids of requests, are left out (`_VOLATILE`; a date with a time of day, a UUID, a duration inside a text),
unless nothing else is left, for a clock's answer is the time. Hashes of content, counts and days are what a result
says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec

from spar.data.json_safe import UNBOUNDED, is_bounded, whole
from spar.data.patterns import MOMENT, TIME_OF_DAY, UUID
from spar.ids import new_id
from spar.types import Call, CallResult

#: Keys (lower case, without `_` and `-`) under which a result says when it was made, how long that took and by which
#: number it was asked for, if a number or a short text stands there.
_VOLATILE: Final = frozenset({"at", "checkedat", "correlationid", "createdat", "currenttime", "date", "duration",
                              "durationms", "durations", "elapsed", "elapsedms", "elapseds", "endedat", "fetchedat",
                              "finishedat", "generatedat", "latency", "latencyms", "nonce", "now", "requestid",
                              "retrievedat", "servertime", "spanid", "startedat", "time", "timestamp", "timestampms",
                              "took", "tookms", "traceid", "ts", "uptime"})  # fmt: skip
#: Inside a text, with what a text must hold so that looking for it is worth while.
_PASSING: Final = (
    (":", re.compile(MOMENT)),
    (" GMT", re.compile(r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\b")),
    (":", re.compile(rf"{TIME_OF_DAY}\b")),
    ("-", re.compile(UUID)),
    ("0x", re.compile(r"\b0x[0-9a-fA-F]{6,}\b")),
    ("s", re.compile(r"\b(?:in|took):? \d+(?:\.\d+ ?m?s| ?ms)\b")),
)
_LONGEST_KEY: Final = 32
#: Values, and characters of a text, that are looked through; larger ones count as they are.
_MOST_SETTLED: Final = 10_000

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def digest_of(params: Mapping[str, Any], result: CallResult) -> int:
    """The call and what came of it as a number; whatever cannot be encoded is made a value of JSON first."""
    why = result.fault
    # What a failing call had brought lies in its fault, but an error is recognised by what it says.
    came = _settled(result.output) if why is None else (why.kind, _text(why.message))
    told = (result.call.tool, result.status, params, came)
    try:
        return _hashed(_encode(told))
    except Exception:  # an object of Python's own, a lone surrogate, an integer beyond 64 bits, too deep
        try:
            return _hashed(msgspec.json.encode(whole(told, UNBOUNDED), order="deterministic"))
        except Exception:
            return _hashed(new_id().encode())  # like no other one


def asked_about(tool: str, params: Mapping[str, Any]) -> int:
    """A call as a number, whatever came of it."""
    return digest_of(params, CallResult(Call(tool, id=""), "denied"))


def digest_of_all(digests: Iterable[int]) -> int:
    """Many of them as one, whatever their order."""
    return _hashed(_encode(sorted(digests)))


def _hashed(encoded: bytes) -> int:
    return int.from_bytes(blake2b(encoded, digest_size=8).digest())


def _settled(output: Any) -> Any:
    """The output without what changes by itself; the whole if nothing else is left of it."""
    kind = type(output)
    if kind is str:
        found = _text(output)
        return found if found.strip() else output
    if (kind is not dict and kind is not list) or not is_bounded(output, _MOST_SETTLED):
        return output
    try:
        found = _without(output)
    except RecursionError:
        return output
    return found or output


def _without(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {
            key: _without(item)
            for key, item in value.items()
            if not (type(key) is str and len(key) <= _LONGEST_KEY and _is_volatile(key) and _is_moment(item))
        }
    if kind is list:
        return [_without(item) for item in value]
    return _text(value) if kind is str else value


def _is_moment(value: Any) -> bool:
    """Return whether a value can be a time, a duration or a mark: a number or a short text."""
    return (isinstance(value, (int, float)) and not isinstance(value, bool)) or (
        type(value) is str and len(value) <= 64
    )


@lru_cache(4096)
def _is_volatile(key: str) -> bool:
    return key.lower().replace("_", "").replace("-", "") in _VOLATILE


def _text(text: str) -> str:
    """A text without what passes: moments, durations, addresses of memory, ids that are like no others."""
    if len(text) > _MOST_SETTLED:
        return text
    for sign, pattern in _PASSING:
        if sign in text:
            text = pattern.sub("", text)
    return text
