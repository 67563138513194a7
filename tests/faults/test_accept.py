"""Agents are killed at every crash point, at any moment and by their own work, and nothing is lost.

A sample that fits into the gate (about a minute), with the memory in a file and on a server; `make accept` does all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults import report
from tests.faults.lives import Standby, Zygote
from tests.faults.sweep import Outcome, Plan, Sweep, on_server, zygotes
from tests.servers.postgresql import postgres_server, programs

pytestmark = pytest.mark.process

_GATE = Plan(times=1, pairs=4, kills=4, poisons=1, services=1, is_spread=True)
#: Drawn, and with the memory on a server, where another process stands by and takes over.
_ON_SERVER = Plan(times=3, pairs=2, kills=3, poisons=0, services=1, points=6, is_spread=True)


@pytest.fixture(scope="module")
def two() -> Iterator[list[Zygote]]:
    with ExitStack() as stack:
        yield zygotes(stack, 2)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def outcomes(request: pytest.FixtureRequest, two: list[Zygote]) -> list[Outcome]:
    if request.param == "sqlite":
        return Sweep(two, _GATE, seed=1, told=lambda outcome: None)()
    if programs() is None and not os.environ.get("CI"):
        pytest.skip("no server of PostgreSQL is installed: apt install postgresql")
    with postgres_server() as server:
        some = ("rules", "graph")
        return Sweep([Standby(two)], _ON_SERVER, 1, lambda outcome: None, some, on_server(server))()


def test_nothing_is_lost_doubled_or_silent(outcomes: list[Outcome]) -> None:
    assert report.failures(outcomes) == ""


def test_every_fault_came_to_pass(outcomes: list[Outcome]) -> None:
    assert [str(outcome.case) for outcome in outcomes if not outcome.is_tried] == []
    kinds = {"clean", "label", "pair", "kill", "service"}
    assert report.by_kind(outcomes).keys() - {"poison"} == kinds


def test_a_run_is_accepted_only_if_every_case_is(outcomes: list[Outcome]) -> None:
    assert report.is_accepted(outcomes)
    assert not report.is_accepted([])
    assert not report.is_accepted([*outcomes, Outcome(outcomes[0].case, False, outcomes[0].judgement, 0.0)])
