"""Runner of a coroutine under deadlines, which continues without a phase that does not end.

A phase is awaited inline, because a task for each phase would cost more than the whole cycle. So a phase that hangs
blocks the task in which it runs. The runner first cancels that task. If the phase ignores this, the runner *hands
over*: the coroutine of the loop moves to a new task and continues there with `PhaseTimeoutError`. The old task keeps
the hung phase, whose cancel scopes and timeouts belong to that task, and drives it until it ends.

The deadline of a phase that ends in time costs only the assignment of an attribute. A timer is armed only when a phase
really waits and no earlier timer is armed.

The hand-over works because any code may resume a coroutine that is suspended at a `yield`, not only the task that began
it. The coroutine of the loop is called `main` below. A *carrier* is the part of a task that resumes a coroutine.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from spar.clock import Clock, Timer
from spar.errors import ENDS_PROCESS, PhaseTimeoutError, is_closing

NEVER = float("inf")
#: Shared by all sessions, since an empty set takes 216 bytes.
_NONE: frozenset[Any] = frozenset()


class _HandedOver(BaseException):
    """Exception that is thrown into the loop's coroutine at the place where it waits for the hung phase.

    It tells the loop that the coroutine now runs in a new task, without the phase.
    """


class _Carrier:
    """Awaitable in a task that resumes `coroutine` until it ends: `main`, and after a hand-over the hung phase instead.

    Attributes: error: exception to throw into the coroutine at its first step; has_begun: whether the task has made its
        first step; is_left: whether the runner has left this task behind.
    """

    __slots__ = ("coroutine", "error", "has_begun", "is_left", "runner")

    def __init__(
        self, runner: PhaseRunner, coroutine: Coroutine[Any, Any, Any], error: BaseException | None = None
    ) -> None:
        self.runner, self.coroutine, self.error = runner, coroutine, error
        self.has_begun = self.is_left = False

    def on_task_end(self, task: asyncio.Task[Any]) -> None:
        """Tell the runner that the task of this carrier has ended."""
        self.runner.on_task_end(self, task)

    def __await__(self) -> Generator[Any, None, Any]:
        error, self.has_begun = self.error, True
        while True:
            try:
                waiting = self.coroutine.send(None) if error is None else self.coroutine.throw(error)
            except StopIteration as end:
                return end.value
            try:
                yield waiting
            except BaseException as caught:
                error = caught
            else:
                error = None


class _Phase:
    """Phase that has begun and waits for the future `waiting`. Awaiting this object resumes the phase until it ends."""

    __slots__ = ("coroutine", "waiting")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waiting: Any) -> None:
        self.coroutine, self.waiting = coroutine, waiting

    def __await__(self) -> Generator[Any, None, Any]:
        waiting, error = self.waiting, None
        while True:
            try:
                yield waiting
            except _HandedOver:
                raise  # this is for the loop; the phase stays suspended
            except BaseException as caught:
                error = caught
            try:
                waiting = self.coroutine.send(None) if error is None else self.coroutine.throw(error)
            except StopIteration as end:
                return end.value
            error = None


class _Task(asyncio.Task[Any]):
    """Task that knows whether others have cancelled it: another task, or `asyncio.run` once its loop has stopped.

    A cancellation that comes from the task itself, or from no task, was made by the phase or by one of its timers
    (`asyncio.timeout`, `anyio.CancelScope`, older libraries that never call `uncancel`).
    """

    is_cancelled_by_others = False

    def cancel(self, msg: Any | None = None) -> bool:
        loop = self.get_loop()
        caller = asyncio.current_task(loop)
        self.is_cancelled_by_others |= not loop.is_running() or caller not in (None, self)
        return super().cancel(msg)


class PhaseRunner:
    """Runner of one coroutine (`main`), which contains many phases, in one task at a time.

    Attributes: task: the present task of `main`; None when none runs. deadline: when the running phase is cancelled, or
        left behind if it is cancelled already (monotonic seconds). left_behind: the tasks of phases that ignored their
        cancellation and still run.
    """

    __slots__ = ("_carrier", "_clock", "_context", "_done", "_grace", "_held", "_is_cut", "_is_late", "_left", "_main",
                 "_phase", "_timer", "_timer_at", "deadline", "left_behind", "name", "task")  # fmt: skip

    def __init__(self, name: str, clock: Clock) -> None:
        self.name, self._clock = name, clock
        self.task: _Task | None = None
        self.left_behind: frozenset[asyncio.Task[Any]] = _NONE
        self.deadline = NEVER
        self._grace = 0.0
        # The phases whose deadlines wait, one entry for each hold; the seconds that the running one has left then.
        self._held: tuple[_Phase, ...] = ()
        self._left = NEVER
        # Whether this runner has cancelled the phase because it is late; whether `cancel` has cancelled `main`.
        self._is_late = self._is_cut = False
        self._phase: _Phase | None = None
        self._timer: Timer | None = None
        self._timer_at = NEVER
        self._main: Coroutine[Any, Any, Any] | None = None
        self._carrier: _Carrier | None = None
        self._context: contextvars.Context | None = None
        self._done: Callable[[BaseException | None], object] = _ignore

    def start(self, main: Coroutine[Any, Any, Any], done: Callable[[BaseException | None], object],
              context: contextvars.Context | None = None) -> None:  # fmt: skip
        """Run `main` in a task, in a context (None: a copy of the present one); call `done(error)` when it has ended,
        whichever task it ended in.

        An exception that ends the process goes on to the event loop; `done` then gets CancelledError, as after a
        cancellation from outside.
        """
        self._main, self._done, self._is_cut = main, done, False
        self._context = context or contextvars.copy_context()
        self._start_task(_Carrier(self, main))

    @property
    def is_cancelled(self) -> bool:
        """Return whether the running coroutine was cancelled from outside."""
        return self._is_cut or (self.task is not None and self.task.cancelling() > 0)

    def cancel(self) -> None:
        """Cancel the running coroutine.

        A phase that suppresses the cancellation cannot prevent the end of the runner; a phase that ignores it for its
        grace is left behind.
        """
        if self.task is None:
            return
        self._is_cut = True
        self.task.cancel()
        if self._phase is not None:
            self.deadline = min(self.deadline, self._clock.monotonic() + self._grace)
            if self.deadline < self._timer_at:
                self._arm(self.deadline)

    def hold(self) -> Callable[[], None]:
        """Let the deadline of the running phase wait; return a function that lets it go on.

        A cancellation is not held: a cancelled phase has its grace and no more.
        """
        phase = self._phase
        if phase is None or self._is_late or self._is_cut:
            return _do_nothing_more
        if phase not in self._held:
            self._left, self.deadline = self.deadline - self._clock.monotonic(), NEVER
        self._held = (*self._held, phase)

        def go_on() -> None:
            at = self._held.index(phase)
            self._held = (*self._held[:at], *self._held[at + 1 :])
            if self._phase is phase and phase not in self._held and not self._is_cut:
                self.deadline = self._clock.monotonic() + self._left
                if self.deadline < self._timer_at:
                    self._arm(self.deadline)

        return go_on

    def abandon(self) -> None:
        """Leave the running phase behind at once and continue with `main`; if no phase runs, end `main` itself."""
        if self._phase is not None and self.task is not None:
            self._hand_over(self._phase)
            return
        carrier = self._carrier
        if carrier is not None and isinstance(carrier.error, _HandedOver) and not carrier.has_begun:
            return  # handed over just now: the new task continues by itself
        self._disarm()
        if self.task is not None and not self.task.done():
            assert carrier is not None
            assert self._main is not None
            self.leave(self.task)
            # The old task takes no further step when it wakes; `main` ends now, before another runner takes its place.
            carrier.coroutine, carrier.is_left = _do_nothing(), True
            task, self.task = self.task, None
            _close(self._main)
            task.cancel()  # nothing else would wake it
            self._done(None)

    async def finish_phase(self, phase: Coroutine[Any, Any, Any], waiting: Any, begun: float, timeout: float,
                           grace: float) -> Any:  # fmt: skip
        """Return the value of a phase that has begun and waits; to be awaited inside `main` only.

        The caller makes the first step of the phase itself, because most phases end with that step.

        Args: waiting: the future that the phase waits for; begun: when the phase began (monotonic seconds); timeout:
            the seconds that it may take; grace: seconds from its cancellation until it is left behind.
        Raises: what the phase raised; PhaseTimeoutError when it was late, even if it returned or raised something then;
            CancelledError when `cancel` or another task cancelled it, even if the phase suppressed that.
        """
        self._phase, self.deadline = _Phase(phase, waiting), begun + timeout
        self._grace, self._is_late = grace, False
        if self.deadline < self._timer_at:
            self._arm(self.deadline)
        assert (task := self.task) is not None  # noqa: RUF018
        product: Any = None
        cause: BaseException | None = None
        try:
            product = await self._phase
            if not (self._is_late or self._is_cut) and (not task.cancelling() or self._forget_its_own_cancellations()):
                task.is_cancelled_by_others = False
                return product
        except ENDS_PROCESS:
            raise
        except BaseException as error:
            if is_closing(error, self.task):  # somebody closes `main`: it must end
                raise
            if not self._is_late and not self._is_cut and type(error) is not _HandedOver:
                raise
            cause = error
        finally:
            self._phase, self.deadline = None, NEVER
        if self._is_cancelled_by_others():
            raise asyncio.CancelledError
        raise _timeout_error(timeout, product, cause)

    def _is_cancelled_by_others(self) -> bool:
        """Take back the runner's own cancellation and return whether there is another one."""
        assert self.task is not None
        if self._is_late and self.task.cancelling():
            self.task.uncancel()
        self._is_late = False
        return self.is_cancelled

    def _forget_its_own_cancellations(self) -> bool:
        """Forget suppressed cancellations that the phase made itself; return False if it suppressed another's."""
        assert self.task is not None
        if self.task.is_cancelled_by_others:
            return False
        while self.task.cancelling():
            self.task.uncancel()
        return True

    def _arm(self, when: float) -> None:
        self._disarm()
        if when < NEVER:
            self._timer, self._timer_at = self._clock.call_at(when, self._tick), when

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, NEVER

    def _tick(self) -> None:
        """Act on the timer: cancel a phase that is past its deadline, and leave it behind after its grace."""
        self._timer, self._timer_at = None, NEVER
        if self._phase is None or self.task is None:
            return
        now = self._clock.monotonic()
        if now < self.deadline:
            self._arm(self.deadline)
        elif not self._is_late and not self._is_cut:
            self._is_late = True
            self.deadline = now + self._grace
            self._arm(self.deadline)
            self.task.cancel()
        else:
            self._hand_over(self._phase)

    def _hand_over(self, phase: _Phase) -> None:
        """Leave the phase to the task in which it hangs, and continue `main` in a new task."""
        assert self.task is not None
        assert self._carrier is not None
        assert self._main is not None
        self.leave(self.task)
        self._phase, self._is_late = None, False
        self._carrier.coroutine, self._carrier.is_left = phase.coroutine, True
        self._start_task(_Carrier(self, self._main, _HandedOver()))

    def leave(self, task: asyncio.Task[Any]) -> None:
        """Keep a cancelled task in `left_behind` until it ends."""
        self.left_behind |= {task}
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.left_behind -= {task}

    def _start_task(self, carrier: _Carrier) -> None:
        self._carrier = carrier
        loop = asyncio.get_running_loop()
        self.task = _Task(self._drive(carrier), loop=loop, name=self.name, context=self._context)
        self.task.add_done_callback(carrier.on_task_end)

    def on_task_end(self, carrier: _Carrier, task: asyncio.Task[Any]) -> None:
        """Handle the end of a task. A task that was cancelled before its first step is followed by another one."""
        if not carrier.has_begun and not carrier.is_left:
            # A task cancelled before its first step never starts its coroutine: a new task throws the error into it.
            carrier.error, self._is_cut = carrier.error or asyncio.CancelledError(), True
            self._start_task(carrier)
        elif not task.cancelled():
            task.exception()  # retrieved, to avoid asyncio's warning; `_drive` raises only what ends the process

    async def _drive(self, carrier: _Carrier) -> None:
        error: BaseException | None = None
        try:
            await carrier
        except BaseException as caught:
            error = caught  # of a task that was left behind, nobody waits for the error
            if isinstance(caught, (*ENDS_PROCESS, GeneratorExit)):
                error = asyncio.CancelledError()
                raise
        finally:
            if not carrier.is_left:
                if self._timer is not None:
                    self._disarm()
                self.task = None
                self._done(error)


def _timeout_error(timeout: float, product: Any, cause: BaseException | None) -> PhaseTimeoutError:
    was_left = isinstance(cause, _HandedOver)
    consequence = ", ignored its cancellation and was left behind" if was_left else " and was cancelled"
    error = PhaseTimeoutError(f"took longer than {timeout:g} s{consequence}")
    error.product, error.was_left_behind = product, was_left
    error.__cause__ = cause if isinstance(cause, Exception) else None
    return error


async def _do_nothing() -> None:
    return None


def _close(main: Coroutine[Any, Any, Any]) -> None:
    """Close the coroutine, which runs its clean-up."""
    try:
        main.close()
    except (RuntimeError, ValueError):  # it awaits something in its clean-up, or it is running and closes itself
        pass


def _ignore(error: BaseException | None) -> None:
    return None


def _do_nothing_more() -> None:
    return None
