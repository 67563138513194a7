"""Task of one sensor, which makes its calls one at a time, each for a bounded time; and the calls of its methods.

All calls run in one task, because only the task that entered a task group or cancel scope in a sensor's `open` can
leave it in `close`. A call that ignores its cancellation, or blocks a thread, is left behind: `outcome` is set when it
ends later.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from spar.clock import Clock, ended
from spar.errors import PhaseTimeoutError, TransientError
from spar.protocols import SensorSpec
from spar.threads import Threads, settle

GRACE = 0.2  # seconds between cancelling a call and leaving it behind

Work = Callable[[], Awaitable[Any]]


class SensorTask:
    """Task of one sensor.

    A sensor's own task group cancels this task when its background work fails. If that happens while no call is made,
    the task runs `on_cancelled`, and then calls `broke(error)` with the exception of `on_cancelled`, or None.
    """

    def __init__(self, sensor: str, clock: Clock, on_cancelled: Work,
                 broke: Callable[[BaseException | None], None]) -> None:  # fmt: skip
        self._sensor, self._clock, self._on_cancelled, self._broke = sensor, clock, on_cancelled, broke
        self._works: asyncio.Queue[tuple[Work, asyncio.Future[Any]] | None] = asyncio.Queue()
        self.outcome: asyncio.Future[Any] | None = None
        self._is_over = self._is_cut = False
        self._task = asyncio.get_running_loop().create_task(self._serve(), name=f"sensor {sensor}")

    @property
    def is_busy(self) -> bool:
        return self.outcome is not None and not self.outcome.done()

    @property
    def is_gone(self) -> bool:
        return self._is_over or self._task.done()

    async def make(self, work: Work, what: str, timeout: float, *, can_cancel: bool) -> Any:
        """Do the work and return its result; cancelling this method cancels the work, if that is possible.

        Raises: PhaseTimeoutError after `timeout` seconds; its `product` is the result if it came within the grace
        period.
        """
        outcome = self.outcome = asyncio.get_running_loop().create_future()
        self._works.put_nowait((work, outcome))
        try:
            if await ended(outcome, timeout, self._clock):
                return outcome.result()
        except asyncio.CancelledError:
            if can_cancel:
                self.cut()
            raise
        if can_cancel:
            self.cut()
        was_left_behind = not (can_cancel and await ended(outcome, GRACE, self._clock))
        end = "left behind" if was_left_behind else "cancelled"
        late = PhaseTimeoutError(f"sensor {self._sensor!r}: {what} took longer than {timeout:g} s and was {end}")
        late.was_left_behind = was_left_behind
        if not was_left_behind and outcome.exception() is None:
            late.product = outcome.result()
        raise late

    def cut(self) -> None:
        """Cancel the current call."""
        if self.is_busy:
            self._is_cut = True
            self._task.cancel()

    def end(self) -> None:
        """Let the task end after its current call."""
        self._is_over = True
        self._works.put_nowait(None)

    async def _serve(self) -> None:
        try:
            while (work := await self._works.get()) is not None:
                await self._do(*work)
        except asyncio.CancelledError:
            if self.outcome is not None:
                settle(self.outcome, error=TransientError("it was cancelled before it had begun"))
            if self._is_over:
                return
            self._is_over = True
            failure: BaseException | None = None
            try:
                async with asyncio.timeout(GRACE):
                    await self._on_cancelled()
            except BaseException as error:
                failure = error
            self._broke(failure)
            raise

    async def _do(self, work: Work, outcome: asyncio.Future[Any]) -> None:
        try:
            product = await work()
        except asyncio.CancelledError:
            settle(outcome, error=TransientError("it was cancelled"))
            if self._task.cancelling() and not self._is_cut:
                raise
        except BaseException as error:
            # A group that holds a cancellation is not an Exception, but it must not end the process.
            settle(outcome, error=error if isinstance(error, Exception) else _stand_in(error))
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        else:
            settle(outcome, product)
        if self._is_cut:
            self._is_cut = False
            self._task.uncancel()


def _stand_in(error: BaseException) -> Exception:
    stand_in = TransientError(f"it ended with {error!r:.200}")
    stand_in.__cause__ = error
    return stand_in


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
