"""Opening and closing of a user's object, in a task of its own.

A context manager may hold cancel scopes and task groups, which belong to the task that entered them, while `start()`
and `stop()` come from any task. Therefore one task enters the context manager, waits, and leaves it. An object that is
no context manager needs no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

#: Seconds for a part to close after its opening was cancelled, and further seconds after it was cancelled itself.
LET_GO, GRACE = 1.0, 0.5


class Opening:
    """One part that may be an async context manager.

    Args: lost: called with this opening and the error when the part ends by itself, for example after its background
    task failed.
    """

    __slots__ = ("_close", "_lost", "_opened", "_task", "name", "part")

    def __init__(self, part: Any, name: str, lost: Callable[[Opening, BaseException], object] | None = None) -> None:
        self.part, self.name, self._lost = part, name, lost
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None
        self._close: asyncio.Future[None] | None = None

    @property
    def is_needed(self) -> bool:
        """Return whether the part is a context manager."""
        return isinstance(self.part, AbstractAsyncContextManager)

    @property
    def is_open(self) -> bool:
        """Return whether the part is held open; False once it failed or its event loop is closed."""
        return self._task is not None and not self._task.done() and not self._task.get_loop().is_closed()

    async def open(self) -> None:
        """Enter the part. Raises: its errors; a cancelled call leaves it closed. Idempotent."""
        if self.is_open or not self.is_needed:
            return
        loop = asyncio.get_running_loop()
        self._opened, self._close = loop.create_future(), loop.create_future()
        self._task = loop.create_task(self._hold(self._opened, self._close), name=f"opening of {self.name}")
        try:
            await asyncio.shield(self._opened)
        except BaseException:
            await self.close(LET_GO)
            raise

    async def close(self, timeout: float = 10.0) -> BaseException | None:
        """Leave the part; return its error, or a TimeoutError after `timeout` seconds, or None. Idempotent, never
        raises."""
        task = self.leave()
        if task is None:
            return None
        if not task.done():
            await asyncio.wait([task], timeout=timeout)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=GRACE)
            return self.late(task, timeout)
        return outcome_of(task)

    def leave(self) -> asyncio.Task[None] | None:
        """Ask the part to close, without waiting. Returns: the task that holds it; None when it is not open."""
        task, is_open = self._task, self.is_open
        self._task = None
        if task is None or not (is_open or task.done()):
            return None
        assert self._close is not None
        assert self._opened is not None
        if is_open and not self._close.done():
            self._close.set_result(None)
        if not self._opened.done():
            task.cancel()
        return task

    def late(self, task: asyncio.Task[None], seconds: float) -> BaseException:
        """Return the error of a part that did not close in so many seconds. An error that it raises later is
        retrieved."""
        task.add_done_callback(_retrieve)
        return TimeoutError(f"{self.name} did not close within {seconds:.3g} s")

    async def _hold(self, opened: asyncio.Future[None], close: asyncio.Future[None]) -> None:
        """Hold the part open until it is asked to close. An error after the opening is reported by `lost`."""
        try:
            async with self.part:
                if not opened.done():
                    opened.set_result(None)
                await close
        except BaseException as error:
            if not opened.done():
                opened.set_exception(_for_the_opener(error))
                opened.exception()  # retrieved here in case no caller waits any more
            elif self._is_lost(close) and self._lost is not None and isinstance(error, Exception):
                self._lost(self, error)
            else:
                raise
        else:
            if self._is_lost(close) and self._lost is not None:
                self._lost(self, RuntimeError("it ended without having been asked to"))

    @staticmethod
    def _is_lost(close: asyncio.Future[None]) -> bool:
        """Return whether it ended without being asked to close. A part that cancels its own task cancels this wait,
        too."""
        return close.cancelled() or not close.done()


def outcome_of(task: asyncio.Task[None]) -> BaseException | None:
    """Return the error of closing a part; None if it closed well or was cancelled."""
    return None if task.cancelled() else task.exception()


def _for_the_opener(error: BaseException) -> BaseException:
    """Return an error for the caller: a part that cancels itself did not open, and the caller was not cancelled."""
    return RuntimeError("it was cancelled while it opened") if isinstance(error, asyncio.CancelledError) else error


def _retrieve(task: asyncio.Task[None]) -> None:
    """Retrieve an error that no caller waits for; that the part did not close in time was reported already."""
    if not task.cancelled():
        task.exception()
