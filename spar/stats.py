"""What the cycles came to: counts and durations.

The hot path appends floats; sums, buckets and percentiles are folded when somebody reads, or when enough has
gathered. Reading is safe from any thread.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import Any

from msgspec import Struct

from spar.types import OUTCOMES, PHASES, Outcome, Phase

#: Upper bounds in seconds: 0.1 s times powers of two, from 0.1 ms to seven minutes.
BOUNDS: tuple[float, ...] = tuple(0.1 * 2.0**power for power in range(-10, 13))
FOLD_AT = 512
RECENT = 1024


class Series:
    """Durations in seconds: exact count and sum, a histogram over `BOUNDS`, the most recent `RECENT` values.

    Series that are folded together share a `lock`.
    """

    __slots__ = ("_lock", "add", "buckets", "count", "pending", "recent", "total")

    def __init__(self, lock: threading.Lock | None = None) -> None:
        self.pending: list[float] = []
        self.add = self.pending.append
        self.count = 0
        self.total = 0.0
        self.buckets: list[int] | None = None
        self.recent: list[float] = []
        self._lock = lock or threading.Lock()

    def fold(self) -> None:
        """Take what is pending into the sums. Appending meanwhile is safe: nothing is lost or counted twice."""
        with self._lock:
            number = len(self.pending)
            if not number:
                return
            values = self.pending[:number]
            del self.pending[:number]
            if self.buckets is None:
                self.buckets = [0] * (len(BOUNDS) + 1)
            self.count += number
            self.total += sum(values)
            self.recent = (self.recent + values)[-RECENT:]  # anew: another thread may be sorting the former
            values.sort()  # one search a bound instead of one a value
            below = 0
            for index, bound in enumerate(BOUNDS):
                upto = bisect_right(values, bound, below)
                self.buckets[index] += upto - below
                below = upto
            self.buckets[-1] += number - below

    @property
    def mean(self) -> float:
        self.fold()
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The value below which `share` (0..1) of the most recent durations lie; 0 without any."""
        self.fold()
        values = sorted(self.recent)
        return values[min(int(len(values) * share), len(values) - 1)] if values else 0.0


class Snapshot(Struct, frozen=True):
    """`agent.stats`: cycles so far. Durations are seconds; `error_rate` is 0..1."""

    total_cycles: int
    failed_cycles: int
    error_rate: float
    phase_mean_seconds: dict[str, float]
    cycle_mean_seconds: float
    cycle_p99_seconds: float
    last_cycle_seconds: float
    consecutive_failures: int
    errors_by_phase: dict[str, int]
    outcomes: dict[str, int]


class Stats:
    """The running account of one agent (or of one of its lanes)."""

    __slots__ = ("consecutive_failures", "cycles", "errors_by_phase", "last_seconds", "outcomes", "phases")

    def __init__(self) -> None:
        lock = threading.Lock()
        self.phases: dict[Phase, Series] = {phase: Series(lock) for phase in PHASES}
        self.cycles = Series(lock)
        self.outcomes: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        self.errors_by_phase: dict[str, int] = dict.fromkeys(PHASES, 0)
        self.consecutive_failures = 0
        self.last_seconds = 0.0

    def cycle(self, outcome: Outcome, duration: float) -> None:
        """Count one cycle that has ended."""
        self.outcomes[outcome] += 1
        self.last_seconds = duration
        if outcome == "failed":
            self.consecutive_failures += 1
        elif self.consecutive_failures and outcome != "interrupted":  # a cycle cut off says nothing either way
            self.consecutive_failures = 0
        self.cycles.add(duration)
        if len(self.cycles.pending) >= FOLD_AT:
            self.fold()

    def fold(self) -> None:
        self.cycles.fold()
        for series in self.phases.values():
            series.fold()

    def snapshot(self) -> Snapshot:
        self.fold()
        total, failed = sum(self.outcomes.values()), self.outcomes["failed"]
        return Snapshot(
            total_cycles=total,
            failed_cycles=failed,
            error_rate=failed / total if total else 0.0,
            phase_mean_seconds={phase: series.mean for phase, series in self.phases.items()},
            cycle_mean_seconds=self.cycles.mean,
            cycle_p99_seconds=self.cycles.quantile(0.99),
            last_cycle_seconds=self.last_seconds,
            consecutive_failures=self.consecutive_failures,
            errors_by_phase=dict(self.errors_by_phase),
            outcomes=dict(self.outcomes),
        )

    def state(self) -> dict[str, Any]:
        """What is kept across restarts of the process."""
        return {"outcomes": dict(self.outcomes), "errors_by_phase": dict(self.errors_by_phase)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave, ignoring what is not known any more."""
        for name in ("outcomes", "errors_by_phase"):
            known = getattr(self, name)
            for key, number in (state.get(name) or {}).items():
                if key in known and isinstance(number, int):
                    known[key] += number
