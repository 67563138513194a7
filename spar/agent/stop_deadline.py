"""Time limit of a stop, and the treatment of its steps that exceed it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.loop.tasks import Requests


class StopDeadline:
    """Deadline of the present stop (`at`, monotonic seconds). Another stop may make it earlier."""

    __slots__ = ("_core", "_requests", "_setup", "at")

    def __init__(self, core: Core, setup: Setup, requests: Requests) -> None:
        self._core, self._setup, self._requests = core, setup, requests
        self.at = float("inf")

    async def in_time(self, work: Coroutine[Any, Any, object], what: str, within: float = float("inf")) -> None:
        """Run one step of a stop, no longer than the stop itself may take.

        A late step is cancelled, and left behind if it ignores that; both are logged.
        Args: within: its own limit in seconds.
        """
        task = self._requests.in_background(work, f"{what} of")
        late = await self.wait_for([task], within)
        if late:
            self._core.log.warning("not done in time for the stop", agent=self._core.name, part=what,
                        is_left_behind=not task.done())  # fmt: skip

    async def wait_for(self, tasks: Iterable[asyncio.Task[Any]], within: float) -> set[asyncio.Task[Any]]:
        """Wait for tasks as long as the stop allows, at most `within` seconds, and cancel late ones.

        A task has a grace after the deadline of the stop, or after its own start if that is later: one half to finish,
        the other half to be cancelled.
        Returns: the cancelled tasks; those of them that are not done are left behind.
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
        """Wait until tasks are done, at most until a time (monotonic seconds), which may become earlier meanwhile."""
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
        """Return the seconds from the deadline of a stop until unfinished work is left behind."""
        return max(step.grace for step in self._setup.steps.values())
