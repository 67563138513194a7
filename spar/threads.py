"""Threads for blocking code, outside of the event loop.

Each owner (an agent's modules, a sensor, a tool) has its own `Threads`, so a blocking part can exhaust only its own. A
thread cannot be killed: when its caller is cancelled, the thread is left behind and counted, and once too many are left
behind no further one is started until one of them ends.

The threads are separate daemons and not those of a pool: the interpreter joins a pool's threads when it exits, and a
hanging one would keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Any, TypeVar

from spar.clock import Clock
from spar.errors import TransientError

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


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, and let every other task of the event loop run once after each `SLICE` of them."""
    for count, item in enumerate(items, 1):
        yield item
        if count % SLICE == 0:
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
            try:
                loop.call_soon_threadsafe(_answer, answer, product, error)
            except RuntimeError:
                pass  # the loop is closed: no caller waits any more

        threading.Thread(target=work, name=self._name, daemon=True).start()
        try:
            return await answer
        except BaseException:
            with self._lock:
                if not is_over:
                    is_left = True
                    self.left_behind += 1
            raise


def _answer(future: asyncio.Future[Any], product: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(product)
    else:
        future.set_exception(error)


def _raisable(error: BaseException) -> BaseException:
    """Return an error that a coroutine may raise: `StopIteration` or `GeneratorExit` would end the waiting
    coroutine."""
    if not isinstance(error, (StopIteration, GeneratorExit)):
        return error
    replacement = RuntimeError(f"the function raised {type(error).__name__}")
    replacement.__cause__ = error
    return replacement
