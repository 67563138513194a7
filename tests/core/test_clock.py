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


def test_now_is_aware_and_utc() -> None:
    now = SystemClock().now()

    assert now.tzinfo is UTC
    assert abs((datetime.now(UTC) - now).total_seconds()) < 60


def test_monotonic_never_goes_back() -> None:
    clock = SystemClock()
    seen = [clock.monotonic() for _ in range(10_000)]

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


async def test_a_time_that_has_passed_is_called_back_at_once() -> None:
    clock = SystemClock()
    called = asyncio.Event()
    clock.call_at(clock.monotonic() - 100, called.set)

    await asyncio.wait_for(called.wait(), 30)


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
