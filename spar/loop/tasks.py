"""The tasks of an agent's own work: in which event loop and thread, in which task, and one after the other.

What is asked of an agent comes from anywhere: from other threads, from inside its own cycles and handlers, several at
a time. Here that is brought in order. What is asked, and whether it may be, is no matter of this file.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import anyio

from spar.bus.bus import HANDLING, Events
from spar.bus.subscriptions import is_cancelled
from spar.clock import Clock
from spar.loop.wake import Signal
from spar.observe.logs import get_logger

log = get_logger("spar.agent")
R = TypeVar("R")

#: In the middle of whose cycles and hooks the current task is: there, what may have to wait for them is a request.
_INSIDE: contextvars.ContextVar[tuple[Requests, ...]] = contextvars.ContextVar("inside", default=())


class CalledOff(Exception):
    """Raised where work was cancelled by another task than the one that awaits it."""


class Requests:
    """The event loop of one agent, the tasks that do its own work there, and the waiters for a change of the agent."""

    __slots__ = ("_changed", "_clock", "_events", "_name", "_tasks", "_thread_id", "exclusive", "loop")

    def __init__(self, name: str, clock: Clock, events: Events) -> None:
        self._name, self._clock, self._events = name, clock, events
        self.loop: asyncio.AbstractEventLoop | None = None
        #: The task of what must not overlap with its like, while there is one.
        self.exclusive: asyncio.Task[Any] | None = None
        self._thread_id = 0
        #: Whether somebody waits for the outcome of each.
        self._tasks: dict[asyncio.Task[Any], bool] = {}
        self._changed = Signal()

    # -- in which event loop and thread

    def bind(self, *, is_at_rest: bool) -> bool:
        """Belong to the event loop that runs now; return whether it is another one than before.

        Args: is_at_rest: nothing goes on in the old one.
        Raises: RuntimeError when the old one still runs, in another thread, and something goes on in it.
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

    def in_loop(self, act: Callable[[], object]) -> bool:
        """Do something in the event loop's thread, at once if this is it; False when that loop is closed."""
        if not self.is_foreign_thread:
            act()
            return True
        assert self.loop is not None
        try:
            self.loop.call_soon_threadsafe(act)
        except RuntimeError:
            return False
        return True

    # -- in the middle of what

    @property
    def is_inside(self) -> bool:
        """Return whether the current task is one of the agent's own, which cannot wait for the agent."""
        return self in _INSIDE.get() or self._events in HANDLING.get()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Count what is called or begun in this `with` as the agent's own work, which cannot wait for the agent."""
        token = _INSIDE.set((*_INSIDE.get(), self))
        try:
            yield
        finally:
            _INSIDE.reset(token)

    async def unless_inside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Await work that may have to wait for the cycle in hand; inside a cycle it goes on in the background."""
        if self.is_inside:
            self.in_background(work, name)
        else:
            await work

    # -- in which task

    def in_background(self, work: Coroutine[Any, Any, R], name: str) -> asyncio.Task[R]:
        """Do work in a background task, which may wait for the agent; a failure of it is logged.

        What a caller asked for, and is told by what it awaits, is logged at `debug` (`exclusively`).
        """
        context = contextvars.copy_context()
        context.run(_INSIDE.set, ())
        context.run(HANDLING.set, ())
        task = asyncio.get_running_loop().create_task(work, name=f"{name} {self._name}", context=context)
        self._tasks[task] = False
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        is_awaited = self._tasks.pop(task)
        if not self._tasks:
            self._tasks = {}  # one that was emptied keeps its memory
        if not task.cancelled() and (error := task.exception()) is not None:
            # What somebody awaits is told to them as well; of the rest nobody hears but here.
            write = log.debug if isinstance(error, CalledOff) or is_awaited else log.warning
            write("background work failed", agent=self._name, work=task.get_name(), reason=repr(error))

    async def exclusively(self, work: Callable[[], Coroutine[Any, Any, R]], name: str) -> R:
        """Do what must not overlap with its like (a start, a step, a resume), in a task of its own.

        Cancelling the caller cancels the work and waits until it has cleaned up behind itself.
        Raises: what the work raises; CalledOff when somebody else cancelled it.
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
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
            raise

    # -- waiting

    async def change(self, timeout: float | None = None) -> None:
        """Wait until something about the agent changes, at most `timeout` seconds."""
        await self._changed.wait(self._clock, timeout)

    def notify(self) -> None:
        """Wake all that wait for a change of the agent."""
        self._changed.set()
