"""Something to sleep on."""

from __future__ import annotations

import asyncio

import pytest

from spar.loop.tasks import Wake
from spar.testing import VirtualClock


async def test_it_sleeps_as_long_as_it_is_told(clock: VirtualClock) -> None:
    assert await Wake(clock).sleep(3.0) is False
    assert clock.elapsed == 3.0


async def test_a_call_wakes_at_once(clock: VirtualClock) -> None:
    wake = Wake(clock)
    sleeping = asyncio.create_task(wake.sleep(100.0))
    await asyncio.sleep(2.0)

    wake.set()

    assert await sleeping is True
    assert clock.elapsed == 2.0


async def test_without_a_time_it_sleeps_until_called(clock: VirtualClock) -> None:
    wake = Wake(clock)
    clock.call_at(clock.monotonic() + 50.0, wake.set)

    assert await wake.sleep(None) is True
    assert clock.elapsed == 50.0


async def test_a_call_that_comes_while_nobody_sleeps_is_remembered_once(clock: VirtualClock) -> None:
    wake = Wake(clock)
    wake.set()
    wake.set()

    assert await wake.sleep(5.0) is True
    assert await wake.sleep(5.0) is False
    assert clock.elapsed == 5.0


async def test_a_remembered_call_can_be_forgotten(clock: VirtualClock) -> None:
    wake = Wake(clock)
    wake.set()
    wake.clear()

    assert await wake.sleep(5.0) is False


async def test_a_cancelled_sleep_leaves_nothing_behind(clock: VirtualClock) -> None:
    wake = Wake(clock)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wake.sleep(100.0), 1.0)

    wake.set()

    assert await wake.sleep(100.0) is True
    assert clock.elapsed == 1.0


async def test_many_calls_at_once_wake_once(clock: VirtualClock) -> None:
    wake = Wake(clock)
    sleeping = asyncio.create_task(wake.sleep(100.0))
    await asyncio.sleep(0)
    for _ in range(5):
        wake.set()

    assert await sleeping is True
    assert await wake.sleep(1.0) is False
