"""Masks: what differs from one recording to the next, and what stands in its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: Fields of JSON whose values are measured: times of work, amounts of memory, numbers of turns.
MEASURED: Final = (
    "pid", "polls", "last_poll_age", "oldest_age", "milliseconds", "duration", "waited", "bytes", "seconds", "sum",
    "groups", "flushes", "last_fact", "at", "latency", "left",
)  # fmt: skip
#: What is masked, in this order: a pattern, and its mask.
MASKS: Final = tuple(
    (re.compile(pattern), mask)
    for pattern, mask in (
        (r"spar_[\w-]{43}", "<token>"),
        (r"\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b", "<digest>"),
        (r"(?<=known: )a[0-9a-f]{12}(?:, a[0-9a-f]{12})*", "<ids>"),  # in the order of ids that are drawn
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?", "<time>"),
        (r"(?<![\d:])\d\d:\d\d:\d\d(?:\.\d+)?", "<time>"),
        (r"\d{4}-\d\d-\d\d|\b\d{8}T\d{6}Z", "<time>"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
        (r"process \d+", "process <pid>"),
        (r"(?<![\w.])\d+(?:\.\d+)? (?:µs|ms|s|min|h|days?)\b(?: \d+ (?:s|min|h)\b)?", "<span>"),
        (r"(?<![\w.])\d+(?:\.\d+)? (?:KiB|MiB|MB)\b", "<size>"),
        (rf'("(?:\w+_seconds|\w+_bytes|{"|".join(MEASURED)})": ?)-?\d[\d.e+-]*', r"\1<number>"),
        (r'("(?:accepted|committed)": )\d{2,}', r"\1<number>"),
        (r'("commit_seconds": \{\s*"count": )\d+', r"\1<number>"),
        (r"\bWyI\w+", "<cursor>"),
        (r"\b\d+\.\d{5,}(?:e-\d+)?\b", "<number>"),
        (r"\b\d\.\d+e-\d+\b", "<number>"),
    )
)
#: Identifiers, each of which keeps its number within a text; of one that is cut short no number is sure.
IDS: Final = re.compile(r"\b(?:[0-9a-f]{26}|c[0-9a-f]+-[0-9a-f]{14}|a[0-9a-f]{12}|g[0-9a-f]{12})\b")
CUT_IDS: Final = re.compile(r"\b(?=[a-f]*\d)(?:[0-9a-f]{12}|[0-9a-f]{16})(?:…|\b)")
#: The room between columns, which depends on the width of what is masked.
ROOM: Final = re.compile(r"(?<=\S) {2,}")


def masked(text: str, names: Mapping[str, str]) -> str:
    """Return a text without what differs. Args: names: the mask of each further word or path."""
    for name, mask in names.items():
        text = text.replace(name, mask) if "/" in name else re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", mask, text)
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    numbers: dict[str, int] = {}
    text = IDS.sub(lambda found: f"<id {numbers.setdefault(found[0], len(numbers) + 1)}>", text)
    return ROOM.sub("  ", CUT_IDS.sub("<id>", text))
