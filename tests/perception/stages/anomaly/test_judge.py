"""A number that is rare at this time of the day is told, once, in words."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from perception import Pipeline
from perception.stages.anomaly.detector import SCORES, Detector
from perception.stages.anomaly.judge import AnomalySettings, SeriesWindow, judge
from spar.types import Perception, replace
from tests.effort import Effort

NOON = datetime(2026, 1, 3, 12, 0, tzinfo=UTC)
STEP = 300.0
DAY = 288  # points

#: No incident, so that what is told of an anomaly arrives as it is.
ALONE = {"incidents": {"enabled": False}}


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
    assert first.content.startswith("load 9.1; at this hour of the last 3 days 0.")
    assert "; rarity 1 in 1," in first.content
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


def test_a_perception_that_is_more_than_a_reading_goes_on_and_says_that_it_is_rare() -> None:
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
    before.restore({})
    days(before, 5)
    before.process([reading(30.0, 5 * DAY)])
    before.settle()
    rows = before.unsaved()
    after.restore(rows)

    assert after.process([reading(31.0, 5 * DAY + 1)]) == []  # told already
    closed = days(after, 1, 5 * DAY + 2)
    assert [one.kind for one in closed] == ["anomaly.closed"]
    assert fresh.process([reading(30.0, 5 * DAY)]) == []
    assert all(len(str(row)) < 60_000 for row in rows.values())


def test_a_series_is_written_once_in_an_hour_and_not_with_every_point() -> None:
    pipeline = Pipeline(ALONE)
    pipeline.restore({})

    assert sum(bool(pipeline.process([reading(1.0, i)]) or pipeline.unsaved()) for i in range(DAY)) == 24


def test_a_row_that_cannot_be_read_is_left_out() -> None:
    pipeline = Pipeline(ALONE)
    pipeline.restore({"series/a": "x", "series/b": [[1], [], []], "series/c": None})

    assert pipeline.process([reading(1.0)]) == []


def test_the_number_of_series_is_bounded_and_what_is_forgotten_is_counted() -> None:
    pipeline = Pipeline({**ALONE, "anomaly": {"series": 5}})

    for i in range(20):
        pipeline.process([reading(1.0, i, attributes={"series": f"disk {i}"})])

    assert len(pipeline._series.known) == 5
    assert pipeline.counts["anomaly"]["forgotten"] == 15


def test_a_flood_of_series_of_one_source_forgets_none_of_another() -> None:
    pipeline = Pipeline({**ALONE, "anomaly": {"series": 5}})
    pipeline.restore({})
    pipeline.process([reading(1.0, 0, attributes={"series": name}) for name in ("load", "disk")])
    rows = pipeline.unsaved()
    again = Pipeline({**ALONE, "anomaly": {"series": 5}})  # the same after a restart
    again.restore(rows)

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


def test_points_every_few_seconds_are_rare_in_time_and_not_in_number() -> None:
    pipeline, noise = Pipeline(ALONE), random.Random(3)
    told = [
        one
        for i in range(30_000)
        for one in pipeline.process([reading(noise.gauss(5, 1), at=NOON + timedelta(seconds=10 * i))])
    ]

    assert len([one for one in told if one.kind == "anomaly.opened"]) <= 6  # in three and a half days
    opened = pipeline.process([reading(5_000.0, at=NOON + timedelta(seconds=300_000))])
    assert [one.kind for one in opened] == ["anomaly.opened"]


def test_the_state_of_a_series_and_the_work_for_a_point_are_bounded() -> None:
    detector, steps = Detector(), list[int]()
    for begin in range(0, 3 * SCORES, SCORES):
        for i in range(begin, begin + SCORES):
            detector(STEP * i, float(i % 91))
        with Effort() as counted:
            detector(STEP * (begin + SCORES), 1.0)
        steps.append(counted.steps)

    assert len(detector.rarity.ordered) == len(detector.rarity.ring) == SCORES
    assert len(detector.slots) == 3 * DAY + 2
    assert max(later - sooner for sooner, later in pairwise(steps)) < 20
