"""Work that threads ask for: done once for all who ask meanwhile, and not again before its time."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from spar.client.async_client import Paced
from spar.testing import VirtualClock


async def test_those_who_ask_together_get_it_once_and_nobody_is_forgotten() -> None:
    done, has_run = list[str](), asyncio.Event()
    asked = ""

    def work() -> None:
        done.append(asked)
        has_run.set()

    paced = Paced(work, 0.01)
    for asked in ("first", "second", "third"):  # noqa: B007 - the work reads it
        paced.ask()
    await has_run.wait()
    assert done == ["third"]
    for asked in ("fourth", "fifth"):  # noqa: B007
        has_run.clear()
        await asyncio.to_thread(paced.ask)
        await has_run.wait()
    assert done == ["third", "fourth", "fifth"]


async def test_it_is_not_done_again_before_its_time(clock: VirtualClock) -> None:
    loop, done = asyncio.get_running_loop(), list[float]()
    paced, began = Paced(lambda: done.append(loop.time() - began), 0.05, 0.01), loop.time()
    for _ in range(30):
        paced.ask()
        await clock.sleep(0.01)
    assert len(done) == 6
    assert done[0] == pytest.approx(0.01)
    assert all(later - before == pytest.approx(0.05) for before, later in pairwise(done))
