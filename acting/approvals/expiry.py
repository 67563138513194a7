"""Timers of approvals, with the task that each starts when it is due; and futures of tasks that wait for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from msgspec import Struct, field

from spar.clock import Clock, Timer


class Expiry(Struct, eq=False):
    """Timers by id: each starts `due(id)` as a task; `clock` returns the clock to use."""

    clock: Callable[[], Clock]
    due: Callable[[str], Coroutine[Any, Any, None]]
    _timers: dict[str, Timer] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def arm(self, id: str, seconds: float) -> None:
        """Start the timer of an id for so many seconds, in place of an earlier one."""
        self.disarm(id)
        clock = self.clock()
        self._timers[id] = clock.call_at(clock.monotonic() + max(0.0, seconds), partial(self.begin, id))

    def disarm(self, id: str) -> None:
        if (timer := self._timers.pop(id, None)) is not None:
            timer.cancel()

    async def close(self) -> None:
        """Cancel all timers and tasks."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, id: str) -> None:
        """Start the task of an id now, in place of its timer."""
        self.disarm(id)
        task = asyncio.get_running_loop().create_task(self.due(id), name="expiry of an approval")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Waiters(Struct, eq=False):
    """Futures of tasks that wait for the answer to a question, by its id; `clock` returns the clock to use."""

    clock: Callable[[], Clock]
    _waiting: dict[str, list[asyncio.Future[None]]] = field(default_factory=dict)

    async def wait(self, id: str, seconds: float) -> None:
        """Wait until `id` has an answer or has expired, at most so many seconds."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(id, []).append(waiter)
        clock = self.clock()
        timer = clock.call_at(clock.monotonic() + seconds, partial(_wake, waiter))
        try:
            await waiter
        finally:
            timer.cancel()
            waiters = self._waiting.get(id, [])
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters:
                self._waiting.pop(id, None)

    def wake(self, id: str) -> None:
        """End the waiting for `id`."""
        for waiter in self._waiting.get(id, ()):
            _wake(waiter)

    def wake_all(self) -> None:
        """End all waiting."""
        for id in self._waiting:
            self.wake(id)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
