"""Statistics of cycles and their calls: counts and durations.

The hot path appends floats; sums, buckets and percentiles are computed when somebody reads them, or when enough values
have gathered. Reading is safe from any thread.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, TypeVar

from msgspec import Struct

from spar.checks import shorten
from spar.types import OUTCOMES, PHASES, CallResult, Fault, Outcome, Phase

#: Upper bounds in seconds: 0.1 s times powers of two, from 0.1 ms to seven minutes.
BOUNDS: tuple[float, ...] = tuple(0.1 * 2.0**power for power in range(-10, 13))
FOLD_AT = 512
RECENT = 1024
T = TypeVar("T")


#: Ended cycle: its session, outcome and duration, the duration of each phase that was reached, its faults.
Noted = tuple[str, Outcome, float, Sequence[float | None], Sequence[Fault]]


def _drained(pending: list[T]) -> list[T]:
    """Take the entries out of a list, to which another thread may append."""
    entries = pending[:]
    del pending[: len(entries)]
    return entries


class Series:
    """Durations in seconds: exact count and sum, a histogram over `BOUNDS`, the most recent `RECENT` values.

    `before` is count and sum of earlier processes: only `mean` includes it.

    Series that are folded together share a `lock`. A series without a `histogram` has no `buckets`: sorting its values
    would be most of its cost.
    """

    __slots__ = ("_has_histogram", "_lock", "before", "buckets", "count", "pending", "recent", "total")

    def __init__(self, lock: threading.Lock | None = None, *, histogram: bool = True) -> None:
        self._has_histogram = histogram
        self.pending: list[float] = []
        self.count = 0
        self.total = 0.0
        self.before = (0, 0.0)
        self.buckets: list[int] | None = None
        self.recent: Sequence[float] = ()
        self._lock = lock or threading.Lock()

    def add(self, seconds: float) -> None:
        self.pending.append(seconds)

    def fold(self) -> None:
        """Add pending values to the sums. Appending meanwhile is safe: nothing is lost or counted twice."""
        with self._lock:
            if not (values := _drained(self.pending)):
                return
            self.count += (number := len(values))
            self.total += sum(values)
            self.recent = [*self.recent, *values][-RECENT:]  # a new list: another thread may be sorting the old one
            if not self._has_histogram:
                return
            if self.buckets is None:
                self.buckets = [0] * (len(BOUNDS) + 1)
            values.sort()  # one search for each bound and not for each value
            below = 0
            for index, bound in enumerate(BOUNDS):
                upto = bisect_right(values, bound, below)
                self.buckets[index] += upto - below
                below = upto
            self.buckets[-1] += number - below

    @property
    def mean(self) -> float:
        count, total = self.sums
        return total / count if count else 0.0

    @property
    def sums(self) -> tuple[int, float]:
        """Return count and sum in seconds, including earlier processes."""
        self.fold()
        return self.before[0] + self.count, self.before[1] + self.total

    def quantile(self, share: float) -> float:
        """Return the value below which `share` (0..1) of the most recent durations lie; 0 without any."""
        self.fold()
        values = sorted(self.recent)
        return values[min(int(len(values) * share), len(values) - 1)] if values else 0.0


#: Most tools with statistics of their own; planners can invent any number of names.
MOST_TOOLS = 100
OTHER_TOOLS = "other"
LONGEST_TOOL = 100
CALL_OUTCOMES = ("ok", "error", "timeout", "denied", "skipped", "unknown")
_OUTCOME_OF: dict[str, str] = {"failed": "error", **{name: name for name in CALL_OUTCOMES}}


class Calls:
    """Statistics of single calls, by tool: the first `MOST_TOOLS` by name, the others together as `OTHER_TOOLS`.

    `outcomes` has a count for each of `CALL_OUTCOMES`; `durations` are of the calls that ran; `overflow` counts the
    calls of tools without statistics of their own.
    """

    __slots__ = ("_lock", "_pending", "durations", "outcomes", "overflow")

    def __init__(self, lock: threading.Lock | None = None) -> None:
        self._pending: list[tuple[str, str, float]] = []
        self._lock = lock or threading.Lock()
        self.outcomes: dict[str, dict[str, int]] = {}
        self.overflow = 0
        self.durations: dict[str, Series] = {}

    def add(self, results: Iterable[CallResult]) -> None:
        """Add the results of one action; their outputs are not kept."""
        add = self._pending.append
        for result in results:
            add((result.call.tool, result.status, result.duration))
        if len(self._pending) >= FOLD_AT:
            self.fold()

    def fold(self) -> None:
        """Add pending entries to the counts. Appending meanwhile is safe: nothing is lost or counted twice."""
        with self._lock:
            groups: dict[tuple[str, str], list[float]] = {}
            for tool, status, duration in _drained(self._pending):  # half the cost of counting one by one
                try:
                    groups[tool, status].append(duration)
                except KeyError:
                    groups[tool, status] = [duration]
            for (tool, status), durations in groups.items():
                name = self._name(tool)
                if name == OTHER_TOOLS and tool != OTHER_TOOLS:
                    self.overflow += len(durations)
                self.outcomes[name][_OUTCOME_OF.get(status, "unknown")] += len(durations)
                self.durations[name].pending.extend(duration for duration in durations if duration > 0)
            for series in self.durations.values():
                series.fold()

    def totals(self) -> dict[str, int]:
        """Return the number of calls of all tools by outcome; safe from any thread."""
        self.fold()
        counts = [dict(outcomes) for outcomes in list(self.outcomes.values())]
        return {name: sum(outcomes_of_tool[name] for outcomes_of_tool in counts) for name in CALL_OUTCOMES}

    def _name(self, tool: str) -> str:
        """Return the name under which a tool is counted: text that every encoder accepts."""
        if tool not in self.outcomes:
            tool = tool[:LONGEST_TOOL].encode("utf-8", "backslashreplace").decode()
            if tool not in self.outcomes and len(self.outcomes) >= MOST_TOOLS:
                tool = OTHER_TOOLS
            if tool not in self.outcomes:
                self.outcomes[tool] = dict.fromkeys(CALL_OUTCOMES, 0)
                self.durations[tool] = Series()
        return tool


class Snapshot(Struct, frozen=True):
    """Snapshot of `agent.stats`: all cycles so far, over all processes. Durations are seconds; `error_rate` is 0..1.

    `cycle_p99_seconds`, `last_cycle_seconds` and `consecutive_failures` are of this process.
    """

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
    """Statistics of one agent, or of one of its sessions.

    `consecutive_failures` is counted by the outcomes of cycles, and corrected by callers that see single phases.
    """

    __slots__ = ("calls", "consecutive_failures", "cycles", "errors_by_phase", "last_seconds", "outcomes", "phases")

    def __init__(self, *, histogram: bool = True) -> None:
        lock = threading.Lock()
        self.phases: dict[Phase, Series] = {phase: Series(lock, histogram=histogram) for phase in PHASES}
        self.cycles = Series(lock, histogram=histogram)
        self.calls = Calls(lock)
        self.outcomes: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        self.errors_by_phase: dict[str, int] = dict.fromkeys(PHASES, 0)
        self.consecutive_failures = 0
        self.last_seconds = 0.0

    def cycle(self, outcome: Outcome, duration: float, results: Sequence[CallResult] = ()) -> None:
        """Count one cycle that has ended, and its calls."""
        self.outcomes[outcome] += 1
        self.last_seconds = duration
        if outcome == "failed":
            self.consecutive_failures += 1
        elif self.consecutive_failures and outcome in ("acted", "degraded"):
            self.consecutive_failures = 0  # an idle, skipped or interrupted cycle proves nothing either way
        pending = self.cycles.pending
        pending.append(duration)
        if len(pending) >= FOLD_AT:
            self.fold()
        if results:
            self.calls.add(results)

    def count(self, ended: Iterable[Noted]) -> None:
        """Count cycles that were recorded when they ended."""
        _, outcomes, seconds_of_cycles, durations, faults = zip(*ended, strict=True)  # all at once: this is a hot path
        for outcome, number in Counter(outcomes).items():
            self.outcomes[outcome] += number
        self.cycles.pending.extend(seconds_of_cycles)
        self.last_seconds = seconds_of_cycles[-1]
        for series, seconds in zip(self.phases.values(), zip(*durations, strict=True), strict=True):
            series.pending.extend(seconds if None not in seconds else [value for value in seconds if value is not None])
        for fault in chain.from_iterable(faults):
            self.errors_by_phase[fault.phase] += 1
        if len(self.cycles.pending) >= FOLD_AT:
            self.fold()

    @property
    def worked(self) -> int:
        """Return the number of cycles that had something to do, over all processes."""
        return sum(self.outcomes.values()) - self.outcomes["idle"]

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
        """Return the values that a restart keeps: all counts, and count and sum of each series."""
        return {
            "outcomes": dict(self.outcomes),
            "errors_by_phase": dict(self.errors_by_phase),
            "durations": {name: list(series.sums) for name, series in self._series().items()},
        }

    def _series(self) -> dict[str, Series]:
        return {"cycle": self.cycles, **{str(phase): series for phase, series in self.phases.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Add the values of an earlier `state`, ignoring unknown ones."""
        for name in ("outcomes", "errors_by_phase"):
            known = getattr(self, name)
            for key, number in (state.get(name) or {}).items():
                if key in known and isinstance(number, int):
                    known[key] += number
        for name, series in self._series().items():
            match (state.get("durations") or {}).get(name):
                case [int(count), int() | float() as total]:
                    series.before = (series.before[0] + count, series.before[1] + total)


