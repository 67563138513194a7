"""Stage 2: compares a number with the same time of the last days, and reports an unusual one, once per episode.

Every perception with a number in `attributes["value"]` is a point of a series. The series has the name in
`attributes["series"]`, else the subject or kind. A perception with `attributes["reading"]` is only a measurement: the
stage removes it unless it opens or closes an episode. Then it becomes a perception of kind "anomaly.opened" or
"anomaly.closed" with a sentence for people. Others are passed on, with `attributes["anomaly"]` where an episode opens
or closes. The time is that of the points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import isfinite
from typing import Annotated, Any

from msgspec import Meta, Struct

from perception.stages.anomaly.detector import TIMES, Judged
from perception.stages.anomaly.series import NumberSeries
from perception.stages.dedup import MESSAGE, Decision, StageResult, with_attributes
from spar.checks import shorten
from spar.data.bounded import SharedDict
from spar.types import Perception, replace

SAVED_EVERY = 3_600.0  # seconds, by the times of the points, after which a series is written again
SHOWN = 120  # bound of the characters of a series' name


class AnomalySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings `[perception.anomaly]`: a value is unusual that is at least `times` the usual spread away from the usual
    values of its time of the day. `series`: number of series that are stored, each with seven days. `rarity` has no
    effect any more."""

    enabled: bool = True
    times: Annotated[float, Meta(gt=0, le=1_000)] = TIMES
    rarity: Annotated[float, Meta(ge=2, le=10_000)] | None = None
    series: Annotated[int, Meta(ge=1, le=100_000)] = 500


class SeriesWindow:
    """The known series; the only object that `judge` changes. `changed` holds the series to write, None for a
    forgotten one. When there are too many series, the source with the most loses one."""

    def __init__(self, settings: AnomalySettings) -> None:
        self.known: SharedDict[str, NumberSeries] = SharedDict(settings.series)
        self.changed: dict[str, NumberSeries | None] = {}
        self.unread = 0

    def shed(self) -> int:
        """Forget the older half to free memory, and return their number."""
        older = self.known.shed()
        self.changed.update((series.key, None) for series in older)
        return len(older)

    def settle(self) -> None:
        """Mark every series with new points for writing."""
        self.changed.update((series.key, series) for series in self.known.values() if series.last > series.saved_at)

    def restore(self, rows: Mapping[str, Any]) -> None:
        """Load the stored rows; a series whose row cannot be read begins anew, and is counted in `unread`."""
        for key, row in rows.items():
            try:
                series = NumberSeries.read(key, row)
            except (TypeError, ValueError, LookupError):
                self.unread += 1
                self.changed[key] = None
                continue
            self.known.put(series.source, key, series)


def judge(window: SeriesWindow, settings: AnomalySettings, perceptions: Sequence[Perception]) -> StageResult:
    """Remove readings unless an anomaly opens or closes with them."""
    remaining: list[Perception] = []
    decisions: list[Decision] = []
    notes = {"measured": 0, "opened": 0, "closed": 0, "forgotten": 0}
    for perception in perceptions:
        attributes = perception.attributes
        if not attributes or "value" not in attributes or perception.kind == MESSAGE:
            remaining.append(perception)
            continue
        value = _number(attributes["value"])
        if value is None:
            if attributes.get("reading") is True:
                given = attributes["value"]
                shown = shorten(given, 40) if isinstance(given, (int, float)) else "no number"
                decisions.append(Decision.on(perception, "anomaly", f"its value is no finite number ({shown})"))
            else:
                remaining.append(perception)
            continue
        name = _name(perception)
        key = _key(perception, name)
        series = window.known.get(perception.source, key) or NumberSeries(key)
        series.source = perception.source
        if (gone := window.known.put(perception.source, key, series)) is not None:
            window.changed[gone.key] = None
            notes["forgotten"] += 1
        at = perception.at.timestamp()
        judged, turn = series.add(at, value, settings.times)
        if turn or at - series.saved_at >= SAVED_EVERY or not series.saved_at:
            window.changed[key] = series
            series.saved_at = at
        if turn:
            notes[turn] += 1
            remaining.append(_with_anomaly(perception, series, name, value, judged, turn))
        elif attributes.get("reading") is True:
            notes["measured"] += 1
        else:
            remaining.append(perception)
    return StageResult(remaining, decisions, notes["opened"] + notes["closed"], [], notes)


def sentence(name: str, judged: Judged, turn: str) -> str:
    """Return a sentence for people that compares a number with the usual."""
    days = "the day before" if judged.days == 1 else f"the last {judged.days} days"
    usual = f"usual at this time of {days}: {judged.low:.4g} to {judged.high:.4g}"
    usual = usual if judged.days else "nothing is known of this time of the day"
    if turn == "closed":
        return f"{name} is back to the usual: {judged.value:.4g}; {usual}"
    if judged.stuck:
        hours = f"{judged.stuck / 3600:.3g} hours"
        return f"{name} has been {judged.value:.4g} for {hours}, much longer than it usually stays the same"
    edge = judged.low if judged.value < judged.low else judged.high
    return f"{name} is {judged.value:.4g}, {judged.times:.3g} times the usual spread away from {edge:.4g}; {usual}"


def _with_anomaly(
    perception: Perception, series: NumberSeries, name: str, value: float, judged: Judged, turn: str
) -> Perception:
    anomaly = {"state": turn, "series": name, "value": value, "low": judged.low, "high": judged.high,
               "days": judged.days, "spread": judged.spread, "times": round(judged.times, 1)}  # fmt: skip
    if judged.stuck:
        anomaly["stuck"] = judged.stuck
    if turn == "closed":
        anomaly["seconds"] = max(perception.at.timestamp() - series.opened_at, 0.0)
    perception_now = with_attributes(perception, anomaly=anomaly, **({"novelty": "value"} if turn == "opened" else {}))
    if perception.attributes.get("reading") is not True:
        return perception_now
    attributes = {**perception_now.attributes, "level": "high" if turn == "opened" else "normal"}
    del attributes["reading"]
    return replace(perception_now, kind=f"anomaly.{turn}", content=sentence(name, judged, turn),
                   subject=perception.subject or name, attributes=attributes)  # fmt: skip


def _number(value: object) -> float | None:
    if type(value) is not float and type(value) is not int:
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _name(perception: Perception) -> str:
    name = perception.attributes.get("series")
    if not isinstance(name, str) or not name:
        name = perception.subject or perception.kind or perception.source
    return name[:SHOWN]


def _key(perception: Perception, name: str) -> str:
    where = repr((perception.session, perception.trust, perception.source, perception.subject, name))
    return blake2b(where.encode("utf-8", "backslashreplace"), digest_size=12).hexdigest()
