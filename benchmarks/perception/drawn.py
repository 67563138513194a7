"""Anomalies in drawn series of three weeks, beside ten lines of running medians.

The series have a daily season with a harmonic that is weaker at weekends, noise and a slow drift; others have no
season, move in steps, count events, have gaps, or come at irregular times. The anomalies (`SHAPES`) are all far above
the noise. No threshold was chosen on the seed of the table.
"""

from __future__ import annotations

import math
import random
import time
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.perception.quality import Quality
from perception.stages.anomaly.series import NumberSeries

SERIES = 200
SEED = 20_260
HOUR, DAY = 3_600.0, 86_400.0
STEP = 300.0  # seconds between two points
DAYS = 21
LEARNT = 7  # days before the first anomaly
LATE = HOUR / 2  # seconds after its end in which an anomaly still counts as found
FALSE_IN = 60.0  # days of one series in which one false alarm is allowed

KINDS = ("season", "season", "level", "steps", "counts", "gaps", "irregular")

#: Seconds of each shape of anomaly; the kinds of series in which it can be seen.
SHAPES: dict[str, tuple[float, tuple[str, ...]]] = {
    "spike": (2 * STEP, ("season", "level", "steps", "counts", "gaps", "irregular")),
    "shift": (5 * HOUR, ("season", "level", "steps", "counts", "gaps", "irregular")),
    "drop": (HOUR, ("season", "level", "steps", "gaps", "irregular")),
    "flat": (6 * HOUR, ("season", "level", "gaps", "irregular")),
    "inverted": (8 * HOUR, ("season", "steps", "gaps", "irregular")),
}


@dataclass(frozen=True)
class Anomaly:
    shape: str
    begin: float
    end: float
    size: float


@dataclass
class DrawnSeries:
    """Points of one series, with the anomalies in it."""

    kind: str
    anomalies: list[Anomaly]
    points: list[tuple[float, float]] = field(default_factory=list)


@dataclass
class Tally:
    """What a detector told of many series: anomalies by kind and shape, those found, false alarms by kind."""

    there: Counter[tuple[str, str]] = field(default_factory=Counter)
    found: Counter[tuple[str, str]] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    points: int = 0

    def add(self, series: DrawnSeries, openings: Sequence[float]) -> None:
        free = list(openings)
        for anomaly in series.anomalies:
            place = (series.kind, anomaly.shape)
            inside = [at for at in free if anomaly.begin <= at < anomaly.end + LATE]
            free = [at for at in free if at not in inside]
            if not any(anomaly.begin <= at < anomaly.end for at, _ in series.points):
                continue  # it fell into a gap
            self.there[place] += 1
            self.found[place] += bool(inside)
        self.false[series.kind] += len(free)

    def false_alarms(self, series: int) -> float:
        """Return the false alarms of one series in `FALSE_IN` days."""
        return self.false.total() * FALSE_IN / (series * DAYS)


def drawn(number: int, seed: int) -> DrawnSeries:
    """Return a series; equal arguments give an equal one."""
    dice = random.Random(f"{seed} {number}")
    kind = KINDS[number % len(KINDS)]
    begin = dice.randrange(19_000, 20_000) * DAY
    noise = 10 ** dice.uniform(-3, 3)
    usual = _usual(kind, dice, noise, begin)
    series = DrawnSeries(kind, _anomalies(kind, dice, begin, usual, noise))
    frozen: tuple[Anomaly, float] | None = None
    for at in _times(kind, dice, begin):
        value = usual(at)
        anomaly = next((one for one in series.anomalies if one.begin <= at < one.end), None)
        if anomaly is not None:
            value = _changed(anomaly, value, usual, at)
        value = float(_count(dice, value)) if kind == "counts" else value + dice.gauss(0, noise)
        if anomaly is not None and anomaly.shape == "flat":
            frozen = frozen if frozen is not None and frozen[0] is anomaly else (anomaly, value)
            value = frozen[1]
        series.points.append((at, value))
    return series


