"""Formatting of values for people: local times with their zone, durations, amounts."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from spar.data.text import one_line

#: Characters of an id that are shown; commands accept any unique beginning of an id.
ID = 12
#: Characters of a text that a tree shows; `--json` has all of it.
TEXT = 200


def local(at: Any) -> str:
    """Return a time (ISO text) in the zone of this machine, to the second; "" for anything else."""
    try:
        return datetime.fromisoformat(str(at)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return ""


def zoned(head: str) -> str:
    """Return the head of a column with the zone of `local`: `started (CET)`."""
    return f"{head} ({datetime.now().astimezone().tzname()})"


def took(seconds: float) -> str:
    """Return a measured duration: `340 µs`, `3.5 ms`, `12.01 s`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def span(seconds: float) -> str:
    """Return a long duration: `93 s`; from two minutes on in its two largest units: `2 h 5 min`."""
    if seconds < 120:
        return f"{max(seconds, 0.0):.0f} s"
    from spar.review.render import span as in_units

    return in_units(seconds)


def money(millionths: float) -> str:
    """Return an amount of money, which is given in millionths."""
    return f"{millionths / 1_000_000:,.4f}".rstrip("0").rstrip(".")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 thing", "2 things"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def short(value: Any) -> str:
    """Return the beginning of a value, on one line."""
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), TEXT)
