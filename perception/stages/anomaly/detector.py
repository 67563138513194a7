"""Detector of unusual values: how many times the usual spread a value is away from the usual at its time of the day.

Usual are the values of the same time of the last seven days without the outermost seventh on each side (a trimmed
range; Tukey, "The future of data analysis", 1962), and those of the same time a week ago: so one anomalous day does not
count, and weekends are known. Until a week is known, everything that was seen is usual. Times may be irregular, have
gaps, or come from a wrong clock; the state and the work for a point are bounded.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from math import isnan, nan
from statistics import median

from msgspec import Struct

from perception.stages.anomaly.days import LastDays

DAY = 86_400.0
SLOT = 300.0  # least seconds of a slot, which is one time of the day; the points in it are averaged
WEEK = 7  # days that a value is compared with; longer where the points are so rare that a week has few
LEAST = 60  # slots that it is compared with at least
ENOUGH = 4  # days of which something must be known
FINE = 24  # slots of a day from which the slot before and the one after count as the same time, too
FIRST = 20  # points from which the usual interval is computed
TIMES = 3.0  # usual spreads outside of the trimmed range: of normal noise one value in a thousand
BRIDGED = 12  # slots without a point that are interpolated when the next one comes
STUCK = 12  # slots for which a value must not change to be stuck
MOST = 1e100  # larger numbers are compared as this one, so that no difference overflows


class Judged(Struct, frozen=True):
    """Comparison of a value with the usual.

    `value` is the mean over about a slot; `low` to `high` is usual at this time of the last `days` days; it is `times`
    the usual `spread` away from there. `stuck` are the seconds for which it has not changed, where that is unusual.
    """

    value: float
    low: float
    high: float
    days: int = 0
    spread: float = 0.0
    times: float = 0.0
    stuck: float = 0.0
    is_unusual: bool = False


class Usual(Struct, frozen=True):
    """Usual values of a slot: their middle, their trimmed range, the range of a week ago (None: not known), and the
    number of days that they are from."""

    middle: float
    band: tuple[float, float]
    week: tuple[float, float] | None
    days: int


class Detector:
    """Detector of one series."""

    __slots__ = ("_usual", "a_day", "crowd", "days", "early", "fresh", "last", "mean", "slot", "slots", "span",
                 "unchanged", "value", "values", "width")  # fmt: skip

    def __init__(self) -> None:
        self._usual: Usual | None = None  # of the newest slot
        self.early: list[tuple[float, float]] = []  # points until the interval is known
        self.a_day = 0  # slots of a day; 0 while the interval is unknown
        self.slot = self.fresh = 0  # the newest slot; the points since the last gap
        self.last = self.value = self.mean = self.unchanged = 0.0  # the last point, and since when it is the same

    def __call__(self, at: float, value: float, times: float = TIMES) -> Judged:
        """Judge a finite value at a time (seconds since 1970), and remember it. Args: times: the usual spreads from
        which it is unusual."""
        value = min(max(value, -MOST), MOST)
        if self.a_day:
            return self._judge(at, value, times)
        self.early.append((at, value))
        if len(self.early) == FIRST:
            moments = [at for at, _ in self.early]
            steps = [later - sooner for sooner, later in pairwise(moments) if later > sooner]
            step = median(steps) if steps else SLOT
            a_day = max(int(DAY / max(SLOT, step)), 1)
            self.begin(a_day, max(DAY / a_day / step, 1.0))
            for point in self.early:
                self._judge(*point, times)
            self.early = []
        return Judged(value, value, value)

    def begin(self, a_day: int, crowd: float) -> None:
        """Begin with an empty memory. Args: a_day: slots of a day; crowd: points that usually come in a slot."""
        self.a_day, self.crowd, self.width = a_day, crowd, DAY / a_day
        self.span = max(WEEK, -(-LEAST // a_day))
        # For each slot of the day a ring of the last days: the number of the slot since 1970, and its value.
        self.slots, self.values = array("q", [-1]) * (a_day * self.span), array("d", [0.0]) * (a_day * self.span)
        self.days = LastDays(self.span)

    def latest(self) -> list[float]:
        """Return the values of the newest slots, the oldest first; nan for a slot without one."""
        numbers = range(self.slot - len(self.slots) + 1, self.slot + 1)
        return [self.values[place] if self.slots[place := self._place(number)] == number else nan for number in numbers]

    def remember(self, latest: Sequence[float]) -> None:
        """Take over what `latest` returned. Raises: ValueError for another number of values."""
        if len(latest) != len(self.values):
            raise ValueError(f"{len(latest)} values, expected {len(self.values)}")
        for number, value in enumerate(latest, self.slot - len(latest) + 1):
            if not isnan(value):
                self._keep(number, value)

    def _judge(self, at: float, value: float, times: float) -> Judged:
        slot, gap = int(at // self.width), (at - self.last) / self.width
        self.fresh = self.fresh + 1 if 0 <= gap <= 1 else 1
        mean = value if self.fresh == 1 else self.mean + (value - self.mean) * 2 / (self.crowd + 1)
        if value != self.value or not 0 <= gap <= BRIDGED:
            self.unchanged = at
        is_new = slot != self.slot
        if is_new:
            self._usual = self._usual_at(slot)
        judged, distance = self._compared(at, mean, times)
        if is_new:
            if self._usual is not None:
                self.days.add(int(at // DAY), abs(mean - self._usual.middle), self.a_day)
            for between in range(self.slot + 1, slot if slot - self.slot <= BRIDGED else 0):
                share = (between - self.slot) / (slot - self.slot)
                self._keep(between, self.mean + (mean - self.mean) * share)
        self._keep(slot, mean)
        today = self.days.today
        if distance > today.largest:
            today.largest = distance
        if at - self.unchanged > today.stayed:
            today.stayed = at - self.unchanged
        if today.is_whole and not value.is_integer():
            today.is_whole = False
        if not judged.is_unusual and not today.low <= mean <= today.high:
            today.low, today.high = min(today.low, mean), max(today.high, mean)
        self.last, self.value, self.mean, self.slot = at, value, mean, slot
        return judged

    def _compared(self, at: float, mean: float, times: float) -> tuple[Judged, float]:
        """Return the comparison, and the distance from what is usual at this time."""
        days, usual = self.days, self._usual
        stuck = at - self.unchanged
        if stuck < STUCK * self.width or stuck <= days.stayed:
            stuck = 0.0
        if usual is None:
            return Judged(mean, mean, mean, stuck=stuck, is_unusual=stuck > 0), 0.0
        (low, high), week = usual.band, usual.week
        distance = away = max(low - mean, mean - high, 0.0)
        if usual.days < ENOUGH or len(days.before) < WEEK:
            low, high = min(low, days.low), max(high, days.high)
            away = max(low - mean, mean - high, 0.0)
        elif week is not None and distance and (of_week := max(week[0] - mean, mean - week[1], 0.0)) < distance:
            (low, high), distance, away = week, of_week, of_week
        if not days.is_known or 2 * self.fresh < self.crowd:
            return Judged(mean, low, high, usual.days, stuck=stuck, is_unusual=stuck > 0), distance
        spread = days.spread(mean)
        is_away = away > times * spread and distance > days.far
        return Judged(mean, low, high, usual.days, spread, away / spread, stuck, is_away or stuck > 0), distance

    def _usual_at(self, slot: int) -> Usual | None:
        """Return what is usual in a slot; None if nothing is known of this time of the day."""
        a_day, reach = self.a_day, int(self.a_day >= FINE)
        place, size = slot % a_day, len(self.values)
        first, last = slot - self.span * a_day - reach, slot - a_day + reach
        near = [at % size for at in range((place - reach) * self.span, (place + reach + 1) * self.span)]
        past = sorted([self.values[at] for at in near if first <= self.slots[at] <= last])
        if not past:
            return None
        week = slot - WEEK * a_day
        week_ago = [self.values[place] for number in range(week - reach, week + reach + 1)
                    if self.slots[place := self._place(number)] == number]  # fmt: skip
        count = len(past)
        outer = count // WEEK
        range_of_week = (min(week_ago), max(week_ago)) if week_ago else None
        return Usual(past[count // 2], (past[outer], past[-1 - outer]), range_of_week, -(-count // (2 * reach + 1)))

    def _place(self, slot: int) -> int:
        return slot % self.a_day * self.span + slot // self.a_day % self.span

    def _keep(self, slot: int, value: float) -> None:
        # Overwrite the place even if its slot has a later time: so a wrong clock does no lasting harm.
        place = self._place(slot)
        self.slots[place], self.values[place] = slot, value