def _usual(kind: str, dice: random.Random, noise: float, begin: float) -> Callable[[float], float]:
    """Return what a series is without noise, by the time."""
    if kind == "counts":
        high, night = 10 ** dice.uniform(-0.7, 1.5), dice.choice((0.0, 0.1, 1.0))
        busiest = dice.uniform(0, DAY)
        return lambda at: high * (night + (1 - night) * max(math.sin(2 * math.pi * (at - busiest) / DAY), 0.0))
    amplitude = 0.0 if kind == "level" else noise * dice.uniform(6, 20)
    second, phase, other = dice.uniform(0.1, 0.5), dice.uniform(0, DAY), dice.uniform(0, DAY)
    weekend, drift = dice.uniform(0.5, 0.9), noise * dice.uniform(-2, 2) / (7 * DAY)
    level = noise * dice.uniform(0, 100)
    grain = amplitude * dice.uniform(0.4, 0.9) if kind == "steps" else 0.0

    def usual(at: float) -> float:
        turn = 2 * math.pi / DAY
        wave = amplitude * (math.sin(turn * (at - phase)) + second * math.sin(2 * turn * (at - other)))
        wave *= weekend if int(at // DAY + 4) % 7 in (0, 6) else 1.0
        if grain:
            wave = grain * round(wave / grain)
        return level + wave + drift * (at - begin)

    return usual


def _times(kind: str, dice: random.Random, begin: float) -> Iterator[float]:
    at, end = begin + dice.uniform(0, STEP), begin + DAYS * DAY
    silent = {dice.randrange(int(DAYS * DAY / HOUR)) for _ in range(20 if kind == "gaps" else 0)}
    while at < end:
        if int((at - begin) // HOUR) not in silent and not (kind == "gaps" and dice.random() < 0.05):
            yield at
        at += dice.expovariate(1 / STEP) if kind == "irregular" else STEP


def _anomalies(
    kind: str, dice: random.Random, begin: float, usual: Callable[[float], float], noise: float
) -> list[Anomaly]:
    """Return about one anomaly in two days, in order, at least two hours apart."""
    shapes = [shape for shape, (_, kinds) in SHAPES.items() if kind in kinds]
    drawn: list[Anomaly] = []
    for _ in range(7):
        shape = dice.choice(shapes)
        length = SHAPES[shape][0]
        start = begin + STEP * dice.randrange(int(LEARNT * DAY / STEP), int((DAYS * DAY - length) / STEP) - 6)
        if any(one.begin - 2 * HOUR < start + length and start < one.end + 2 * HOUR for one in drawn):
            continue
        size = noise * dice.uniform(8, 20) * dice.choice((1, 1, -1))
        if kind == "counts":
            size = 12 * math.sqrt(usual(start) + 1)
        one = Anomaly(shape, start, start + length, size)
        if shape in ("flat", "inverted") and kind != "level" and not _is_far(one, usual, noise):
            continue
        drawn.append(one)
    return sorted(drawn, key=lambda one: one.begin)


def _is_far(anomaly: Anomaly, usual: Callable[[float], float], noise: float) -> bool:
    """Return whether a changed season is far above the noise for at least an hour."""
    times = [anomaly.begin + STEP * i for i in range(int((anomaly.end - anomaly.begin) / STEP))]
    stuck = usual(anomaly.begin)
    then = [stuck if anomaly.shape == "flat" else _changed(anomaly, usual(at), usual, at) for at in times]
    return sum(abs(value - usual(at)) > 8 * noise for value, at in zip(then, times, strict=True)) * STEP >= HOUR


def _changed(anomaly: Anomaly, value: float, usual: Callable[[float], float], at: float) -> float:
    if anomaly.shape == "drop":
        return value - abs(anomaly.size)
    if anomaly.shape == "inverted":
        middle = median(usual(at - DAY / 2 + HOUR * i) for i in range(24))
        return 2 * middle - value
    return value if anomaly.shape == "flat" else value + anomaly.size


def _count(dice: random.Random, mean: float) -> int:
    """Return a number of Poisson (Knuth, "The Art of Computer Programming", volume 2)."""
    if mean > 50:
        return max(round(dice.gauss(mean, math.sqrt(mean))), 0)
    limit, product, count = math.exp(-max(mean, 0.0)), dice.random(), 0
    while product > limit:
        product *= dice.random()
        count += 1
    return count


def measure(data: Path) -> list[Quality]:
    """Draw all series, and let both detectors read them."""
    ours, beside = tally(openings, range(SERIES), SEED), tally(running_medians, range(SERIES), SEED)
    total = ours.there.total()
    owed = 0.93 * (beside.found.total() + total) / 2
    alarms, alarms_beside = ours.false_alarms(SERIES), beside.false_alarms(SERIES)
    return [
        Quality("anomalies found in 200 drawn series", ours.found.total() / total, owed / total, None,
                beside.found.total() / total, "running medians",
                f"{ours.found.total()} of {total}; {ours.seconds / ours.points * 1e6:.1f} us a point"),
        Quality("days of one series for each false alarm", FALSE_IN / max(alarms, 1e-9), FALSE_IN, None,
                FALSE_IN / max(alarms_beside, 1e-9), "running medians",
                f"{ours.false.total()} false alarms beside {beside.false.total()}"),
    ]  # fmt: skip


def tally(detector: Callable[[DrawnSeries], list[float]], numbers: Iterable[int], seed: int) -> Tally:
    """Return what a detector tells of drawn series."""
    told = Tally()
    for number in numbers:
        series = drawn(number, seed)
        began = time.process_time()
        opened = detector(series)
        told.seconds += time.process_time() - began
        told.points += len(series.points)
        told.add(series, opened)
    return told


def openings(series: DrawnSeries) -> list[float]:
    """Return the times at which the stage tells of an anomaly."""
    one = NumberSeries()
    return [at for at, value in series.points if one.add(at, value)[1] == "opened"]


def running_medians(series: DrawnSeries) -> list[float]:
    """Return the times at which a value is 6 median deviations of the last week away from the median of the same time
    (one slot more or less) of seven days; an episode is over after ten usual points."""
    values: dict[int, float] = {}
    ordered, latest = list[float](), list[float]()
    opened, calm, week = list[float](), 10, int(7 * DAY / STEP)
    for at, value in series.points:
        slot = int(at // STEP)
        places = [slot - day * int(DAY / STEP) + near for day in range(1, 8) for near in (-1, 0, 1)]
        past = [values[place] for place in places if place in values]
        values[slot] = value
        if not past:
            continue
        distance = abs(value - median(past))
        is_unusual = at - series.points[0][0] >= 7 * DAY and distance > 6 * ordered[len(ordered) // 2]
        if is_unusual and calm >= 10:
            opened.append(at)
        calm = 0 if is_unusual else calm + 1
        insort(ordered, distance)
        latest.append(distance)
        if len(latest) > week:
            del ordered[bisect_left(ordered, latest[-week - 1])]
    return opened
