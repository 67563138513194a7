"""One series of numbers: its detector, its episode, its row."""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from math import log10
from typing import Any, Literal
from zlib import compress, decompress

from perception.stages.anomaly.detector import SCORES, Detector, Judged

REST = 100  # points after an anomaly in which only a rarer one is reported
RARER = 1.05  # factor by which it must be rarer
RAREST = 3.85  # powers of ten: about the largest of the last distances, so the threshold cannot be higher
CALM = 10  # usual points that end an episode

Turn = Literal["opened", "closed", ""]


class NumberSeries:
    """One series: an episode opens with the first value that is rare enough, and closes after `CALM` usual ones.

    `saved_at` is the time when its row was last due for writing, in seconds since 1970, by the times of its points.
    `source` is the source of the points, "" in rows without one.
    """

    __slots__ = (
        "_at",
        "_calm",
        "_detector",
        "_points",
        "is_open",
        "key",
        "last",
        "last_rarity",
        "opened_at",
        "saved_at",
        "source",
    )  # fmt: skip

    def __init__(self, key: str = "", source: str = "") -> None:
        self.key, self.source = key, source
        self._detector = Detector()
        self._points, self._at, self.last_rarity, self._calm = 0, -REST - 1, 0.0, 0
        self.is_open = False
        self.opened_at = self.saved_at = self.last = 0.0

    def add(self, at: float, value: float, threshold: float) -> tuple[Judged, Turn]:
        """Judge a finite value; return its comparison with the usual, and whether it opened or closed an episode."""
        judged = self._detector(at, value)
        self._points += 1
        self.last = at
        if self._points - self._at > REST:
            self.last_rarity = 0.0
        # The threshold is about time: for points that come more often, it grows in proportion.
        is_rare = judged.rarity >= min(threshold + log10(self._detector.crowd), RAREST)
        turn: Turn = ""
        if judged.rarity > RARER * self.last_rarity:
            self.last_rarity, self._at = judged.rarity, self._points
            if is_rare and not self.is_open:
                self.is_open, self.opened_at, turn = True, at, "opened"
        self._calm = 0 if is_rare else self._calm + 1
        if self.is_open and self._calm >= CALM:
            self.is_open, turn = False, "closed"
        return judged, turn

    def row(self) -> list[Any]:
        """Return the state as a JSON-able row."""
        detector, rarity = self._detector, self._detector.rarity
        ring = rarity.ring[rarity.place :] + rarity.ring[: rarity.place]
        return [
            [self._points, self._at, self.last_rarity, self._calm, self.is_open, self.opened_at, self.last],
            [detector.width, detector.crowd, detector.former, detector.early],
            [_packed(detector.slots), _packed(detector.values), _packed(ring)],
            self.source.encode("utf-8", "replace").decode(),
        ]

    @staticmethod
    def read(key: str, row: Any) -> NumberSeries:
        """Return the series of a row. Raises: TypeError, ValueError for an invalid row."""
        series = NumberSeries(key, str(row[3]) if len(row) > 3 else "")
        detector = series._detector
        points, at, last_rarity, calm, is_open, opened_at, last = row[0]
        series._points, series._at, series.last_rarity, series._calm = (
            int(points),
            int(at),
            float(last_rarity),
            int(calm),
        )
        series.is_open, series.opened_at, series.last = bool(is_open), float(opened_at), float(last)
        series.saved_at = series.last
        width, crowd, former, early = row[1]
        detector.crowd, detector.former = max(float(crowd), 1.0), None if former is None else float(former)
        detector.early = [(float(at), float(value)) for at, value in early]
        if width:
            detector.resume(float(width))
            slots, values = _unpacked("q", row[2][0]), _unpacked("d", row[2][1])
            if len(slots) != len(detector.slots) or len(values) != len(slots):
                raise ValueError(f"{len(slots)} slots and {len(values)} values, expected {len(detector.slots)}")
            detector.slots, detector.values = slots, values
        detector.rarity.ring = _unpacked("f", row[2][2])[-SCORES:]
        detector.rarity.ordered = array("f", sorted(detector.rarity.ring))
        return series


def _packed(numbers: array[Any]) -> str:
    return b64encode(compress(numbers.tobytes(), 1)).decode()


def _unpacked(kind: Literal["q", "d", "f"], text: str) -> array[Any]:
    numbers = array(kind)
    try:
        numbers.frombytes(decompress(b64decode(text)))
    except Exception as error:  # of zlib and base64
        raise ValueError("not packed numbers") from error
    return numbers
