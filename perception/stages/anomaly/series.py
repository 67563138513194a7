"""One series of numbers: its detector, its episode, its row."""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from typing import Any, Literal
from zlib import compress, decompress

from msgspec.structs import astuple

from perception.stages.anomaly.days import DaySummary
from perception.stages.anomaly.detector import TIMES, Detector, Judged

CALM = 10  # slots with usual values that end an episode
FORM = 2  # the form of a row
OF_A_DAY = len(DaySummary.__struct_fields__)

Turn = Literal["opened", "closed", ""]


class NumberSeries:
    """One series: an episode opens with the first unusual value, and closes after `CALM` slots of usual ones.

    `saved_at` is the time when its row was last due for writing, in seconds since 1970, by the times of its points.
    `source` is the source of the points.
    """

    __slots__ = ("_calm", "_detector", "_slot", "is_open", "key", "last", "opened_at", "saved_at", "source")

    def __init__(self, key: str = "", source: str = "") -> None:
        self.key, self.source = key, source
        self._detector = Detector()
        self._calm = self._slot = 0
        self.is_open = False
        self.opened_at = self.saved_at = self.last = 0.0

    def add(self, at: float, value: float, times: float = TIMES) -> tuple[Judged, Turn]:
        """Judge a finite value; return its comparison with the usual, and whether it opened or closed an episode.
        Args: times: the usual spreads from which a value is unusual."""
        judged = self._detector(at, value, times)
        self.last = at
        turn: Turn = ""
        if judged.is_unusual:
            self._calm = 0
            if not self.is_open:
                self.is_open, self.opened_at, turn = True, at, "opened"
        elif self.is_open and self._detector.slot != self._slot:
            self._calm += 1
            if self._calm >= CALM:
                self.is_open, turn = False, "closed"
        self._slot = self._detector.slot
        return judged, turn

    def row(self) -> list[Any]:
        """Return the state as a JSON-able row."""
        detector = self._detector
        learnt: list[Any] = []
        if detector.a_day:
            days = detector.days
            point = [detector.slot, detector.fresh, detector.last, detector.value, detector.mean, detector.unchanged]
            summaries = [number for day in (*days.before, days.today) for number in astuple(day)]
            packed = [_packed(numbers) for numbers in (summaries, days.deviations, detector.latest())]
            learnt = [detector.a_day, detector.crowd, point, days.number, *packed]
        episode = [self.is_open, self.opened_at, self._calm, self.last]
        return [FORM, self.source.encode("utf-8", "replace").decode(), episode, detector.early, learnt]

    @staticmethod
    def read(key: str, row: Any) -> NumberSeries:
        """Return the series of a row. Raises: TypeError, ValueError for a row of another form."""
        form, source, (is_open, opened_at, calm, last), early, learnt = row
        if form != FORM:
            raise ValueError(f"a row of form {form!r}, expected {FORM}")
        series = NumberSeries(key, str(source))
        series.is_open, series.opened_at, series._calm = bool(is_open), float(opened_at), int(calm)
        series.last = series.saved_at = float(last)
        detector = series._detector
        detector.early = [(float(at), float(value)) for at, value in early]
        if learnt:
            a_day, crowd, (slot, fresh, *point), number, *packed = learnt
            summaries, deviations, latest = map(_unpacked, packed)
            detector.begin(int(a_day), float(crowd))
            detector.slot, detector.fresh = int(slot), int(fresh)
            detector.last, detector.value, detector.mean, detector.unchanged = map(float, point)
            detector.remember(latest)
            days = [_summary(*summaries[i : i + OF_A_DAY]) for i in range(0, len(summaries), OF_A_DAY)]
            detector.days.resume(int(number), days, deviations)
            series._slot = detector.slot
        return series


def _summary(spread: float, largest: float, stayed: float, low: float, high: float, is_whole: float) -> DaySummary:
    return DaySummary(spread, largest, stayed, low, high, bool(is_whole))


def _packed(numbers: Any) -> str:
    return b64encode(compress(array("d", numbers).tobytes(), 1)).decode()


def _unpacked(text: str) -> array[float]:
    numbers = array("d")
    try:
        numbers.frombytes(decompress(b64decode(text)))
    except Exception as error:  # of zlib and base64
        raise ValueError("not packed numbers") from error
    return numbers
