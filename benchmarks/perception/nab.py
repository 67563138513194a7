"""Score detectors as the Numenta Anomaly Benchmark does, in a second for the corpus of 58 series.

Ahmad, Lavin, Purdy, Agha: "Unsupervised real-time anomaly detection for streaming data", Neurocomputing 262 (2017).
Standard profile: a window found counts up to 1, the earlier the more; one missed counts -1; each detection outside of
all windows up to -0.11, the more the farther behind a window; the first 15 % (of at most 5,000 points) count nothing.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.perception.quality import MissingDataError

FALSE_ALARM = 0.11


@dataclass(frozen=True)
class LabelledSeries:
    """One file of the corpus: seconds since 1970, values, and the first and last place of each labelled window."""

    name: str
    times: list[float]
    values: list[float]
    windows: list[tuple[int, int]]


@dataclass(frozen=True)
class _Points:
    """What each point would count as a detection, and in which window it lies (None: in none)."""

    gains: list[float]
    window: list[int | None]
    begin: int


def corpus(data: Path) -> list[LabelledSeries]:
    """Return the series with their labels. Raises: MissingDataError."""
    labels = data / "NAB" / "labels" / "combined_windows.json"
    if not labels.exists():
        raise MissingDataError(f"no {labels} (github.com/numenta/NAB)")
    return [_series(data, name, windows) for name, windows in sorted(json.loads(labels.read_text()).items())]


def published(data: Path, detector: str) -> dict[str, list[float]]:
    """Return the scores 0..1 that a detector of the scoreboard gave each point, by series."""
    scores: dict[str, list[float]] = {}
    for path in sorted((data / "NAB" / "results" / detector).glob(f"*/{detector}_*.csv")):
        with path.open(newline="") as file:
            name = f"{path.parent.name}/{path.name.removeprefix(f'{detector}_')}"
            scores[name] = [float(row["anomaly_score"]) for row in csv.DictReader(file)]
    return scores


def score_at(corpus: Sequence[LabelledSeries], scores: dict[str, list[float]], threshold: float) -> float:
    """Return the score of the standard profile, -… to 100, for detections of at least this threshold."""
    total, windows = 0.0, 0
    for series in corpus:
        points = _points(series)
        best: dict[int, float] = dict.fromkeys(range(len(series.windows)), -1.0)
        for at in range(points.begin, len(series.times)):
            if scores[series.name][at] >= threshold:
                window = points.window[at]
                if window is None:
                    total += points.gains[at]
                else:
                    best[window] = max(best[window], points.gains[at])
        total += sum(best.values()) - _unseen(series, points)
        windows += len(series.windows)
    return normal(total, windows)


def best_score(corpus: Sequence[LabelledSeries], scores: dict[str, list[float]]) -> tuple[float, float]:
    """Return the best score over all thresholds, as the scoreboard has it, and that threshold."""
    points: list[tuple[float, float, tuple[int, int] | None]] = []
    best: dict[tuple[int, int], float] = {}
    windows = 0
    for number, series in enumerate(corpus):
        of_series = _points(series)
        windows += len(series.windows)
        for at in range(of_series.begin, len(series.times)):
            window = of_series.window[at]
            if window is not None:
                best[(number, window)] = -1.0
            place = None if window is None else (number, window)
            points.append((scores[series.name][at], of_series.gains[at], place))
    points.sort(key=lambda point: -point[0])
    total = float(sum(best.values()))
    top, threshold, former = total, 1.1, math.inf
    for score, gain, place in points:
        if score != former:
            if total > top:
                top, threshold = total, former
            former = score
        if place is None:
            total += gain
        elif gain > best[place]:
            total += gain - best[place]
            best[place] = gain
    if total > top:
        top, threshold = total, former
    return normal(top, windows), threshold


def normal(total: float, windows: int) -> float:
    """Return a sum as the scoreboard has it: 0 for no detection at all, 100 for every window at its first point."""
    return 100.0 * (total + windows) / (2.0 * windows)


def _series(data: Path, name: str, windows: list[list[str]]) -> LabelledSeries:
    from datetime import UTC, datetime

    moments: list[datetime] = []
    values: list[float] = []
    with (data / "NAB" / "data" / name).open(newline="") as file:
        for row in csv.DictReader(file):
            moments.append(datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC))
            values.append(float(row["value"]))
    places: dict[datetime, int] = {}
    for place, moment in enumerate(moments):
        places.setdefault(moment, place)

    def place_of(text: str) -> int:
        return places[datetime.fromisoformat(text).replace(tzinfo=UTC)]

    limits = [(place_of(begin), place_of(end)) for begin, end in windows]
    return LabelledSeries(name, [moment.timestamp() for moment in moments], values, limits)


def _points(series: LabelledSeries) -> _Points:
    size = len(series.times)
    gains: list[float] = []
    window_of: list[int | None] = []
    windows = list(enumerate(series.windows))
    former: tuple[int, int] | None = None
    highest = _sigmoid(-1.0)
    for at in range(size):
        if windows and at > windows[0][1][1]:
            former = windows.pop(0)[1]
        if windows and windows[0][1][0] <= at:
            number, (first, last) = windows[0]
            gains.append(_sigmoid(-(last - at + 1) / (last - first + 1)) / highest)
            window_of.append(number)
            continue
        behind = math.inf if former is None else (at - former[1]) / max(former[1] - former[0], 1)
        gains.append(FALSE_ALARM * _sigmoid(behind))
        window_of.append(None)
    return _Points(gains, window_of, min(math.floor(0.15 * size), 750))


def _unseen(series: LabelledSeries, points: _Points) -> float:
    """Return what windows that lie in the beginning that counts nothing would take: they count nothing either."""
    seen = {window for window in points.window[points.begin :] if window is not None}
    return -1.0 * (len(series.windows) - len(seen))


def _sigmoid(position: float) -> float:
    return -1.0 if position > 3.0 else 2.0 / (1.0 + math.exp(5.0 * position)) - 1.0
