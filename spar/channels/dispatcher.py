"""Dispatcher of one channel or notifier: it sends what waits, one item after another, and again after a failure.

Anybody may have written the channel or the notifier: it may fail, hang or ignore its cancellation, and none of that
may reach another one, a session or the loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine
from typing import Any, Generic, TypeVar

from spar.errors import TransientError
from spar.loop.core import Core
from spar.loop.wake import Wake

R = TypeVar("R")
T = TypeVar("T")

#: Seconds between the cancellation of a call and leaving it behind.
GRACE = 0.5


class Dispatcher(ABC, Generic[T]):
    """Dispatcher, whose queue is the subclass's own.

    Args: part: the channel or notifier in errors, such as `channel 'mail'`.

    Attributes: left_behind: number of calls that ignore their cancellation and still run; close_within: seconds for the
    item that is being sent at the end; if it is cut off, the next start sends it again.
    """

    close_within = 0.0

    def __init__(self, part: str, core: Core) -> None:
        self._core, self._clock, self._part = core, core.clock, part
        self.left_behind = 0
        self._news, self._rests = Wake(core.clock), asyncio.Event()
        self._rests.set()  # it is set while nothing is being sent
        self._is_closing = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def every(self) -> float:
        """Return the least seconds between two items."""
        return 0.0

    def start(self) -> None:
        """Begin to send; call in the event loop."""
        self._spawn(self._send_all(), "send")

    async def close(self) -> None:
        """End all tasks, sending last; unsent items wait for the next start."""
        self._is_closing = True
        try:
            for task in self._tasks[1:]:
                task.cancel()
            await asyncio.wait([asyncio.ensure_future(self._rests.wait())], timeout=self.close_within)
        finally:
            self._rests.set()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._tasks = []

    def wake(self) -> None:
        """Look for items to send."""
        self._news.set()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=f"{self._part}: {name}"))

    # -- the queue

    @abstractmethod
    def _next(self) -> tuple[T | None, float | None]:
        """Return the item to send now, or None and the most seconds until there may be one (None: none waits)."""

    @abstractmethod
    async def _send(self, item: T) -> None:
        """Send an item. Raises: any error, also for a part of it that was not sent."""

    @abstractmethod
    async def _sent(self, item: T) -> None:
        """Forget an item that was sent."""

    @abstractmethod
    def _failed(self, item: T, error: Exception) -> float:
        """Put off an item, or give it up; return the seconds until anything may be sent again."""

    # -- sending

    async def _send_all(self) -> None:
        while not self._is_closing:
            item, wait = self._next()
            if item is None:
                await self._news.sleep(wait)
                continue
            self._rests.clear()
            try:
                await self._send(item)
            except Exception as error:
                pause = self._failed(item, error)
            else:
                await self._sent(item)
                pause = 0.0
            finally:
                self._rests.set()
            await self._clock.sleep(max(pause, self.every))

    async def _call(self, work: Awaitable[R], timeout: float | None) -> R:
        """Run a call of the part with a timeout; a call that ignores its cancellation is left behind.

        Raises: the errors of the part; TransientError when it takes too long or cancels itself.
        """
        task = asyncio.ensure_future(work)
        is_late = False
        try:
            await asyncio.wait([task], timeout=timeout)
            is_late = not task.done()
        finally:
            if not task.done():
                await self._cut(task)
        if not task.done() or (is_late and task.cancelled()):
            raise TransientError(f"{self._part} took longer than {timeout or 0:g} s")
        if task.cancelled():
            raise TransientError(f"{self._part} has cancelled itself")
        return task.result()  # also when the call ended during its cancellation

    async def _cut(self, task: asyncio.Future[Any]) -> None:
        task.cancel()
        await asyncio.wait([task], timeout=GRACE)
        if not task.done():
            self.left_behind += 1
            task.add_done_callback(self._came_back)

    def _came_back(self, task: asyncio.Future[Any]) -> None:
        self.left_behind -= 1
        if not task.cancelled():
            task.exception()  # read it, so that asyncio does not log it
