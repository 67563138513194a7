"""Blocking code, kept away from the event loop.

Each owner (an agent's modules, a sensor, a tool) has a `Threads` of its own, so a blocking part can exhaust
only its own. A thread cannot be killed: when its caller is cancelled the thread is left behind and
counted, and once too many are left behind no further one is begun until one of them ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import anyio
import anyio.to_thread

from spar.clock import Clock
from spar.errors import TransientError

P = ParamSpec("P")
R = TypeVar("R")


class Threads:
    """Runs blocking functions in daemon threads, at most `limit` at once, counting those left behind."""

    __slots__ = ("_clock", "_limiter", "_name", "left_behind", "limit")

    def __init__(self, name: str, clock: Clock, *, limit: int = 4) -> None:
        self._name, self._clock, self.limit = name, clock, limit
        self._limiter: anyio.CapacityLimiter | None = None
        self.left_behind = 0

    async def run(self, function: Callable[..., R], *args: Any) -> R:
        """What the function returns or raises; cancellation returns at once and leaves its thread behind.

        Raises: TransientError when `limit` earlier calls were left behind and still run.
        """
        if self.left_behind >= self.limit:
            raise TransientError(f"{self._name}: {self.left_behind} earlier calls still block their threads")
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self.limit)
        finished = abandoned = False

        def work() -> R:
            nonlocal finished
            try:
                return function(*args)
            finally:
                finished = True
                if abandoned:
                    self.left_behind -= 1

        with self._clock.working():
            try:
                return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)
            except BaseException:
                if not finished:
                    self.left_behind += 1
                    abandoned = True
                raise
