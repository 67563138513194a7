"""Calls of parts that anybody may have written: each has a deadline, and one that ignores its cancellation is left
behind. `Users` counts the users of a part that several may enter at once: the first opens it, the last closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from spar.errors import PhaseTimeoutError, SparError

R = TypeVar("R")

#: Seconds from the cancellation of a call until it is left behind.
GRACE = 0.5
_NONE: frozenset[asyncio.Future[Any]] = frozenset()


class BoundedCalls:
    """Calls of one part or kind of parts. `left_behind`: tasks that ignored their cancellation and still run."""

    __slots__ = ("left_behind",)

    def __init__(self) -> None:
        self.left_behind = _NONE

    async def make(self, work: Awaitable[R], timeout: float | None) -> R:
        """Return the result of a call within a number of seconds (None: any); a cancellation cancels the call.

        Raises: what the call raises; PhaseTimeoutError when it takes longer, with the `product` that came within the
        grace; SparError when it cancels itself.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task], timeout=timeout)
            is_late = not task.done()
        finally:
            if not task.done():
                task.cancel()
                self.left_behind |= {task}
                task.add_done_callback(self._ended)
                await asyncio.wait([task], timeout=GRACE)
        if is_late:
            late = PhaseTimeoutError(f"took longer than {timeout or 0:g} s and was cancelled")
            late.was_left_behind = not task.done()
            if task.done() and not task.cancelled() and task.exception() is None:
                late.product, late.has_product = task.result(), True
            raise late
        if task.cancelled():
            raise SparError("it cancelled itself")
        return task.result()

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self.left_behind -= {task}
        if not task.cancelled():
            task.exception()  # read it, so that asyncio does not log it


class Users:
    """Counter of the entries of one part: the first entry opens the part, the last exit closes it.

    An entry that fails or is cancelled does not count. Entries of an event loop that is closed do not count any more.
    """

    __slots__ = ("_lock", "_loop", "count")

    def __init__(self) -> None:
        self.count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    async def enter(
        self, open: Callable[[], Awaitable[object]], again: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Count an entry. `open` is called for the first one, `again` for each other one. Raises: their errors."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._lock, self.count = loop, asyncio.Lock(), 0
        async with self._lock:
            if not self.count:
                await open()
            elif again is not None:
                await again()
            self.count += 1

    async def leave(self, close: Callable[[], Awaitable[object]]) -> None:
        """Count an exit; `close` is called for the last one."""
        self.count = max(0, self.count - 1)
        async with self._lock:
            if not self.count:
                await close()
