"""A number that is unusual at this time of the day is told, once, in words."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from perception import Pipeline
from perception.stages.anomaly.detector import Detector
from perception.stages.anomaly.judge import AnomalySettings, SeriesWindow, judge
from perception.stages.anomaly.series import NumberSeries
from spar.types import Perception, replace
from tests.effort import Effort

NOON = datetime(2026, 1, 3, 12, 0, tzinfo=UTC)
STEP = 300.0
DAY = 288  # points

#: No incident, so that what is told of an anomaly arrives as it is.
ALONE = {"incidents": {"enabled": False}}


def nobody(rows: Any) -> None:
    """Keep no rows."""


def reading(value: Any, number: int = 0, **given: Any) -> Perception:
    attributes = {"value": value, "series": "load", "reading": True, **given.pop("attributes", {})}
    at = given.pop("at", NOON + timedelta(seconds=STEP * number))
    return Perception(source="host", kind="host.load", at=at, attributes=attributes, **given)


def usual(number: int, seed: int = 7) -> float:
    """A load that is high at the same hours of each day, with some noise."""
    return (2.0 if number % DAY < 60 else 0.5) + random.Random(seed * 100_000 + number).random() * 0.3


def days(pipeline: Pipeline, count: int, begin: int = 0) -> list[Perception]:
    return [one for i in range(begin, begin + count * DAY) for one in pipeline.process([reading(usual(i), i)])]


def test_a_value_that_was_never_seen_at_this_hour_is_told_in_words_and_its_end_too() -> None:
    pipeline = Pipeline(ALONE)
    days(pipeline, 5)
    at = 5 * DAY + 150

    told = [one for i in range(5 * DAY, at) for one in pipeline.process([reading(usual(i), i)])]
    opened = [one for i in range(3) for one in pipeline.process([reading(9.1, at + i)])]
    closed = [one for i in range(3, 40) for one in pipeline.process([reading(usual(at + i), at + i)])]

    assert told == []
    (first,) = opened
    assert first.kind == "anomaly.opened"
    away = r"load is 9\.1, \d+(\.\d)? times the usual spread away from \S+"
    said = away + r"; usual at this time of the last \d days: \S+ to \S+"
    assert re.fullmatch(said, first.content)
    assert first.attributes["anomaly"]["times"] > 10
    assert (first.intent, first.attributes["novelty"]) == ("report_problem", "value")
    (last,) = closed
    assert (last.kind, last.intent) == ("anomaly.closed", "report_recovered")
    assert last.content.startswith("load is back to the usual: 0.")
    assert last.attributes["anomaly"]["seconds"] > 3 * STEP


def test_what_is_usual_at_its_hour_is_no_anomaly_however_high() -> None:
    pipeline = Pipeline(ALONE)
    days(pipeline, 4)

    assert days(pipeline, 1, 4 * DAY) == []
    assert pipeline.counts["anomaly"]["measured"] == 5 * DAY


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e12])
def test_one_threshold_fits_series_of_any_unit(scale: float) -> None:
    pipeline = Pipeline(ALONE)
    for i in range(5 * DAY):
        pipeline.process([reading(usual(i) * scale, i)])

    assert [one.kind for one in pipeline.process([reading(40 * scale, 5 * DAY)])] == ["anomaly.opened"]


def test_a_perception_that_is_more_than_a_reading_goes_on_and_says_that_it_is_unusual() -> None:
    window, settings = SeriesWindow(AnomalySettings()), AnomalySettings()
    plain = [reading(usual(i), i, attributes={"reading": False}) for i in range(5 * DAY)]
    assert judge(window, settings, plain).perceptions == plain

    (one,) = judge(window, settings, [reading(50.0, 5 * DAY, attributes={"reading": False})]).perceptions

    assert (one.kind, one.content) == ("host.load", "")
    assert one.attributes["anomaly"]["state"] == "opened"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 10**400, "7", None, True])
def test_what_is_no_finite_number_is_counted_and_disturbs_no_series(value: Any) -> None:
    pipeline = Pipeline(ALONE)

    assert pipeline.process([reading(value), reading(1.0, 1)]) == []
    assert pipeline.counts["anomaly"]["dropped"] == 1
    assert "its value is no finite number" in pipeline.dropped[-1].reason


def test_gaps_jumps_of_the_clock_and_equal_times_break_nothing() -> None:
    pipeline = Pipeline(ALONE)
    days(pipeline, 4)
    strange = [NOON, NOON, NOON + timedelta(days=4000), NOON - timedelta(days=9000), NOON + timedelta(days=40)]

    for at in strange:
        pipeline.process([reading(1.0, at=at)])
    days(pipeline, 4, 44 * DAY)

    assert [one.kind for one in pipeline.process([reading(70.0, 48 * DAY)])] == ["anomaly.opened"]


def test_what_was_learnt_and_what_is_open_survive_a_restart() -> None:
    before, after, fresh = Pipeline(ALONE), Pipeline(ALONE), Pipeline(ALONE)
    rows: dict[str, Any] = {}
    before.restore({}, rows.update)
    days(before, 5)
    before.process([reading(30.0, 5 * DAY)])
    before.settle()
    after.restore(rows, nobody)

    assert after.process([reading(31.0, 5 * DAY + 1)]) == []  # told already
    closed = days(after, 1, 5 * DAY + 2)
    assert [one.kind for one in closed] == ["anomaly.closed"]
    assert fresh.process([reading(30.0, 5 * DAY)]) == []
    assert all(len(str(row)) < 60_000 for row in rows.values())


def test_a_series_is_written_once_in_an_hour_and_not_with_every_point() -> None:
    pipeline = Pipeline(ALONE)
    written: list[Any] = []
    pipeline.restore({}, written.append)

    assert not any(pipeline.process([reading(1.0, i)]) for i in range(DAY))
    assert len(written) == 24


def test_a_row_that_cannot_be_read_is_left_out() -> None:
    pipeline = Pipeline(ALONE)
    pipeline.restore({"series/a": "x", "series/b": [[1], [], []], "series/c": None}, nobody)

    assert pipeline.process([reading(1.0)]) == []


def test_the_number_of_series_is_bounded_and_what_is_forgotten_is_counted() -> None:
    pipeline = Pipeline({**ALONE, "anomaly": {"series": 5}})

    for i in range(20):
        pipeline.process([reading(1.0, i, attributes={"series": f"disk {i}"})])

    assert len(pipeline._series.known) == 5
    assert pipeline.counts["anomaly"]["forgotten"] == 15


def test_a_flood_of_series_of_one_source_forgets_none_of_another() -> None:
    pipeline = Pipeline({**ALONE, "anomaly": {"series": 5}})
    rows: dict[str, Any] = {}
    pipeline.restore({}, rows.update)
    pipeline.process([reading(1.0, 0, attributes={"series": name}) for name in ("load", "disk")])
    again = Pipeline({**ALONE, "anomaly": {"series": 5}})  # the same after a restart
    again.restore(dict(rows), nobody)

    for one in (pipeline, again):
        for i in range(100):
            one.process([replace(reading(1.0, i, attributes={"series": f"strange {i}"}), source="web")])
        assert [each.source for each in one._series.known.values()].count("host") == 2


def test_sessions_sources_and_trust_keep_series_of_their_own() -> None:
    pipeline = Pipeline(ALONE)
    pipeline.process(
        [reading(1.0), reading(1.0, session="b"), reading(1.0, trust="trusted"), reading(1.0, subject="s")]
    )

    assert len(pipeline._series.known) == 4


def told_of(values: list[float], step: float = STEP) -> list[tuple[int, str]]:
    """Return the places of the values at which an episode opens or closes."""
    series = NumberSeries()
    turns = [series.add(1.7e9 + step * i, value)[1] for i, value in enumerate(values)]
    return [(place, turn) for place, turn in enumerate(turns) if turn]


def noise(count: int, seed: int = 3) -> list[float]:
    dice = random.Random(seed)
    return [dice.gauss(5, 1) for _ in range(count)]


def test_points_every_few_seconds_are_averaged_and_noise_tells_nothing() -> None:
    values = noise(30_000)

    assert told_of([*values, 5_000.0], 10) == [(30_000, "opened")]


def test_a_series_without_a_season_needs_no_week_and_nothing_is_told_of_a_short_memory() -> None:
    values = noise(2 * DAY)

    assert told_of([*values, 40.0]) == [(2 * DAY, "opened")]
    assert told_of([*values[: DAY - 1], 40.0]) == []


def test_a_new_height_of_the_first_week_is_only_told_beyond_all_that_was_seen() -> None:
    busy = [value + (20 if i % DAY < 140 else 0) for i, value in enumerate(noise(3 * DAY))]

    assert told_of([*busy, *noise(2 * DAY, 4)]) == []  # the first weekend
    assert [turn for _, turn in told_of([*busy, *noise(DAY, 4), 90.0])] == ["opened"]


def test_a_value_that_stays_the_same_is_told_where_it_usually_changes() -> None:
    (opened, closed) = told_of([*noise(8 * DAY), *[5.0] * 72, *noise(40, 4)])

    assert (opened[1], closed[1]) == ("opened", "closed")
    assert 8 * DAY + 12 <= opened[0] < 8 * DAY + 72 <= closed[0]


@pytest.mark.parametrize("value", [0.0, 7.0, 20.3, -1e300])
def test_a_constant_series_tells_nothing_of_its_constancy(value: float) -> None:
    assert told_of([value] * (10 * DAY)) == []


def test_counts_that_are_mostly_zero_tell_of_many_and_not_of_a_few() -> None:
    dice = random.Random(2)
    counts = [float(dice.random() < 0.05) for _ in range(14 * DAY)]

    assert told_of([*counts, 2.0, *counts[:20], 40.0]) == [(14 * DAY + 21, "opened")]


@pytest.mark.parametrize("step", [1_800.0, 3_600.0, 21_600.0, 86_400.0])
def test_slow_series_tell_what_is_far_from_the_usual(step: float) -> None:
    values = noise(max(int(20 * 86_400 / step), 80))

    assert told_of([*values, 60.0], step) == [(len(values), "opened")]


def test_each_episode_that_opens_closes_once_also_across_restarts() -> None:
    values = noise(21 * DAY)
    for begin in range(8 * DAY, 20 * DAY, 300):
        values[begin : begin + 5] = [50.0] * 5
    series, turns = NumberSeries("k"), list[str]()
    for i, value in enumerate(values):
        if i % 97 == 0:
            series = NumberSeries.read("k", json.loads(json.dumps(series.row())))
        turns.append(series.add(1.7e9 + STEP * i, value)[1])
    turns = [turn for turn in turns if turn]

    assert len(turns) >= 10
    assert turns == ["opened", "closed"] * (len(turns) // 2)
    assert [turn for _, turn in told_of(values)] == turns


def test_rows_of_an_earlier_release_begin_anew_and_are_counted() -> None:
    pipeline = Pipeline(ALONE)
    former = {"series/a": [[1, 0, 0.0, 0, False, 0.0, 0.0], [0.0, 1.0, None, []], ["", "", ""], "host"]}

    rows: dict[str, Any] = {}

    assert pipeline.restore(former, rows.update) == 1
    assert pipeline.process([reading(1.0)]) == []
    assert rows["series/a"] is None


def test_the_state_of_a_series_and_the_work_for_a_point_are_bounded() -> None:
    detector, steps = Detector(), list[int]()
    values = noise(70 * DAY)
    for i, value in enumerate(values):
        if i % (14 * DAY) == 13 * DAY + 100:
            with Effort() as counted:
                detector(STEP * i, value)
            steps.append(counted.steps)
        else:
            detector(STEP * i, value)

    assert len(detector.slots) == len(detector.values) == 7 * DAY
    assert len(detector.days.before) == 28
    assert len(detector.days.deviations) <= 2 * DAY
    assert max(later - sooner for sooner, later in pairwise(steps[1:])) < 20
