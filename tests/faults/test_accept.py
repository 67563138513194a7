"""Agents are killed at every crash point, at any moment and by their own work, and nothing is lost.

A sample that fits into the gate (about a minute); `make accept` does all of it.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.faults import report
from tests.faults.sweep import Outcome, Plan, Sweep, zygotes

pytestmark = pytest.mark.process

_GATE = Plan(times=1, pairs=4, kills=12, poisons=1, services=2)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    with ExitStack() as stack:
        return Sweep(zygotes(stack, 2), _GATE, seed=1, told=lambda outcome: None)()


def test_nothing_is_lost_doubled_or_silent(outcomes: list[Outcome]) -> None:
    assert report.failures(outcomes) == ""


def test_every_fault_came_to_pass(outcomes: list[Outcome]) -> None:
    assert [str(outcome.case) for outcome in outcomes if not outcome.is_tried] == []
    assert report.by_kind(outcomes).keys() == {"clean", "label", "pair", "kill", "poison", "service"}


def test_a_run_is_accepted_only_if_every_case_is(outcomes: list[Outcome]) -> None:
    assert report.is_accepted(outcomes)
    assert not report.is_accepted([])
    assert not report.is_accepted([*outcomes, Outcome(outcomes[0].case, False, outcomes[0].judgement, 0.0)])
