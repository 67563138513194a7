"""The time that a stop may take, and what becomes of a step of it that is not done by then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.loop.tasks import Requests


class StopDeadline:
    """Deadline of a stop that is under way (`at`, monotonic seconds); another stop may bring it forward."""

    __slots__ = ("_core", "_requests", "_setup", "at")

    def __init__(self, core: Core, setup: Setup, requests: Requests) -> None:
        self._core, self._setup, self._requests = core, setup, requests
        self.at = float("inf")

    async def in_time(self, work: Coroutine[Any, Any, object], what: str, within: float = float("inf")) -> None:
        """Do one step of a stop, which has its own bounds, no longer than the stop itself may take.

        What is not done by then is cancelled, and left behind when it ignores that; either is said.
        Args: within: seconds that it may take in any case.
        """
        task = self._requests.in_background(work, f"{what} of")
        late = await self.wait_for([task], within)
        if late:
            self._core.log.warning("not done in time for the stop", agent=self._core.name, part=what,
                        is_left_behind=not task.done())  # fmt: skip

    async def wait_for(self, tasks: Iterable[asyncio.Task[Any]], within: float) -> set[asyncio.Task[Any]]:
        """Wait for tasks as long as a stop allows it, at most `within` seconds; what is late is cancelled.

        A step has a grace from the deadline of the stop on, or from its own beginning where that is later: one half of
        it to be done, the other half to see to its cancellation.
        Returns: the tasks that were cancelled; those of them that are not done are left behind.
        """
        clock, pending = self._core.clock, [task for task in tasks if not task.done()]
        began = clock.monotonic()
        await self._wait(pending, lambda: min(began + within, max(self.at, began) + self.grace / 2))
        late = {task for task in pending if not task.done()}
        for task in late:
            task.cancel()
        if late:
            end = clock.monotonic() + self.grace / 2
            await self._wait(list(late), lambda: end)
        return late

    async def _wait(self, tasks: Sequence[asyncio.Task[Any]], until: Callable[[], float]) -> None:
        """Wait until tasks are done, at most until a time (monotonic seconds) that may be brought forward meanwhile."""
        requests = self._requests
        for task in tasks:
            task.add_done_callback(lambda _: requests.notify())
        while any(not task.done() for task in tasks):
            left = until() - self._core.clock.monotonic()
            if left <= 0:
                break
            await requests.change(left)

    @property
    def grace(self) -> float:
        """Seconds from the deadline of a stop until what is not done is left behind."""
        return max(step.grace for step in self._setup.steps.values())
