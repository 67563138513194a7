"""Digests of calls and their results, without parts that change by themselves, to compare the calls of a run. Pure.

Times, durations and ids of requests are left out (`_VOLATILE`; inside a text a date with a time of day, a UUID, a
duration), unless nothing else is left: the answer of a clock is a time. Hashes of content, counts and days stay.
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

#: Keys (lower case, without `_` and `-`) of times, durations and ids of requests, if the value is a number or a short
#: text.
_VOLATILE: Final = frozenset({"at", "checkedat", "correlationid", "createdat", "currenttime", "date", "duration",
                              "durationms", "durations", "elapsed", "elapsedms", "elapseds", "endedat", "fetchedat",
                              "finishedat", "generatedat", "latency", "latencyms", "nonce", "now", "requestid",
                              "retrievedat", "servertime", "spanid", "startedat", "time", "timestamp", "timestampms",
                              "took", "tookms", "traceid", "ts", "uptime"})  # fmt: skip
#: Patterns of such parts inside a text, each with a sign that a text must contain for a search.
_PASSING: Final = (
    (":", re.compile(MOMENT)),
    (" GMT", re.compile(r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\b")),
    (":", re.compile(rf"{TIME_OF_DAY}\b")),
    ("-", re.compile(UUID)),
    ("0x", re.compile(r"\b0x[0-9a-fA-F]{6,}\b")),
    ("s", re.compile(r"\b(?:in|took):? \d+(?:\.\d+ ?m?s| ?ms)\b")),
)
_LONGEST_KEY: Final = 32
#: Most values, or characters of a text, that are searched; larger ones count as they are.
_MOST_SETTLED: Final = 10_000

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def digest_of(params: Mapping[str, Any], result: CallResult) -> int:
    """Return a call and its result as a number; a value that cannot be encoded is converted to JSON first."""
    why = result.fault
    # The fault of a failed call may hold output too, but errors are compared by their kind and message.
    outcome = _stable_part(result.output) if why is None else (why.kind, _stable_text(why.message))
    facts = (result.call.tool, result.status, params, outcome)
    try:
        return _hash(_encode(facts))
    except Exception:  # an object of Python's own, a lone surrogate, an integer beyond 64 bits, too deep
        try:
            return _hash(msgspec.json.encode(whole(facts, UNBOUNDED), order="deterministic"))
        except Exception:
            return _hash(new_id().encode())  # equal to no other one


def asked_about(tool: str, params: Mapping[str, Any]) -> int:
    """Return a call as a number, without its result."""
    return digest_of(params, CallResult(Call(tool, id=""), "denied"))


def digest_of_all(digests: Iterable[int]) -> int:
    """Return one digest for many, independent of their order."""
    return _hash(_encode(sorted(digests)))


def _hash(encoded: bytes) -> int:
    return int.from_bytes(blake2b(encoded, digest_size=8).digest())


def _stable_part(output: Any) -> Any:
    """Return an output without the parts that change by themselves; the whole output if nothing else is left."""
    kind = type(output)
    if kind is str:
        stable = _stable_text(output)
        return stable if stable.strip() else output
    if (kind is not dict and kind is not list) or not is_bounded(output, _MOST_SETTLED):
        return output
    try:
        stable = _without_volatile(output)
    except RecursionError:
        return output
    return stable or output


def _without_volatile(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {
            key: _without_volatile(item)
            for key, item in value.items()
            if not (type(key) is str and len(key) <= _LONGEST_KEY and _is_volatile(key) and _is_moment(item))
        }
    if kind is list:
        return [_without_volatile(item) for item in value]
    return _stable_text(value) if kind is str else value


def _is_moment(value: Any) -> bool:
    """Return whether a value can be a time, a duration or an id: a number or a short text."""
    return (isinstance(value, (int, float)) and not isinstance(value, bool)) or (
        type(value) is str and len(value) <= 64
    )


@lru_cache(4096)
def _is_volatile(key: str) -> bool:
    return key.lower().replace("_", "").replace("-", "") in _VOLATILE


def _stable_text(text: str) -> str:
    """Return a text without times, durations, memory addresses and unique ids."""
    if len(text) > _MOST_SETTLED:
        return text
    for sign, pattern in _PASSING:
        if sign in text:
            text = pattern.sub("", text)
    return text
