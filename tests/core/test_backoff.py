"""How long to back off, and when too many restarts are too many."""

from __future__ import annotations

import pytest

from spar.backoff import Backoff, Intensity


def test_backoff_doubles_from_its_base_up_to_its_cap() -> None:
    backoff = Backoff(0.5, 10.0)
    assert [backoff.delay(failures) for failures in range(1, 8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


@pytest.mark.parametrize("failures", [0, -1, -1000])
def test_without_failures_there_is_nothing_to_wait_for(failures: int) -> None:
    assert Backoff().delay(failures) == 0.0


@pytest.mark.parametrize("failures", [61, 1_000, 10**9])
def test_a_night_of_failures_does_not_overflow(failures: int) -> None:
    assert Backoff(0.5, 60.0).delay(failures) == 60.0


def test_a_base_of_zero_turns_backing_off_off() -> None:
    assert Backoff(0.0, 60.0).delay(100) == 0.0


def test_a_cap_below_the_base_wins() -> None:
    assert Backoff(5.0, 1.0).delay(1) == 1.0


def test_restarts_are_forgotten_one_by_one_as_time_passes() -> None:
    intensity = Intensity(2, 10.0)
    assert intensity.allow(0.0)
    assert intensity.allow(5.0)
    assert not intensity.allow(10.0)
    assert intensity.allow(10.5)
    assert not intensity.allow(11.0)
    assert intensity.allow(15.5)
