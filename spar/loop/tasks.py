"""Tasks of an agent's own work: the right event loop, the right thread, one exclusive piece of work at a time.

The agent's own work is the work that serves a request to the agent, such as its start, stop, pause, or a single phase.
Such requests come from other threads, from inside the agent's own cycles and event handlers, and several at a time.
This module runs their work in the agent's event loop, and *exclusive* work one piece after another. It does not know
which requests exist, nor which of them are allowed. It also has the waits of coroutines: for a time or until `set` is
called (`Wake`), for the next change of something (`Signal`), and for the steps of a stop (`StopDeadline`).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from spar.bus.bus import HANDLING, Events
from spar.bus.subscriptions import is_cancelled
from spar.clock import Clock
from spar.loop.core import Core
from spar.observe.logs import get_logger


class Wake:
    """Flag with one sleeper. A call of `set` while nobody sleeps is remembered (`is_set`): the next `sleep` returns at
    once."""

    __slots__ = ("_clock", "_future", "is_set")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_set = False
        self._future: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the sleeper. From the event loop's thread only."""
        self.is_set = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def sleep(self, seconds: float | None) -> bool:
        """Sleep for `seconds` (None: until woken), clear the flag, and return True if woken."""
        if not self.is_set:
            self._future = future = asyncio.get_running_loop().create_future()
            timer = None
            if seconds is not None:
                timer = self._clock.call_at(self._clock.monotonic() + seconds, lambda: _finish(future))
            try:
                await future
            finally:
                self._future = None
                if timer is not None:
                    timer.cancel()
        was_set, self.is_set = self.is_set, False
        return was_set


