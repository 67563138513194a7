"""Statistics: the numbers against those computed by hand, and that reading disturbs nothing."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import pytest

from spar import Agent
from spar.observe.stats import BOUNDS, FOLD_AT, RECENT, Series, Stats
from spar.testing import RecordingStore, ScriptedActor, ScriptedPlanner, ScriptedReflector, ScriptedSense, VirtualClock
from spar.types import OUTCOMES, Action, Call, Outcome, Perception

# -- a series -----------------------------------------------------------------------------------------------


def series(*values: float) -> Series:
    made = Series()
    for value in values:
        made.add(value)
    return made


@pytest.mark.parametrize(
    ("values", "quantiles"),
    [([], [0.0] * 5), ([0.25], [0.25] * 5), (range(100, 0, -1), [1.0, 51.0, 91.0, 100.0, 100.0])],
    ids=["none", "one", "a hundred"],
)
def test_quantiles_of_few_and_many_values(values: Sequence[float], quantiles: list[float]) -> None:
    made = series(*map(float, values))
    assert [made.quantile(share) for share in (0.0, 0.5, 0.9, 0.99, 1.0)] == quantiles
    assert (made.count, made.total) == (len(values), sum(values))
    assert values or made.mean == 0.0


def test_the_share_of_values_below_a_quantile_is_what_was_asked() -> None:
    values = [(number * 7919) % 1000 / 1000 for number in range(1000)]
    made = series(*values)
    for share in (0.1, 0.5, 0.9, 0.99):
        below = bisect_left(sorted(values), made.quantile(share))
        assert below == share * 1000


def test_quantiles_are_of_the_most_recent_values_and_the_mean_of_all() -> None:
    made = series(*[100.0] * RECENT, *[1.0] * RECENT)
    assert made.quantile(0.99) == 1.0
    assert made.mean == 50.5
    assert made.count == 2 * RECENT


def test_each_value_is_in_the_bucket_of_the_first_bound_that_is_not_below_it() -> None:
    values = [0.0, BOUNDS[0], BOUNDS[0] * 1.01, 0.1, 0.15, BOUNDS[-1], BOUNDS[-1] * 2, 1e9]
    made = series(*values)
    made.fold()
    expected = [0] * (len(BOUNDS) + 1)
    for value in values:
        expected[bisect_left(BOUNDS, value)] += 1
    assert made.buckets == expected
    assert sum(expected) == len(values)


def test_the_bounds_go_from_a_tenth_of_a_millisecond_to_seven_minutes_by_doubling() -> None:
    assert BOUNDS[0] == pytest.approx(0.1 / 1024)
    assert BOUNDS[-1] == pytest.approx(409.6)
    assert all(upper == 2 * lower for lower, upper in pairwise(BOUNDS))


def test_folding_in_parts_gives_what_folding_once_gives() -> None:
    values = [number / 97 for number in range(500)]
    at_once, in_parts = series(*values), Series()
    for index, value in enumerate(values):
        in_parts.add(value)
        if index % 7 == 0:
            in_parts.fold()
    for made in (at_once, in_parts):
        made.fold()
    assert in_parts.buckets == at_once.buckets
    assert in_parts.total == pytest.approx(at_once.total)
    assert (in_parts.count, in_parts.recent) == (at_once.count, at_once.recent)


@pytest.fixture
def fast_switching() -> Iterator[None]:
    """Threads that change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_folding_from_many_threads_loses_nothing_and_counts_nothing_twice(fast_switching: None) -> None:
    made, number = Series(), 100_000
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            made.fold()
            assert made.quantile(0.5) in (0.0, 1.0)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(number):
        made.add(1.0)
    is_over.set()
    for reader in readers:
        reader.join(30)
    made.fold()
    assert (made.count, made.total, sum(made.buckets or ())) == (number, float(number), number)


# -- the account of an agent --------------------------------------------------------------------------------


def account(*cycles: tuple[Outcome, float]) -> Stats:
    made = Stats()
    for outcome, duration in cycles:
        made.cycle(outcome, duration)
    return made


def test_a_snapshot_before_the_first_cycle_divides_by_nothing() -> None:
    snapshot = Stats().snapshot()
    assert (snapshot.total_cycles, snapshot.failed_cycles, snapshot.error_rate) == (0, 0, 0.0)
    assert snapshot.outcomes == dict.fromkeys(OUTCOMES, 0)
    assert (snapshot.cycle_mean_seconds, snapshot.cycle_p99_seconds, snapshot.last_cycle_seconds) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("after", "expected"),
    [("failed", 4), ("interrupted", 3), ("acted", 0), ("idle", 3), ("skipped", 3), ("degraded", 0)],
)
def test_failures_in_a_row_end_with_a_cycle_that_did_something(after: Outcome, expected: int) -> None:
    assert account(*[("failed", 1.0)] * 3, (after, 1.0)).consecutive_failures == expected  # type: ignore[arg-type]


