"""Row 16: what it costs to account for a phase, and to have the sums when somebody scrapes.

The unit is a phase: four appends of a duration and a quarter of what a cycle adds; everything that is folded on the way
and at the end is on the bill. The peer observes a bound histogram and increments a bound counter at once.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from benchmarks.harness import Effort, compare
from benchmarks.table import Line, amount, compared
from spar.observe.stats import BOUNDS, Stats
from spar.types import PHASES

DURATION = 0.0023


async def measure(effort: Effort) -> list[Line]:
    stats = Stats()
    registry = CollectorRegistry()
    histogram = Histogram("phase_seconds", "d", ["phase"], registry=registry, buckets=BOUNDS)
    counter = Counter("phases", "d", ["phase"], registry=registry)
    bound = [(histogram.labels(phase), counter.labels(phase)) for phase in PHASES]

    async def account(phases: int) -> int:
        cycles = -(-phases // 4)
        for _ in range(cycles):
            for phase in PHASES:
                stats.phases[phase].add(DURATION)
            stats.cycle("acted", DURATION)
        stats.fold()
        return cycles * 4

    async def observe(phases: int) -> int:
        cycles = -(-phases // 4)
        for _ in range(cycles):
            for durations, count in bound:
                durations.observe(DURATION)
                count.inc()
        return cycles * 4

    async def collect(phases: int) -> None:
        kept: list[float] = []
        append = kept.append
        for _ in range(phases):
            append(DURATION)

    measured, limit = await compare({"spar": account, "prometheus": observe}, collect, effort)
    spar, measure = measured["spar"], "accounting for a phase, with the fold"
    return [
        compared(16, measure, spar, "append to a list", limit, is_limit=True),
        compared(16, measure, spar, "prometheus-client observe + inc", measured["prometheus"], owed=1.2),
        amount(16, measure, spar.cpu * 1e6, "µs", moonshot=0.2, by="cpu"),
    ]
