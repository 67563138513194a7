"""How long to wait between two cycles: a table, and what holds for everything."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spar.loop.setup import Pace, expected_interval, pause_after

ADAPTIVE = Pace("adaptive", 0.5, 5.0, 10)
OFF = Pace("off")


@pytest.mark.parametrize(
    ("pace", "perceptions", "more", "seconds"),
    [
        (Pace(1.0), 0, {}, 1.0),
        (Pace(1.0), 50, {}, 1.0),
        (Pace(1.0), 0, {"busy": True}, 0.5),
        (Pace(30.0), 0, {"busy": True}, 0.5),
        (Pace(0.1), 0, {"busy": True}, 0.1),
        (Pace(30.0), 0, {}, 30.0),
        (Pace(0), 0, {}, 0.0),
        (Pace(0), 9, {"busy": True}, 0.0),
        (Pace(0), 0, {"next_look": 3.0}, 0.0),
        (ADAPTIVE, 0, {}, 5.0),
        (ADAPTIVE, 5, {}, 2.75),
        (ADAPTIVE, 10, {}, 0.5),
        (ADAPTIVE, 1000, {}, 0.5),
        (ADAPTIVE, 0, {"busy": True}, 0.5),
        (ADAPTIVE, 0, {"next_look": 2.0}, 2.0),
        (ADAPTIVE, 0, {"next_look": 0.01}, 0.5),
        (ADAPTIVE, 0, {"next_look": 3600.0}, 5.0),
        (ADAPTIVE, 0, {"next_look": -1.0}, 0.5),
        (ADAPTIVE, 0, {"next_look": math.inf}, 5.0),
        (ADAPTIVE, 0, {"next_look": math.nan}, 0.5),
        (ADAPTIVE, 0, {"next_look": 4.0, "busy": True}, 0.5),
        (ADAPTIVE, 10, {"next_look": 4.0}, 0.5),
        (ADAPTIVE, 0, {"next_look": 3600.0, "planned_look": 3600.0}, 5.0),
        (Pace(1.0), 0, {"next_look": 3.0}, 1.0),
        (Pace(20.0), 0, {"next_look": 5.0}, 20.0),
        (Pace(1.0), 0, {"planned_look": 300.0}, 300.0),
        (Pace(1.0), 0, {"planned_look": 0.2}, 1.0),
        (Pace(1.0), 0, {"planned_look": -1.0}, 1.0),
        (Pace(1.0), 0, {"planned_look": math.nan}, 1.0),
        (Pace(1.0), 0, {"planned_look": math.inf}, 3600.0),
        (Pace(7200.0), 0, {"planned_look": 9000.0}, 7200.0),
        (Pace(1.0), 0, {"planned_look": 300.0, "busy": True}, 0.5),
        (Pace(0), 0, {"planned_look": 3.0}, 0.0),
        (OFF, 0, {}, None),
        (OFF, 50, {}, None),
        (OFF, 0, {"next_look": 2.0}, None),
        (OFF, 0, {"planned_look": 2.0}, None),
        (OFF, 0, {"busy": True}, 0.5),
    ],
)
def test_the_pause_after_a_cycle(pace: Pace, perceptions: int, more: dict[str, Any], seconds: float | None) -> None:
    assert pause_after(pace, perceptions, **more) == seconds


@given(
    low=st.floats(0.001, 10), span=st.floats(0, 100), busy_count=st.integers(1, 100), perceptions=st.integers(0, 500),
    next_look=st.none() | st.floats(allow_nan=True, allow_infinity=True), busy=st.booleans(),
)  # fmt: skip
def test_adaptive_stays_between_its_bounds_whatever_is_proposed(
    low: float, span: float, busy_count: int, perceptions: int, next_look: float | None, busy: bool
) -> None:
    pace = Pace("adaptive", low, low + span, busy_count)

    pause = pause_after(pace, perceptions, busy=busy, next_look=next_look)

    assert pause is not None
    assert low <= pause * (1 + 1e-9)
    assert pause <= (low + span) * (1 + 1e-9)


@given(st.integers(1, 50))
def test_adaptive_shortens_in_equal_steps_the_more_there_is(busy_count: int) -> None:
    pace = Pace("adaptive", 0.5, 5.0, busy_count)
    pauses = [pause_after(pace, count) or 0.0 for count in range(busy_count + 1)]

    steps = [before - after for before, after in itertools.pairwise(pauses)]

    assert pauses[0] == 5.0
    assert pauses[-1] == pytest.approx(0.5)
    assert steps == pytest.approx([4.5 / busy_count] * busy_count)


def test_what_is_expected_is_the_longest_regular_wait() -> None:
    assert expected_interval(ADAPTIVE) == 5.0
    assert expected_interval(Pace(2.0)) == 2.0
    assert expected_interval(Pace(0)) == 0.0
    assert expected_interval(OFF) is None
