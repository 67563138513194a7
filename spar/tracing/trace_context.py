"""Names of traces and spans: computed from existing ids, so that they need not be passed along.

A cycle's trace, the spans of its phases and those of its calls are hashes of the cycle's id and their own names. Log,
record and exporter compute the same names independently, also after a restart. `traceparent` is the header of the W3C
recommendation Trace Context (https://www.w3.org/TR/trace-context/).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from msgspec import Struct

_HEX: Final = frozenset("0123456789abcdef")
#: Lengths of the parts of a `traceparent`: version, trace, span, flags.
_LENGTHS: Final = (2, 32, 16, 2)


class TraceParent(Struct, frozen=True):
    """Span of another program, as a `traceparent` names it."""

    trace_id: str
    span_id: str
    is_sampled: bool = True


def trace_of(id: str) -> str:
    """Return the trace id of a cycle or run: 32 hexadecimal digits, never all of them 0."""
    return blake2b(id.encode("utf-8", "surrogatepass"), digest_size=16, person=b"spar trace").hexdigest()


def span_of(id: str, *names: str) -> str:
    """Return the id of a span of a cycle or run: 16 hexadecimal digits.

    Args: names: none for the cycle or run itself, else the phase, or "call" and the id of a call, or "model" and the
        number of a request.
    """
    text = "\0".join((id, *names)).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8, person=b"spar span").hexdigest()


def is_sampled(trace_id: str, ratio: float) -> bool:
    """Return whether a trace belongs to this share of all traces; the same in every process."""
    return ratio >= 1.0 or int(trace_id[16:], 16) < ratio * 2**64


def parse_traceparent(header: str) -> TraceParent | None:
    """Return the content of a header; None for an invalid one, which is ignored."""
    parts = header.strip().split("-", 4)[:4] if len(header) <= 512 else []
    if tuple(map(len, parts)) != _LENGTHS or not all(_HEX.issuperset(part) for part in parts):
        return None
    version, trace_id, span_id, flags = parts
    if version == "ff" or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    if version == "00" and header.strip().count("-") != 3:
        return None
    return TraceParent(trace_id, span_id, bool(int(flags, 16) & 1))


def traceparent(trace_id: str, span_id: str) -> str:
    """Return the header that names one of our spans that is sent."""
    return f"00-{trace_id}-{span_id}-01"