def test_what_gathers_is_folded_before_it_grows() -> None:
    made = account(*[("idle", 0.001)] * (FOLD_AT * 3 + 1))  # type: ignore[arg-type]
    assert len(made.cycles.pending) == 1
    assert made.snapshot().total_cycles == FOLD_AT * 3 + 1


def test_a_snapshot_does_not_change_with_the_account() -> None:
    made = account(("acted", 1.0))
    before = made.snapshot()
    made.cycle("failed", 3.0)
    made.errors_by_phase["act"] += 1
    assert (before.total_cycles, before.outcomes["failed"], before.errors_by_phase["act"]) == (1, 0, 0)


def test_a_snapshot_can_be_written_as_json() -> None:
    written = json.loads(msgspec.json.encode(account(("acted", 1.0)).snapshot()))
    assert written["total_cycles"] == 1
    assert set(written) >= {
        "total_cycles", "failed_cycles", "error_rate", "phase_mean_seconds", "cycle_mean_seconds", "cycle_p99_seconds",
        "last_cycle_seconds", "consecutive_failures", "errors_by_phase", "outcomes",
    }  # fmt: skip


@pytest.mark.parametrize(
    "state", [{}, {"outcomes": None}, {"outcomes": {"unheard": 3, "acted": "many"}}, {"errors_by_phase": {}}]
)
def test_restore_ignores_what_is_not_known(state: dict[str, object]) -> None:
    made = Stats()
    made.restore(state)
    assert made.snapshot() == Stats().snapshot()


async def test_an_agents_statistics_are_those_of_its_cycles(clock: VirtualClock) -> None:
    async def slow_act(action: Action) -> str:
        await clock.sleep(2.0)
        return "ok"

    agent = Agent(
        sense=ScriptedSense(["a", None, "b", RuntimeError("no"), "c"]),
        plan=ScriptedPlanner([[Call("x")], PermissionError("no"), None]),
        act=ScriptedActor([slow_act]),
        reflect=ScriptedReflector(),
        loop_interval=1.0,
        clock=clock,
    )
    async with agent:
        await clock.sleep(6.5)
        stats = agent.stats
    assert stats.outcomes == {**dict.fromkeys(OUTCOMES, 0), "acted": 1, "idle": 2, "failed": 2}
    assert stats.errors_by_phase == {"sense": 1, "plan": 1, "act": 0, "reflect": 0}
    assert (stats.total_cycles, stats.failed_cycles, stats.error_rate) == (5, 2, 0.4)
    assert stats.phase_mean_seconds["act"] == pytest.approx(2.0)
    assert stats.cycle_mean_seconds == pytest.approx(0.4)
    assert stats.cycle_p99_seconds == pytest.approx(2.0)
    assert stats.last_cycle_seconds == pytest.approx(0.0)
    assert stats.consecutive_failures == 0


async def test_statistics_survive_a_restart_and_the_next_process(clock: VirtualClock) -> None:
    store = RecordingStore()
    agent = Agent(sense=ScriptedSense(), loop_interval=1.0, memory=store, clock=clock)
    for _ in range(2):
        async with agent:
            await clock.sleep(2.5)
    assert agent.stats.total_cycles == 6
    other = Agent(sense=ScriptedSense(), loop_interval=1.0, memory=store, clock=clock)
    async with other:
        await clock.sleep(0.5)
        assert other.stats.total_cycles == 7


async def test_statistics_can_be_read_from_another_thread_while_the_loop_turns() -> None:
    async def sense() -> list[Perception]:
        return []

    agent = Agent(sense=sense, loop_interval=0)

    def read() -> list[int]:
        return [agent.stats.total_cycles for _ in range(200)]

    async with agent:
        seen = await asyncio.to_thread(read)
    assert seen == sorted(seen)
    assert agent.stats.total_cycles == sum(agent.stats.outcomes.values()) >= seen[-1] > 0


def test_count_and_sum_count_each_value_once() -> None:
    made = series(0.5)
    assert made.sums == (1, 0.5)
    made.add(1.5)
    assert made.sums == made.sums == (2, 2.0)
    made.add(4.0)
    assert made.mean == 2.0
    assert (made.count, made.total, made.sums) == (3, 6.0, (3, 6.0))
