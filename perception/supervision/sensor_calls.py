"""Calls of one sensor's methods, each in a task of the sensor: waited for up to the timeout, then left behind."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from perception.supervision.sensor_task import GRACE, SensorTask, Work, ended
from spar.clock import Clock
from spar.errors import PhaseTimeoutError
from spar.protocols import SensorSpec
from spar.threads import Threads

#: Called with the outcome of a call that ended after it had been left behind.
Late = Callable[[asyncio.Future[Any]], None]


class SensorCalls:
    """Calls of one sensor.

    Args: broke: called when the sensor's own background work cancelled the task in which the sensor is open.
    """

    __slots__ = ("_broke", "_clock", "_left", "_spec", "_task", "_threads")

    def __init__(self, spec: SensorSpec, clock: Clock, broke: Callable[[BaseException | None], None]) -> None:
        self._spec, self._clock, self._broke = spec, clock, broke
        self._threads = Threads(f"sensor {spec.name}", clock, limit=2)  # one may hang while the other closes
        self._task: SensorTask | None = None
        self._left: set[asyncio.Future[Any]] = set()

    @property
    def left_behind(self) -> int:
        """Return the number of calls that were left behind and still run."""
        return len(self._left)

    def takes_context(self, method: str) -> bool:
        """Return whether a method needs an argument, which is the `Context`."""
        try:
            parameters = inspect.signature(getattr(self._spec.sensor, method)).parameters.values()
        except (TypeError, ValueError):
            return False
        return any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)

    async def call(self, method: str, *args: Any, late: Late | None = None) -> Any:
        """Call a method and return its result; None if the sensor has no such method. Raises: as `make`."""
        work, can_cancel = self._work(method, *args)
        return await self.make(work, method, can_cancel=can_cancel, late=late)

    async def make(self, work: Work, what: str, *, can_cancel: bool = True, late: Late | None = None) -> Any:
        """Run some work for the sensor and return its result.

        Args: what: the name of the work in errors; can_cancel: cancelling ends the work; late: called with the outcome
        when work that was left behind ends.

        Raises: PhaseTimeoutError when it took too long; the errors of the work.
        """
        task = self._task
        if task is None or task.is_busy or task.is_gone:
            if task is not None:
                task.end()  # the task ends when its hanging call ends
            task = self._task = SensorTask(self._spec.name, self._clock, self._work("close")[0], self._broke)
        try:
            return await task.make(work, what, self._spec.timeout, can_cancel=can_cancel)
        except PhaseTimeoutError as error:
            if outcome := task.outcome if error.was_left_behind else None:
                self._left.add(outcome)
                outcome.add_done_callback(self._left.discard)
                if late is not None:
                    outcome.add_done_callback(late)
            raise

    def _work(self, method: str, *args: Any) -> tuple[Work, bool]:
        """Return the call of a method (an empty one if there is none), and whether cancelling can end it."""
        function = getattr(self._spec.sensor, method, None)
        is_async = function is None or inspect.iscoroutinefunction(function)

        async def work() -> Any:
            if function is None:
                return None
            product = function(*args) if is_async else await self._threads.run(function, *args)
            return await product if inspect.isawaitable(product) else product

        return work, is_async

    async def settle(self) -> None:
        """Wait a moment for the current call."""
        if self._task is not None and self._task.outcome is not None:
            await ended(self._task.outcome, GRACE, self._clock)

    def end(self) -> None:
        """End the task in which the sensor was open."""
        if self._task is not None:
            self._task.end()
            self._task = None
