"""Runs a coroutine under deadlines, and walks on without what will not end.

A phase is awaited inline: a task for each would cost more than the whole cycle. So a phase that hangs hangs
the task it runs in. Cancelling it is the first answer; if it ignores that, the strand *hands over*: the
coroutine of the loop moves to a new task and goes on there with `PhaseTimeoutError`, while the old task keeps
the hung phase (whose cancel scopes and timeouts belong to that task) and drives it to its end, if it has one.

Deadlines cost nothing while they are kept: setting one is an attribute, and a timer is armed only when a phase
really waits and none is armed that fires earlier.

Source of the idea: a coroutine suspended at a `yield` may be resumed by any driver; asyncio's tasks are one.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from spar.clock import Clock, Timer
from spar.errors import PhaseTimeoutError

NEVER = float("inf")
#: What `Strand.begin` returns for a phase that has not come to its end at once.
WAITING: Any = type("Waiting", (), {"__repr__": lambda self: "WAITING"})()


class _HandedOver(BaseException):
    """Thrown into the loop's coroutine at the place where it waits for the hung phase."""


class _Carrier:
    """What a task really runs: a coroutine that may be exchanged for the hung phase inside it."""

    __slots__ = ("coroutine", "error", "is_left")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], error: BaseException | None = None) -> None:
        self.coroutine, self.error, self.is_left = coroutine, error, False

    def __await__(self) -> Generator[Any, None, Any]:
        error = self.error
        while True:
            try:
                waiting = self.coroutine.send(None) if error is None else self.coroutine.throw(error)
            except StopIteration as end:
                return end.value
            except BaseException:
                if self.is_left:
                    return None  # nobody waits for a phase that was left behind
                raise
            try:
                yield waiting
            except BaseException as caught:
                error = caught
            else:
                error = None


class _Phase:
    """A phase that has begun and waits: drives its coroutine from inside the loop's."""

    __slots__ = ("coroutine", "waiting")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waiting: Any) -> None:
        self.coroutine, self.waiting = coroutine, waiting

    def __await__(self) -> Generator[Any, None, Any]:
        waiting, error = self.waiting, None
        while True:
            try:
                yield waiting
            except _HandedOver:
                raise  # not for the phase: it stays where it is
            except BaseException as caught:
                error = caught
            try:
                waiting = self.coroutine.send(None) if error is None else self.coroutine.throw(error)
            except StopIteration as end:
                return end.value
            error = None


class Strand:
    """One coroutine that runs for as long as its owner likes, in one task at a time.

    `left_behind` holds the tasks of phases that ignored their cancellation and still run.
    """

    __slots__ = ("_carrier", "_clock", "_context", "_done", "_grace", "_is_late", "_main", "_phase", "_timer",
                 "_timer_at", "deadline", "left_behind", "name", "task")  # fmt: skip

    def __init__(self, name: str, clock: Clock) -> None:
        self.name, self._clock = name, clock
        self.task: asyncio.Task[Any] | None = None
        self.left_behind: set[asyncio.Task[Any]] = set()
        self.deadline = NEVER
        self._grace = 0.0
        self._is_late = False
        self._phase: _Phase | None = None
        self._timer: Timer | None = None
        self._timer_at = NEVER
        self._main: Coroutine[Any, Any, Any] | None = None
        self._carrier: _Carrier | None = None
        self._context: contextvars.Context | None = None
        self._done: Callable[[BaseException | None], object] = _nothing

    def start(self, main: Coroutine[Any, Any, Any], done: Callable[[BaseException | None], object]) -> None:
        """Run `main` in a task; `done(error)` is called when it has ended, whichever task it ended in."""
        self._main, self._done = main, done
        self._context = contextvars.copy_context()
        self._carry(_Carrier(main))

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody outside has cancelled the task that runs now."""
        return self.task is not None and self.task.cancelling() > 0

    def cancel(self) -> None:
        """Cancel what runs now, as from outside: the phase in hand sees `CancelledError`."""
        if self.task is not None:
            self.task.cancel()

    def abandon(self) -> None:
        """Go on without the phase in hand at once; where there is none, give the whole strand up."""
        if self._phase is not None and self.task is not None:
            self._hand_over(self._phase)
            return
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None and not self.task.done():
            self._keep_left(self.task)
            if self._carrier is not None:
                self._carrier.is_left = True
            self.task = None
            self._done(None)

    def begin(self, phase: Coroutine[Any, Any, Any], deadline: float) -> Any:
        """Let a phase take its first step: its value if that was all of it, else `WAITING`, and `rest` is to be awaited.

        Args: deadline: monotonic seconds. Raises what the phase raised.
        """
        self.deadline = deadline
        try:
            waiting = phase.send(None)
        except StopIteration as end:
            return end.value
        self._phase = _Phase(phase, waiting)
        return WAITING

    async def rest(self, timeout: float, grace: float) -> Any:
        """The value of a phase that has begun and waits; to be awaited inside `main` only.

        Args: timeout: the seconds it was given; grace: seconds from its cancellation until it is left behind.
        Raises: what the phase raised, or PhaseTimeoutError when it was late.
        """
        assert self._phase is not None
        self._grace, self._is_late = grace, False
        if self.deadline < self._timer_at:
            self._arm(self.deadline)
        product: Any = None
        try:
            product = await self._phase
        except asyncio.CancelledError:
            if not self._is_late or not self._uncancelled():
                raise
        except _HandedOver:
            late = PhaseTimeoutError(f"took longer than {timeout:g} s, ignored its cancellation and was left behind")
            late.was_left_behind = True
            raise late from None
        finally:
            self._phase = None
            self.deadline = NEVER
        if self._is_late:
            self._is_late = False
            self._uncancelled()
            late = PhaseTimeoutError(f"took longer than {timeout:g} s and was cancelled")
            late.product = product
            raise late
        return product

    def _uncancelled(self) -> bool:
        """Take our own cancellation back; False if somebody else cancelled too."""
        task = self.task
        assert task is not None
        return (task.uncancel() if task.cancelling() else 0) == 0

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if when < NEVER:
            self._timer, self._timer_at = self._clock.call_at(when, self._tick), when

    def _tick(self) -> None:
        self._timer, self._timer_at = None, NEVER
        if self._phase is None or self.task is None:
            return
        now = self._clock.monotonic()
        if now < self.deadline:
            self._arm(self.deadline)
        elif not self._is_late:
            self._is_late = True
            self.deadline = now + self._grace
            self._arm(self.deadline)
            self.task.cancel()
        else:
            self._hand_over(self._phase)

    def _hand_over(self, phase: _Phase) -> None:
        """Leave the phase to the task it hangs in and go on in a new one."""
        assert self.task is not None
        assert self._carrier is not None
        assert self._main is not None
        self._keep_left(self.task)
        self._carrier.coroutine, self._carrier.is_left = phase.coroutine, True
        self._carry(_Carrier(self._main, _HandedOver()))

    def _keep_left(self, task: asyncio.Task[Any]) -> None:
        self.left_behind.add(task)
        task.add_done_callback(self.left_behind.discard)

    def _carry(self, carrier: _Carrier) -> None:
        self._carrier = carrier
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(self._drive(carrier), name=self.name, context=self._context)

    async def _drive(self, carrier: _Carrier) -> None:
        error: BaseException | None = None
        try:
            await carrier
        except BaseException as caught:
            error = caught
            if isinstance(caught, (KeyboardInterrupt, SystemExit)):
                raise
        finally:
            if not carrier.is_left:
                if self._timer is not None:
                    self._timer.cancel()
                self.task = None
                self._done(error)


def _nothing(error: BaseException | None) -> None:
    return None
