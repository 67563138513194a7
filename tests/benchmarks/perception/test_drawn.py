"""On drawn series the stage finds what is far above the noise, and tells of little else."""

from __future__ import annotations

from benchmarks.perception.drawn import KINDS, drawn, openings, running_medians, tally


def test_the_stage_finds_more_than_running_medians_at_a_false_alarm_in_two_months() -> None:
    numbers = range(len(KINDS))
    stage, medians = tally(openings, numbers, 3), tally(running_medians, numbers, 3)

    there = stage.there.total()
    assert there == medians.there.total() > 30
    assert stage.found.total() >= 0.93 * (medians.found.total() + there) / 2
    assert stage.false_alarms(len(numbers)) <= 1
    assert stage.false_alarms(len(numbers)) < medians.false_alarms(len(numbers))


def test_a_drawn_series_is_the_same_each_time() -> None:
    assert drawn(4, 1) == drawn(4, 1) != drawn(4, 2)
