"""Opens what a user gave and closes it again, each in a task of its own.

A context manager may hold cancel scopes and task groups, which belong to the task that entered them; `start()`
and `stop()` come from any task. So whoever is a context manager is entered and left by one task that waits in
between. What is not one costs nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any


class Opening:
    """One part that may be an async context manager."""

    __slots__ = ("_close", "_opened", "_task", "name", "part")

    def __init__(self, part: Any, name: str) -> None:
        self.part, self.name = part, name
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None
        self._close: asyncio.Future[None] | None = None

    @property
    def is_needed(self) -> bool:
        return hasattr(self.part, "__aenter__") and hasattr(self.part, "__aexit__")

    @property
    def is_open(self) -> bool:
        return self._task is not None

    async def open(self) -> None:
        """Enter the part. Raises what it raises; cancelling leaves it closed. Idempotent."""
        if self._task is not None or not self.is_needed:
            return
        loop = asyncio.get_running_loop()
        self._opened, self._close = loop.create_future(), loop.create_future()
        self._task = loop.create_task(self._hold(self._opened, self._close), name=f"opening of {self.name}")
        try:
            await asyncio.shield(self._opened)
        except BaseException:
            await self.close(1.0)
            raise

    async def close(self, timeout: float = 10.0) -> BaseException | None:
        """Leave the part; what it raised, or that it took longer than `timeout` seconds. Idempotent, never raises."""
        task, self._task = self._task, None
        if task is None:
            return None
        assert self._close is not None
        if not self._close.done():
            self._close.set_result(None)
        if self._opened is not None and not self._opened.done():
            task.cancel()
        done, _ = await asyncio.wait([task], timeout=timeout)
        if not done:
            task.cancel()
            await asyncio.wait([task], timeout=0.5)
            return TimeoutError(f"{self.name} did not close within {timeout:g} s")
        return None if task.cancelled() else task.exception()

    async def _hold(self, opened: asyncio.Future[None], close: asyncio.Future[None]) -> None:
        try:
            manager = self.part
            entered = await manager.__aenter__()
            del entered
        except BaseException as error:
            if not opened.done():
                opened.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
                opened.exception()  # retrieved here in case nobody waits any more
            return
        if not opened.done():
            opened.set_result(None)
        try:
            await close
        finally:
            await manager.__aexit__(None, None, None)