class Signal:
    """Signal for any number of coroutines. Setting it wakes those that wait at that moment."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    def set(self) -> None:
        """Wake all that wait. From the event loop's thread only."""
        for waiter in self._waiters:  # they remove themselves later, in their own tasks
            _finish(waiter)

    async def wait(self, clock: Clock | None = None, timeout: float | None = None) -> None:
        """Return when the signal is set, or after `timeout` seconds by the clock (None or infinite: no time limit)."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = None
        if clock is not None and timeout is not None and timeout < float("inf"):
            timer = clock.call_at(clock.monotonic() + timeout, lambda: _finish(waiter))
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            del self._waiters[waiter]
            if timer is not None:
                timer.cancel()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


log = get_logger("spar.agent")
R = TypeVar("R")

#: The agents (as their `Requests`) whose cycles and hooks the current task is part of. Work that waits for such an
#: agent would wait for itself, so there it becomes a background task.
_INSIDE: contextvars.ContextVar[tuple[Requests, ...]] = contextvars.ContextVar("inside", default=())


class CalledOff(Exception):
    """Error of a waiting caller: another task cancelled the work that it awaits."""


class Requests:
    """Event loop of one agent, the tasks of its own work there, and the coroutines that wait for a change of the agent.

    A change is any change of the agent's state after which a waiting coroutine checks its condition again.
    """

    __slots__ = ("_changed", "_clock", "_events", "_name", "_tasks", "_thread_id", "exclusive", "loop")

    def __init__(self, name: str, clock: Clock, events: Events) -> None:
        self._name, self._clock, self._events = name, clock, events
        self.loop: asyncio.AbstractEventLoop | None = None
        #: The task of the exclusive work (see `exclusively`); None while there is none.
        self.exclusive: asyncio.Task[Any] | None = None
        self._thread_id = 0
        #: The background tasks, each with whether a caller awaits its outcome.
        self._tasks: dict[asyncio.Task[Any], bool] = {}
        self._changed = Signal()

    # -- event loop and thread

    def bind(self, *, is_at_rest: bool) -> bool:
        """Bind the agent to the running event loop; return whether this is another loop than before.

        Args: is_at_rest: no work runs in the old loop.
        Raises: RuntimeError when the old loop still runs in another thread, with work in it.
        """
        loop, old = asyncio.get_running_loop(), self.loop
        if old is loop:
            return False
        if old is not None and old.is_running() and not is_at_rest:
            raise RuntimeError(
                f"agent {self._name!r} belongs to another event loop, which still runs: call it from there"
            )
        self.loop, self._thread_id = loop, threading.get_ident()
        self.exclusive, self._changed = None, Signal()
        return True

    @property
    def is_foreign_thread(self) -> bool:
        return self.loop is not None and threading.get_ident() != self._thread_id

    def in_loop(self, function: Callable[[], object]) -> bool:
        """Call `function` in the event loop's thread, at once if this is that thread; return False when the loop is
        closed."""
        if not self.is_foreign_thread:
            function()
            return True
        assert self.loop is not None
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False
        return True

    # -- inside a cycle or handler

    @property
    def is_inside(self) -> bool:
        """Return whether the current task belongs to a cycle, hook or event handler of the agent, so that waiting would
        deadlock."""
        # `HANDLING` holds the event buses whose handlers the current task is part of.
        return self in _INSIDE.get() or self._events in HANDLING.get()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Mark all that is called or started inside this `with` as the agent's own work, which cannot wait for the
        agent."""
        token = _INSIDE.set((*_INSIDE.get(), self))
        try:
            yield
        finally:
            _INSIDE.reset(token)

    @property
    def own_context(self) -> contextvars.Context:
        """Return a context in which a task is the agent's own work."""
        context = contextvars.copy_context()
        context.run(_INSIDE.set, (*_INSIDE.get(), self))
        return context

    async def unless_inside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Await work that may have to wait for the current cycle; inside that cycle, start it in the background
        instead."""
        if self.is_inside:
            self.in_background(work, name)
        else:
            await work

    # -- tasks

    def in_background(self, work: Coroutine[Any, Any, R], name: str) -> asyncio.Task[R]:
        """Run work in a background task, which may wait for the agent; log its failure.

        A failure is logged at level `debug` instead of `warning` when a caller awaits the work (`exclusively`) and gets
        the error too.
        """
        context = contextvars.copy_context()
        context.run(_INSIDE.set, ())
        context.run(HANDLING.set, ())
        task = asyncio.get_running_loop().create_task(work, name=f"{name} {self._name}", context=context)
        self._tasks[task] = False
        task.add_done_callback(self._done)
        return task

    def in_progress(self, name: str) -> list[asyncio.Task[Any]]:
        """Return the tasks of background work whose name begins so."""
        return [task for task in self._tasks if task.get_name().startswith(name)]

    def _done(self, task: asyncio.Task[Any]) -> None:
        is_awaited = self._tasks.pop(task)
        if not self._tasks:
            self._tasks = {}  # an emptied dict keeps its memory
        if not task.cancelled() and (error := task.exception()) is not None:
            # A caller that awaits the task gets the error too; other errors are visible only here.
            write = log.debug if isinstance(error, CalledOff) or is_awaited else log.warning
            write("background work failed", agent=self._name, work=task.get_name(), reason=repr(error))

    async def exclusively(self, work: Callable[[], Coroutine[Any, Any, R]], name: str) -> R:
        """Run work that must not overlap with other exclusive work (a start, a step, a resume), in a task of its own.

        Cancelling the caller cancels the work and waits until the work has cleaned up.
        Raises: what the work raises; CalledOff when another task cancelled the work.
        """

        async def alone() -> R:
            while self.exclusive is not None:
                await self.change()
            self.exclusive = asyncio.current_task()
            try:
                return await work()
            finally:
                self.exclusive = None
                self.notify()

        task = self.in_background(alone(), name)
        self._tasks[task] = True
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done() and not is_cancelled():
                raise CalledOff(name) from None
            task.cancel()
            from anyio import CancelScope  # few requests are cancelled

            with CancelScope(shield=True):
                await asyncio.wait([task])
            raise

    # -- waiting

    async def change(self, timeout: float | None = None) -> None:
        """Wait until something about the agent changes, at most `timeout` seconds."""
        await self._changed.wait(self._clock, timeout)

    def notify(self) -> None:
        """Wake all coroutines that wait for a change of the agent."""
        self._changed.set()


class StopDeadline:
    """Deadline of the present stop (`at`, monotonic seconds). Another stop may make it earlier.

    Args: grace: returns the seconds from the deadline until unfinished work is left behind.
    """

    __slots__ = ("_core", "_requests", "at", "grace")

    def __init__(self, core: Core, requests: Requests, grace: Callable[[], float]) -> None:
        self._core, self._requests, self.grace = core, requests, grace
        self.at = float("inf")

    async def in_time(self, work: Coroutine[Any, Any, object], what: str, within: float = float("inf")) -> None:
        """Run one step of a stop, no longer than the stop itself may take.

        A late step is cancelled, and left behind if it ignores that; both are logged.
        Args: within: its own limit in seconds.
        """
        task = self._requests.in_background(work, f"{what} of")
        late = await self.wait_for([task], within)
        if late:
            self._core.log.warning("not done in time for the stop", agent=self._core.name, part=what,
                        is_left_behind=not task.done())  # fmt: skip

    async def wait_for(self, tasks: Iterable[asyncio.Task[Any]], within: float) -> set[asyncio.Task[Any]]:
        """Wait for tasks as long as the stop allows, at most `within` seconds, and cancel late ones.

        A task has a grace after the deadline of the stop, or after its own start if that is later: one half to finish,
        the other half to be cancelled.
        Returns: the cancelled tasks; those of them that are not done are left behind.
        """
        clock, pending = self._core.clock, [task for task in tasks if not task.done()]
        began = clock.monotonic()
        await self._wait(pending, lambda: min(began + within, max(self.at, began) + self.grace() / 2))
        late = {task for task in pending if not task.done()}
        for task in late:
            task.cancel()
        if late:
            end = clock.monotonic() + self.grace() / 2
            await self._wait(list(late), lambda: end)
        return late

    async def _wait(self, tasks: Sequence[asyncio.Task[Any]], until: Callable[[], float]) -> None:
        """Wait until tasks are done, at most until a time (monotonic seconds), which may become earlier meanwhile."""
        requests = self._requests
        for task in tasks:
            task.add_done_callback(lambda _: requests.notify())
        while any(not task.done() for task in tasks):
            left = until() - self._core.clock.monotonic()
            if left <= 0:
                break
            await requests.change(left)
