"""The last days of a series: its usual spread, and how far its values go and how long they stay on a usual day.

The spread is the median absolute deviation (Hampel, "The influence curve and its role in robust estimation", 1974) of
each day, and of these the median over the last week. So neither anomalies nor a weekend change it, as long as they are
on less than half of the days.
"""

from __future__ import annotations

from array import array
from math import inf
from statistics import median

from msgspec import Struct

KNOWN = 30  # deviations without which nothing is known of the spread
LEAST_OF_A_DAY = 0.25  # share of a day's slots without which it counts as one with the next
REMEMBERED = 4  # times as many days are remembered for how far values go, as for the spread
USUAL = 0.6  # share of these days that count as usual: noise with heavy tails goes far on most days, anomalies on few
LARGER = 1.5  # times as large as the largest distance of such a day; chosen on NAB and drawn series, as `USUAL`
LONGER = 6.0  # times as long without a change as usual
WHOLE = 1.0  # least spread of whole numbers
RELATIVE = 0.01  # least spread where most values are equal, as a share of the value


class DaySummary(Struct, array_like=True):
    """Summary of a day: the median deviation, the largest distance from what was usual, the seconds for which a value
    stayed the same, the lowest and the highest value, and whether all were whole numbers."""

    spread: float = 0.0
    largest: float = 0.0
    stayed: float = 0.0
    low: float = inf
    high: float = -inf
    is_whole: bool = True


class LastDays:
    """The last days, the oldest first, and today; what follows from them is computed once a day.

    `far` is the largest distance of a usual day, `stayed` the longest time in seconds without a change.
    """

    __slots__ = ("_high", "_is_whole", "_low", "_spread", "before", "deviations", "far", "most", "number", "stayed",
                 "today")  # fmt: skip

    def __init__(self, most: int) -> None:
        self.most, self.number, self.before, self.today = most, 0, list[DaySummary](), DaySummary()
        self.deviations = array("d")  # of today, one a slot
        self._compute()

    def add(self, number: int, deviation: float, slots: int) -> None:
        """Add the deviation of one slot. Args: number: the day since 1970; slots: those of a day."""
        size = len(self.deviations)
        # A point of the day before is only late.
        is_over = not self.number - 1 <= number <= self.number
        self.number = number if is_over else self.number
        if (is_over and size >= LEAST_OF_A_DAY * slots) or size >= 2 * slots:
            self.today.spread = median(self.deviations)
            self.before = [*self.before, self.today][-REMEMBERED * self.most :]
            self.deviations, self.today = array("d"), DaySummary()
            self._compute()
        elif not self.before and size % KNOWN == 0:
            self._compute()
        self.deviations.append(deviation)

    def resume(self, number: int, days: list[DaySummary], deviations: array[float]) -> None:
        """Go on with stored days, of which the last one is today."""
        self.number, self.before, self.today, self.deviations = number, days[:-1], days[-1], deviations
        self._compute()

    @property
    def is_known(self) -> bool:
        """Return whether there are enough deviations to know a spread."""
        return self._spread < inf

    @property
    def low(self) -> float:
        """Return the lowest value of all these days."""
        return min(self._low, self.today.low)

    @property
    def high(self) -> float:
        """Return the highest value of all these days."""
        return max(self._high, self.today.high)

    def spread(self, value: float) -> float:
        """Return the usual spread for a value, at least the grain of the numbers."""
        if self._is_whole and self.today.is_whole:
            return max(self._spread, WHOLE)
        return self._spread or RELATIVE * abs(value) or 1.0

    def _compute(self) -> None:
        days = self.before
        self._low = min((day.low for day in days), default=inf)
        self._high = max((day.high for day in days), default=-inf)
        self._is_whole = all(day.is_whole for day in days)
        if days:
            self._spread = median(day.spread for day in days[-self.most :])
            largest, stayed = sorted(day.largest for day in days), sorted(day.stayed for day in days[-self.most :])
            self.far = LARGER * largest[int(USUAL * len(largest))]
            self.stayed = LONGER * stayed[max(len(stayed) - 2, 0)]  # one of the days may have been unusual
        else:
            is_known = len(self.deviations) >= KNOWN
            self._spread = median(self.deviations) if is_known else inf
            self.far, self.stayed = LARGER * self.today.largest, inf