#: Most sessions with statistics; one more drops the session whose last cycle is oldest.
MOST_SESSIONS = 1_000
#: Pending cycles at which they are counted by session.
FOLD_SESSIONS_AT = 64


class SessionStats:
    """Statistics of the sessions of one agent in this process: of the `MOST_SESSIONS` with the newest cycles.

    A cycle is only recorded at first, and counted when somebody reads or enough cycles have gathered.
    """

    __slots__ = ("_lock", "_of", "_pending", "_worst_of")

    def __init__(self, worst_of: Callable[[str], int]) -> None:
        self._of: OrderedDict[str, Stats] | None = None  # created by the first count
        self._pending: list[Noted] = []
        self._lock = threading.Lock()
        self._worst_of = worst_of  # returns the failures in a row of a session

    def cycle(self, ended: Noted) -> None:
        """Count one ended cycle of a session."""
        self._pending.append(ended)
        if len(self._pending) >= FOLD_SESSIONS_AT:
            self.fold()

    def fold(self) -> None:
        """Count the pending cycles; from any thread."""
        with self._lock:
            for session, ended in groupby(_drained(self._pending), itemgetter(0)):
                self._stats_of(session).count(ended)

    def _stats_of(self, session: str) -> Stats:
        """Return the statistics of a session and mark it as the one with the newest cycle."""
        if self._of is None:
            self._of = OrderedDict()
        stats = self._of.get(session)
        if stats is None:
            stats = self._of[session] = Stats(histogram=False)
            if len(self._of) > MOST_SESSIONS:
                self._of.popitem(last=False)
        elif len(self._of) > 1:
            self._of.move_to_end(session)
        return stats

    def snapshot(self, session: str) -> Snapshot:
        """Return the statistics of a session; from any thread. Raises: LookupError for a session without recent
        cycles."""
        self.fold()
        if self._of is None or (stats := self._of.get(session)) is None:
            raise LookupError(f"no cycle of a session {shorten(session)} is known to this process")
        stats.consecutive_failures = self._worst_of(session)
        return stats.snapshot()
