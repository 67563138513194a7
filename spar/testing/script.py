"""Scripts: their items, their execution, and hanging modules.

A script is an iterable of items, one for each call. For every scripted module an item may be

    a number            wait so many seconds, then take the next item
    an exception        raised (an instance, a class, or `Fail(exception)`)
    Hang(…)             the module hangs; once released it returns nothing
    a function          called with the module's arguments, awaited if needed; its value counts
    anything else       the value, in the shorthand of the module; an unknown value is returned unchanged

After the end of the script, `then` is used each time; without `then`, the last item that is not a delay. Time is the
running loop's, so it is virtual under a `VirtualClock`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import anyio

#: Real seconds after which a blocking hang ends by itself, because a thread cannot be killed.
LONGEST_BLOCK = 30.0
LAST: Any = object()
NOTHING: Any = object()


class Fail:
    """Script item that raises the same exception object each time."""

    def __init__(self, error: BaseException | type[BaseException]) -> None:
        self.error = error


class Hang:
    """Script item that does not return; `await hang.wait()` and `hang.block()` do the same in other code.

    Args:
        seconds: until it ends by itself (None: not before `release`).
        ignore_cancel: swallow cancellation. Release it, or the loop cannot be closed.
        blocking: block the event loop's thread, in real time, for at most `LONGEST_BLOCK` seconds.

    As a context manager it is released at the end of the block. `cancelled` counts the cancellations that it received,
    `waiting` the calls that hang in it now.
    """

    def __init__(self, seconds: float | None = None, *, ignore_cancel: bool = False, blocking: bool = False) -> None:
        self.seconds, self.ignore_cancel, self.blocking = seconds, ignore_cancel, blocking
        self.cancelled = self.waiting = 0
        self._released = threading.Event()
        self._sleepers: set[asyncio.Future[None]] = set()

    def release(self) -> None:
        """Release all calls that hang in it, now and later. It may be called from any thread; idempotent."""
        self._released.set()
        for sleeper in tuple(self._sleepers):
            loop = sleeper.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_finish, sleeper)

    async def wait(self) -> None:
        """Hang in the event loop."""
        if self.blocking:
            self.block()
            return
        loop = asyncio.get_running_loop()
        ends_at = None if self.seconds is None else loop.time() + self.seconds
        self.waiting += 1
        try:
            while not self._released.is_set():
                left = None if ends_at is None else ends_at - loop.time()
                if left is not None and left <= 0:
                    return
                sleeper = loop.create_future()
                self._sleepers.add(sleeper)
                try:
                    if self._released.is_set():  # another thread released it before it could see this sleeper
                        return
                    await asyncio.wait([sleeper], timeout=left)
                except asyncio.CancelledError:
                    self.cancelled += 1
                    if not self.ignore_cancel:
                        raise
                finally:
                    self._sleepers.discard(sleeper)
                    sleeper.cancel()
        finally:
            self.waiting -= 1

    def block(self) -> None:
        """Hang in the calling thread, for plain (blocking) functions; `seconds` are real here."""
        ends_at = time.monotonic() + min(LONGEST_BLOCK, LONGEST_BLOCK if self.seconds is None else self.seconds)
        self.waiting += 1
        try:
            while not self._released.is_set() and (left := ends_at - time.monotonic()) > 0:
                time.sleep(min(0.005, left))
        finally:
            self.waiting -= 1

    def __enter__(self) -> Hang:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


class Script:
    """Script that is executed item by item, for all scripted modules. Infinite iterables are fine."""

    def __init__(self, items: Iterable[Any], then: Any = LAST) -> None:
        if isinstance(items, (str, bytes, Mapping)):
            raise TypeError(f"a script must be a list of items, found {items!r:.60}")
        self._items: Iterator[Any] = iter(items)
        self._then = then
        self._last: Any = NOTHING
        self.is_over = False

    async def play(self, *args: Any) -> Any:
        """Return the value of the next item; `NOTHING` for none."""
        while not self.is_over:
            item = next(self._items, NOTHING)
            if item is NOTHING:
                self.is_over = True
            elif is_delay(item):
                await anyio.sleep(item)
            else:
                self._last = item
                return await perform(item, args)
        item = self._last if self._then is LAST else self._then
        if is_delay(item):
            await anyio.sleep(item)
            return NOTHING
        return await perform(item, args)


def is_delay(item: Any) -> bool:
    return isinstance(item, (int, float)) and not isinstance(item, bool)


async def perform(item: Any, args: tuple[Any, ...]) -> Any:
    if isinstance(item, Fail):
        item = item.error
    if isinstance(item, BaseException) or (isinstance(item, type) and issubclass(item, BaseException)):
        raise item.with_traceback(None) if isinstance(item, BaseException) else item
    if isinstance(item, Hang):
        await item.wait()
        return NOTHING
    if callable(item) and item is not NOTHING:
        value = item(*args)
        return await value if inspect.isawaitable(value) else value
    return item


def _finish(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class stream:  # a lower-case class, because it is used like a function: `[stream([Call("a"), 0.5, Call("b")])]`
    """Script item of a planner or model that is returned piece by piece; delays, failures and hangs may stand
    between."""

    def __init__(self, pieces: Iterable[Any]) -> None:
        self.pieces = pieces if isinstance(pieces, Iterator) else list(pieces)

    async def play(self) -> AsyncIterator[Any]:
        for piece in self.pieces:
            if is_delay(piece):
                await anyio.sleep(piece)
                continue
            value = await perform(piece, ())
            if value is not NOTHING:
                yield value
