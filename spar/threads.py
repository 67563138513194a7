"""Threads for blocking code, outside of the event loop; and calls of parts that anybody may have written.

Each owner (an agent's modules, a sensor, a tool) has its own `Threads`, so a blocking part can exhaust only its own. A
thread cannot be killed: when its caller is cancelled, the thread is left behind and counted, and once too many are left
behind no further one is started until one of them ends.

The threads are separate daemons and not those of a pool: the interpreter joins a pool's threads when it exits, and a
hanging one would keep the process alive.

Each call of a part has a deadline, and one that ignores its cancellation is left behind. `Users` counts the users of a
part that several may enter at once: the first opens it, the last closes it.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Generator, Sequence
from typing import Any, TypeVar

from spar.clock import Clock
from spar.errors import PhaseTimeoutError, SparError, TransientError

R = TypeVar("R")
T = TypeVar("T")


#: Seconds after which a thread that waits for the interpreter requests it, in a process of our own.
TURN = 0.0005


def take_short_turns() -> None:
    """Let the threads of this process pass on the interpreter every half millisecond.

    A thread that releases the interpreter for a moment every few milliseconds, as each search of re2 does, otherwise
    keeps it from the event loop for as long as it works, 0.6 s for a thousand payloads: the waiting thread wakes up too
    late each time, and requests the interpreter only after a whole interval (5 ms by default) in which it was never
    free. For processes that run only spar.
    """
    sys.setswitchinterval(TURN)


class OthersTurn:
    """Awaitable that lets every other task of the event loop run once: `asyncio.sleep(0)` without its frames."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


OTHERS_TURN = OthersTurn()
#: Items that are worked on in a row: some tens of microseconds each.
SLICE = 64


async def slices_of(items: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """Yield the items in slices of `SLICE`, and let every other task of the event loop run once after each slice."""
    for start in range(0, len(items), SLICE):
        yield items[start : start + SLICE]
        await OTHERS_TURN


class Threads:
    """Runner of blocking functions in daemon threads, at most `limit` at once, which counts those left behind."""

    __slots__ = ("_clock", "_free", "_lock", "_name", "left_behind", "limit")

    def __init__(self, name: str, clock: Clock, *, limit: int = 4) -> None:
        self._name, self._clock, self.limit = name, clock, limit
        self._free: asyncio.Semaphore | None = None
        self._lock = threading.Lock()
        self.left_behind = 0

    async def run(self, function: Callable[..., R], *args: Any) -> R:
        """Return what the function returns, or raise what it raises; a cancellation leaves its thread behind at once.

        A call that is cancelled while it waits for a thread never begins. Raises: TransientError when `limit` earlier
        calls were left behind and still run.
        """
        if self.left_behind >= self.limit:
            raise TransientError(f"{self._name}: {self.left_behind} earlier calls still block their threads")
        if self._free is None:
            self._free = asyncio.Semaphore(self.limit)
        with self._clock.working():
            async with self._free:
                return await self._in_thread(function, args)

    async def _in_thread(self, function: Callable[..., R], args: tuple[Any, ...]) -> R:
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        answer: asyncio.Future[R] = loop.create_future()
        is_over = is_left = False

        def work() -> None:
            nonlocal is_over
            product: Any = None
            error: BaseException | None = None
            try:
                product = context.run(function, *args)
            except BaseException as caught:
                error = _raisable(caught)
            with self._lock:
                is_over = True
                if is_left:
                    self.left_behind -= 1
                    return
            in_loop(loop, settle, answer, product, error)  # if it is closed, no caller waits any more

        threading.Thread(target=work, name=self._name, daemon=True).start()
        try:
            return await answer
        except BaseException:
            with self._lock:
                if not is_over:
                    is_left = True
                    self.left_behind += 1
            raise


def in_loop(loop: asyncio.AbstractEventLoop, act: Callable[..., object], *args: Any) -> bool:
    """Have an event loop call a function, from any thread; return False if the loop is closed."""
    try:
        loop.call_soon_threadsafe(act, *args)
    except RuntimeError:
        return False
    return True


def settle(future: asyncio.Future[Any], product: Any = None, error: BaseException | None = None) -> None:
    """End the wait for a future with a result or an error, unless it has ended."""
    if future.done():
        return
    if error is None:
        future.set_result(product)
    else:
        future.set_exception(error)
        future.exception()  # read it here, in case no task waits for it any more


def _raisable(error: BaseException) -> BaseException:
    """Return an error that a coroutine may raise: `StopIteration` or `GeneratorExit` would end the waiting
    coroutine."""
    if not isinstance(error, (StopIteration, GeneratorExit)):
        return error
    replacement = RuntimeError(f"the function raised {type(error).__name__}")
    replacement.__cause__ = error
    return replacement


# -- calls of parts

#: Seconds from the cancellation of a call until it is left behind.
GRACE = 0.5
_NONE: frozenset[asyncio.Future[Any]] = frozenset()


class BoundedCalls:
    """Calls of one part or kind of parts. `left_behind`: tasks that ignored their cancellation and still run."""

    __slots__ = ("left_behind",)

    def __init__(self) -> None:
        self.left_behind = _NONE

    async def make(self, work: Awaitable[R], timeout: float | None, *, grace: float = GRACE) -> R:
        """Return the result of a call within a number of seconds (None: any); a cancellation cancels the call.

        Raises: what the call raises; PhaseTimeoutError when it takes longer, with the `product` that came within the
        grace; SparError when it cancels itself.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task], timeout=timeout)
            is_late = not task.done()
        finally:
            if not task.done():
                task.cancel()
                self.leave(task)
                await asyncio.wait([task], timeout=grace)
        if is_late:
            late = PhaseTimeoutError(f"took longer than {timeout or 0:g} s and was cancelled")
            late.was_left_behind = not task.done()
            if task.done() and not task.cancelled() and task.exception() is None:
                late.product, late.has_product = task.result(), True
            raise late
        if task.cancelled():
            raise SparError("it cancelled itself")
        return task.result()

    def leave(self, task: asyncio.Future[Any]) -> None:
        """Count a task that was cancelled as left behind until it ends; its outcome is ignored."""
        if not task.done():
            self.left_behind |= {task}
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self.left_behind -= {task}
        if not task.cancelled():
            task.exception()  # read it, so that asyncio does not log it


class Tasks(set[asyncio.Task[Any]]):
    """Tasks that run now: each leaves the set when it ends."""

    def start(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """Run work in a task of its own."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.add(task)
        task.add_done_callback(self.discard)
        return task


async def call_off(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


class Users:
    """Counter of the entries of one part: the first entry opens the part, the last exit closes it.

    An entry that fails or is cancelled does not count. Entries of an event loop that is closed do not count any more.
    """

    __slots__ = ("_lock", "_loop", "count")

    def __init__(self) -> None:
        self.count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    async def enter(
        self, open: Callable[[], Awaitable[object]], again: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Count an entry. `open` is called for the first one, `again` for each other one. Raises: their errors."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._lock, self.count = loop, asyncio.Lock(), 0
        async with self._lock:
            if not self.count:
                await open()
            elif again is not None:
                await again()
            self.count += 1

    async def leave(self, close: Callable[[], Awaitable[object]]) -> None:
        """Count an exit; `close` is called for the last one."""
        self.count = max(0, self.count - 1)
        async with self._lock:
            if not self.count:
                await close()


def current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def is_cancelled() -> bool:
    """Return whether the current task is cancelled from outside, as opposed to a CancelledError of what it awaits."""
    task = current_task()
    return task is not None and task.cancelling() > 0
