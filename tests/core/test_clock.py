"""The real clock: aware wall time, time that never goes back, waiting that lets others run."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest
import uvloop

from spar.backoff import Backoff, Intensity
from spar.clock import Clock, SystemClock
from spar.testing import VirtualClock
from tests.waiting import cancelled


def test_now_is_aware_and_utc_and_monotonic_never_goes_back() -> None:
    clock = SystemClock()
    now, seen = clock.now(), [clock.monotonic() for _ in range(10_000)]

    assert now.tzinfo is UTC
    assert abs((datetime.now(UTC) - now).total_seconds()) < 60
    assert seen == sorted(seen)


async def test_sleeping_takes_the_time_and_lets_others_run() -> None:
    clock = SystemClock()
    others: list[str] = []

    async def other() -> None:
        others.append("had its turn")

    task = asyncio.get_running_loop().create_task(other())
    began = time.monotonic()
    await clock.sleep(0.03)

    assert time.monotonic() - began >= 0.029
    assert others == ["had its turn"]
    await task


@pytest.mark.parametrize("seconds", [0, 0.0, -1.0])
async def test_sleeping_for_nothing_still_lets_others_run(seconds: float) -> None:
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)

    await SystemClock().sleep(seconds)

    assert turns == [1]


async def test_sleeping_can_be_cancelled() -> None:
    task = asyncio.get_running_loop().create_task(SystemClock().sleep(1000))
    await asyncio.sleep(0)
    await cancelled(task)


async def test_a_callback_comes_when_its_time_has_come_and_not_when_it_was_called_off() -> None:
    clock = SystemClock()
    called: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    off: list[int] = []
    when = clock.monotonic() + 0.03
    clock.call_at(when, lambda: called.set_result(clock.monotonic()))
    clock.call_at(when, lambda: off.append(1)).cancel()

    assert await asyncio.wait_for(called, 30) >= when - 0.002
    await clock.sleep(0)
    assert off == []

    passed = asyncio.Event()
    clock.call_at(clock.monotonic() - 100, passed.set)
    await asyncio.wait_for(passed.wait(), 30)


def test_on_a_loop_that_counts_its_own_time_callbacks_are_neither_early_nor_lost() -> None:
    async def main() -> float:
        clock = SystemClock()
        called: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        when = clock.monotonic() + 0.03
        clock.call_at(when, lambda: called.set_result(clock.monotonic()))
        return await asyncio.wait_for(called, 30) - when

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) >= -0.002


async def test_both_clocks_are_clocks_and_say_which_kind(clock: VirtualClock) -> None:
    clocks: list[Clock] = [SystemClock(), clock]

    assert [item.is_virtual for item in clocks] == [False, True]
    for item in clocks:
        with item.working():
            pass


# -- how long to back off, and when too many restarts are too many


@pytest.mark.parametrize(
    ("base", "cap", "delays"),
    [
        (0.5, 10.0, {1: 0.5, 2: 1.0, 3: 2.0, 4: 4.0, 5: 8.0, 6: 10.0, 7: 10.0}),
        (0.5, 60.0, {-1000: 0.0, -1: 0.0, 0: 0.0, 61: 60.0, 1_000: 60.0, 10**9: 60.0}),
        (0.0, 60.0, {100: 0.0}),
        (5.0, 1.0, {1: 1.0}),
    ],
    ids=["it doubles up to its cap", "no night overflows", "a base of zero turns it off", "a cap below the base wins"],
)
def test_backing_off_lasts_as_its_base_and_its_cap_say(base: float, cap: float, delays: dict[int, float]) -> None:
    assert {failures: Backoff(base, cap).delay(failures) for failures in delays} == delays


def test_restarts_are_forgotten_one_by_one_as_time_passes() -> None:
    intensity = Intensity(2, 10.0)
    assert intensity.allow(0.0)
    assert intensity.allow(5.0)
    assert not intensity.allow(10.0)
    assert intensity.allow(10.5)
    assert not intensity.allow(11.0)
    assert intensity.allow(15.5)
