"""Task of one sensor: makes its calls one at a time, each for a bounded time.

All calls run in one task, because only the task that entered a task group or cancel scope in a sensor's `open` can
leave it in `close`. A call that ignores its cancellation, or blocks a thread, is left behind: `outcome` is set when it
ends later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from spar.clock import Clock
from spar.errors import PhaseTimeoutError, TransientError

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
        self._work: Work | None = None
        self.outcome: asyncio.Future[Any] | None = None
        self._is_over = self._is_cut = False
        self._idle: asyncio.Future[None] | None = None
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
        self._work = work
        self._wake()
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
        self._wake()

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._work is not None or not self._is_over:
                work, self._work = self._work, None
                if work is None:
                    self._idle = loop.create_future()
                    await self._idle
                else:
                    await self._do(work)
        except asyncio.CancelledError:
            if self.outcome is not None:
                _settle(self.outcome, error=TransientError("it was cancelled before it had begun"))
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

    async def _do(self, work: Work) -> None:
        outcome, task = self.outcome, asyncio.current_task()
        assert outcome is not None
        assert task is not None
        try:
            product = await work()
        except asyncio.CancelledError:
            _settle(outcome, error=TransientError("it was cancelled"))
            if task.cancelling() and not self._is_cut:
                raise
        except BaseException as error:
            # A group that holds a cancellation is not an Exception, but it must not end the process.
            _settle(outcome, error=error if isinstance(error, Exception) else _stand_in(error))
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        else:
            _settle(outcome, product)
        if self._is_cut:
            self._is_cut = False
            task.uncancel()


async def ended(future: asyncio.Future[Any], timeout: float, clock: Clock) -> bool:
    """Wait until the future is done, at most `timeout` seconds of the clock; it is not cancelled."""
    if future.done():
        return True
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stir(_: object = None) -> None:
        if not waiting.done():
            waiting.set_result(None)

    timer = clock.call_at(clock.monotonic() + timeout, stir)
    future.add_done_callback(stir)
    try:
        await waiting
    finally:
        timer.cancel()
        future.remove_done_callback(stir)
    return future.done()


def _stand_in(error: BaseException) -> Exception:
    stand_in = TransientError(f"it ended with {error!r:.200}")
    stand_in.__cause__ = error
    return stand_in


def _settle(outcome: asyncio.Future[Any], product: Any = None, error: BaseException | None = None) -> None:
    if error is None and not outcome.done():
        outcome.set_result(product)
    elif error is not None and not outcome.done():
        outcome.set_exception(error)
        outcome.exception()  # read it here, in case no task waits for it any more
