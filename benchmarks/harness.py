"""Contenders in shuffled rounds, each between two runs of the limit; what counts is the ratio within the round.

A contender is an async function `batch(n)` that does n units of work, or as many as it returns. A machine that is
shared or throttled slows the limit and the contender next to it alike, so ratios hold where microseconds do not.
Processor time is kept beside wall time: where the two ratios differ, somebody else was running.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from spar.threads import take_short_turns

try:
    from spar.service.garbage import Collections
except ImportError:  # in the tree of an earlier commit, beside which this one is measured
    from spar.service.process.garbage import Collections  # type: ignore

Batch = Callable[[int], Awaitable[int | None]]


@dataclass(frozen=True)
class Effort:
    """How long to measure: `rounds`, and the `seconds` that each contender gets in a round."""

    rounds: int
    seconds: float
    is_quick: bool = False

    def at_most(self, rounds: int) -> Effort:
        """The same with no more rounds than so many, for contenders that take long each time."""
        return replace(self, rounds=min(self.rounds, rounds))


THOROUGH, QUICK = Effort(15, 0.06), Effort(2, 0.004, is_quick=True)


@dataclass(frozen=True)
class Cost:
    """Seconds of one unit: on the wall and of the processor."""

    wall: float
    cpu: float

    def over(self, other: Cost) -> Cost:
        """How many times the other one: a cost without a unit."""
        return Cost(self.wall / other.wall, self.cpu / other.cpu)


@dataclass
class Measured:
    """What a contender cost in each round, and the limit next to it; `error` is why it has no rounds."""

    own: list[Cost] = field(default_factory=list)
    limit: list[Cost] = field(default_factory=list)
    error: str = ""

    @property
    def wall(self) -> float:
        """The usual seconds of one unit."""
        return statistics.median(cost.wall for cost in self.own)

    @property
    def cpu(self) -> float:
        return statistics.median(cost.cpu for cost in self.own)

    def against(self, other: Measured) -> Ratio:
        """How many times `other` it costs: both are first put in relation to the limit beside them."""
        return Ratio.of([own.over(others) for own, others in zip(self._multiples(), other._multiples(), strict=True)])

    def against_limit(self) -> Ratio:
        return Ratio.of(self._multiples())

    def _multiples(self) -> list[Cost]:
        return [own.over(limit) for own, limit in zip(self.own, self.limit, strict=True)]


@dataclass(frozen=True)
class Ratio:
    """The median over the rounds of wall time, its extremes, and the median of processor time."""

    wall: float
    low: float
    high: float
    cpu: float

    @classmethod
    def of(cls, rounds: list[Cost]) -> Ratio:
        wall = [cost.wall for cost in rounds]
        return cls(statistics.median(wall), min(wall), max(wall), statistics.median(cost.cpu for cost in rounds))


async def timed(batch: Batch, units: int) -> Cost:
    gc.collect()  # what the one before left behind is not on this one's bill
    cpu, wall = time.process_time(), time.perf_counter()
    units = await batch(units) or units
    return Cost((time.perf_counter() - wall) / units, max((time.process_time() - cpu) / units, 1e-12))


async def calibrated(batch: Batch, seconds: float) -> int:
    """How many units take about so many seconds."""
    await batch(1)  # what is made at the first call is not on the bill
    units = 1
    while True:
        start = time.perf_counter()
        done = await batch(units) or units
        took = time.perf_counter() - start
        if took > seconds / 8 or units > 1 << 20:
            return max(1, round(done * seconds / took))
        units *= 4


async def compare(
    contenders: Mapping[str, Batch], limit: Batch, effort: Effort
) -> tuple[dict[str, Measured], Measured]:
    """Measure every contender against the limit. Returns them by name, and the limit itself.

    A contender that cannot run is reported by its `error`; the limit has to run.
    """
    measured = {name: Measured() for name in contenders}
    units: dict[str, int] = {}
    for name, batch in contenders.items():
        try:
            units[name] = await calibrated(batch, effort.seconds)
        except Exception as error:
            measured[name].error = f"{type(error).__name__}: {error}"[:200]
    limit_units = await calibrated(limit, effort.seconds / 3)
    order = random.Random(1)
    itself = Measured()
    with frozen():
        for _ in range(effort.rounds):
            for name in order.sample(list(units), len(units)):
                before = await timed(limit, limit_units)
                own = await timed(contenders[name], units[name])
                after = await timed(limit, limit_units)
                measured[name].own.append(own)
                measured[name].limit.append(Cost((before.wall + after.wall) / 2, (before.cpu + after.cpu) / 2))
                itself.own.append(before)
                itself.limit.append(after)
    return measured, itself


@contextmanager
def as_served() -> Iterator[None]:
    """Let threads take turns and garbage be looked for as in the process of a service, which is never quiet here."""
    before, collections = sys.getswitchinterval(), Collections(lambda: None)
    take_short_turns()
    collections.begin()
    try:
        yield
    finally:
        collections.end()
        sys.setswitchinterval(before)


@contextmanager
def frozen() -> Iterator[None]:
    """Keep the garbage collector from what exists already: nobody's heap is scanned at somebody else's cost."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
