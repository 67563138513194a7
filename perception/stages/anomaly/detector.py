"""Detector of rare values: the distance of a value from the usual at this time of the day, and its rarity in the
series.

The value (the mean of it and the one before) is compared with the median of the values at the same time of the last
days. The rarity of that distance is the share of the series' last distances that were as large (a conformal p-value;
Laxhammar and Falkman, "Conformal prediction for distribution-independent anomaly detection", 2010; Burnaev and
Ishimtsev, "Conformalized density- and distance-based anomaly detection in time-series data", 2016). So one threshold
fits all series, in any unit. State is bounded; times may be irregular, have gaps, or come from a wrong clock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from itertools import pairwise
from math import inf, log10
from statistics import median

from msgspec import Struct

DAY = 86_400.0
DAYS = 3  # earlier days that a value is compared with
SLOT = 300.0  # least seconds of a slot, which is one time of the day
FIRST = 20  # points from which the usual interval is computed
SCORES = 8_000  # latest distances that a new one is compared with
LEAST_SCORES = 30  # distances that are needed before any is rare
MOST_RARITY = 4.0  # powers of ten


class Judged(Struct, frozen=True):
    """Comparison of a value with the usual: `rarity` in powers of ten (3.0: one in a thousand), `low` and `high` of
    the values at this time of the last `days` days."""

    rarity: float
    low: float
    high: float
    days: int


class Rarity:
    """Rarity of a distance among the last `SCORES` distances."""

    __slots__ = ("_single", "ordered", "place", "ring")

    def __init__(self) -> None:
        self.ring = array("f")  # in the order of arrival; `place` is the oldest once it is full
        self.ordered = array("f")
        self.place = 0
        self._single = array("f", [0.0])

    def __call__(self, distance: float) -> float:
        """Return the rarity 0..`MOST_RARITY` of a distance, and remember it."""
        self._single[0] = distance
        distance = self._single[0]  # with the precision of the stored distances
        ordered = self.ordered
        size = len(ordered)
        first = bisect_left(ordered, distance)
        rarity = -log10((size - first + 1) / (size + 1)) if size > LEAST_SCORES else 0.0
        if size >= SCORES:
            oldest = self.ring[self.place]
            del ordered[bisect_left(ordered, oldest)]
            self.ring[self.place] = distance
            self.place = (self.place + 1) % SCORES
        else:
            self.ring.append(distance)
        insort(ordered, distance)
        return min(rarity, MOST_RARITY)


class Detector:
    """Detector of one series."""

    __slots__ = ("a_day", "crowd", "early", "former", "rarity", "slots", "values", "width")

    def __init__(self) -> None:
        self.rarity = Rarity()
        self.early: list[tuple[float, float]] = []  # points until the interval is known
        self.width = 0.0  # seconds of a slot; 0 while the interval is unknown
        self.a_day = 0  # slots of a day
        self.crowd = 1.0  # points that usually come in a slot
        self.former: float | None = None
        # A ring over the last days: the number of the slot at each place, and its last value.
        self.slots = array("q")
        self.values = array("d")

    def __call__(self, at: float, value: float) -> Judged:
        """Judge a finite value at a time (seconds since 1970), and remember it."""
        if not self.width:
            self.early.append((at, value))
            if len(self.early) == FIRST:
                self._begin()
            return Judged(0.0, value, value, 0)
        former, self.former = self.former, value
        value = value if former is None else (value + former) / 2
        slot = int(at // self.width)
        past: list[float] = []
        days, slots, values, size = 0, self.slots, self.values, len(self.slots)
        for before in range(1, DAYS + 1):
            same, count = slot - before * self.a_day, len(past)
            for slot_then in (same - 1, same, same + 1):
                place = slot_then % size
                if slots[place] == slot_then:  # else the place holds another slot
                    past.append(values[place])
            days += len(past) > count
        if past:
            past.sort()
            judged = Judged(self._rarity(abs(value - past[len(past) // 2])), past[0], past[-1], days)
        else:
            judged = Judged(self.rarity(0.0), value, value, 0)
        self._keep(slot, value)
        return judged

    def _rarity(self, distance: float) -> float:
        return self.rarity(distance if distance < 3e38 else inf)

    def _begin(self) -> None:
        times = [at for at, _ in self.early]
        steps = [later - sooner for sooner, later in pairwise(times) if later > sooner]
        step = median(steps) if steps else SLOT
        self.resume(min(max(SLOT, step), DAY))
        self.crowd = max(self.width / step, 1.0)
        for at, value in self.early:
            self._keep(int(at // self.width), value)
            self.rarity(0.0)
        self.early = []

    def resume(self, width: float) -> None:
        """Set the seconds of a slot; the ring is empty afterwards."""
        self.width, self.a_day = width, max(round(DAY / width), 1)
        size = DAYS * self.a_day + 2
        self.slots, self.values = array("q", [-1]) * size, array("d", [0.0]) * size

    def _keep(self, slot: int, value: float) -> None:
        # Overwrite the place even if its slot has a later time: so a wrong clock does no lasting harm.
        place = slot % len(self.slots)
        self.slots[place], self.values[place] = slot, value
