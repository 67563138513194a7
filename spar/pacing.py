"""How long to wait between two cycles: a pure function of what the last one brought."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Interval = float | Literal["adaptive", "off"]


class Pace(Struct, frozen=True):
    """The settings of the pace, in seconds. `busy_count` perceptions in one cycle count as many."""

    interval: Interval = 1.0
    min_interval: float = 0.5
    max_interval: float = 5.0
    busy_count: int = 10


def pause_after(pace: Pace, perceptions: int, *, busy: bool = False, next_look: float | None = None) -> float | None:
    """Seconds from the end of a cycle to the beginning of the next; None: until something is pushed.

    A busy agent (an unfinished run) looks again at once under `off` and after `min_interval` under `adaptive`.
    A proposed `next_look` replaces the interval, clamped to min and max, unless a busy agent would look later by it;
    `off` and 0 ignore it.
    """
    if pace.interval == "off":
        return 0.0 if busy else None
    if pace.interval == 0:
        return 0.0
    usual = float(pace.interval) if pace.interval != "adaptive" else _adaptive(pace, perceptions, busy=busy)
    if next_look is None:
        return usual
    proposed = min(max(pace.min_interval, next_look), pace.max_interval)  # in this order NaN is the minimum
    return min(proposed, usual) if busy else proposed


def _adaptive(pace: Pace, perceptions: int, *, busy: bool) -> float:
    share = 1.0 if busy else min(perceptions / pace.busy_count, 1.0)
    return pace.max_interval - share * (pace.max_interval - pace.min_interval)


def expected_interval(pace: Pace) -> float | None:
    """The longest regular wait in seconds, None under `off`: what "stalled" is measured by."""
    if pace.interval == "off":
        return None
    return pace.max_interval if pace.interval == "adaptive" else max(float(pace.interval), 0.0)
