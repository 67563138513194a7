"""Cancels a piece of work at every turn of the event loop at which it could be cancelled, one after the other.

A case sets something up, has its work cut (`await cut(work)`), and says what must be true then: that it can be used
again, or at least closed. `sweep` plays the case again and again, the cancellation a turn later each time, until the
work ends before it comes. Time is virtual and threads are waited for (`loop`), so that a turn is the same each time.
A turn of the loop rather than a suspension of the coroutine: much is done in tasks of its own that the coroutine only
waits for, and those move on from turn to turn.

After each play nothing may be left over: no task, no thread, no open file, no exception that nobody has seen.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from spar.testing import VirtualClock
from tests.simulation.loop import SeededLoop, SteadyWriter, running

#: Virtual seconds within which work that was cancelled has to end, and a case as a whole.
WITHIN = 120.0
MOST_TURNS = 5_000

Case = Callable[["Cut"], Awaitable[None]]


class Cut:
    """The knife of one play: `was_used` once it has cancelled something; `clock` and `loop` are the play's."""

    def __init__(self, loop: SeededLoop, clock: VirtualClock, turn: int) -> None:
        self.loop, self.clock, self._turn = loop, clock, turn
        self.was_used = False

    def watch(self, memory: Any) -> None:
        """Let the loop wait for this memory's writer."""
        self.loop.writers.append(SteadyWriter(memory))

    async def __call__(self, work: Coroutine[Any, Any, Any]) -> str:
        """Do the work and cancel it in its turn; whether it `ended`, `raised` or was `cancelled`."""
        task = self.loop.create_task(work, name="the work")

        def strike() -> None:
            if not task.done():
                self.was_used = True
                task.cancel()

        self.loop.at_turn(self.loop.turns + 1 + self._turn, strike)
        await asyncio.wait([task], timeout=WITHIN)
        assert task.done(), f"the work does not end within {WITHIN:g} s of being cancelled"
        if task.cancelled():
            return "cancelled"
        return "raised" if task.exception() is not None else "ended"


def sweep(case: Case, seed: int | None = None, stride: int = 1) -> int:
    """Play a case with a cut at every turn (or every so manieth); the turn that the work no longer had.

    Raises: AssertionError naming the turn.
    """
    gc.collect()
    gc.freeze()  # what was there before is not looked through after each play
    for turn in range(0, MOST_TURNS, stride):
        if not _played(case, turn, seed):
            return turn
    raise AssertionError(f"the work has more than {MOST_TURNS} turns")


def _played(case: Case, turn: int, seed: int | None) -> bool:
    """Whether the work was still under way in this turn."""
    files, threads = _files(), set(threading.enumerate())
    unseen: list[str] = []
    loop = SeededLoop(seed)
    with running(loop):
        loop.set_exception_handler(
            lambda _, context: unseen.append(f"{context['message']} {context.get('exception')!r}")
        )

        async def play() -> bool:
            cut = Cut(loop, VirtualClock(patience=0.0), turn)
            try:
                await asyncio.wait_for(_awaited(case(cut)), 10 * WITHIN)
            except Exception as error:
                raise AssertionError(f"cancelled in turn {turn}: {type(error).__name__}: {error}") from error
            this = asyncio.current_task()
            left = [task for task in asyncio.all_tasks() if task is not this]
            if left:
                await asyncio.wait(left, timeout=WITHIN)
                left = [f"{task.get_name()} {task.get_coro()!r}" for task in left if not task.done()]
            assert not left, f"cancelled in turn {turn}: left over are {left}"
            return cut.was_used

        was_used = loop.run_until_complete(play())
    assert not unseen, f"cancelled in turn {turn}: {unseen}"
    rest = [thread.name for thread in threading.enumerate() if thread not in threads]
    assert not rest, f"cancelled in turn {turn}: threads are left over: {rest}"
    open_files = _files() - files
    assert not open_files, f"cancelled in turn {turn}: files are left open: {sorted(open_files)}"
    return was_used


async def _awaited(work: Awaitable[None]) -> None:
    await work


def _files() -> set[str]:
    found, all_open = set(), Path("/proc/self/fd")
    for each in all_open.iterdir() if all_open.is_dir() else ():
        try:
            found.add(f"{each.name} {each.readlink()}")
        except OSError:  # the one that was open for this list
            continue
    return found
