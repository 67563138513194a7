"""A flush that any number of tasks wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Flush:
    """Flush that the writer answers like a future, and which wakes all who wait for it at once.

    A task that goes away leaves it as it is.

    Args: unheard: hears of its error when nobody waits any more.
    """

    __slots__ = ("_error", "_is_over", "_unheard", "_waiters")

    def __init__(self, unheard: Callable[[BaseException], object]) -> None:
        self._waiters: list[asyncio.Future[None]] = []
        self._error: BaseException | None = None
        self._is_over, self._unheard = False, unheard

    def done(self) -> bool:
        return self._is_over

    def set_result(self, result: object, /) -> None:
        self._is_over = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def set_exception(self, error: BaseException, /) -> None:
        self._is_over, self._error = True, error
        waiting = [waiter for waiter in self._waiters if not waiter.done()]
        for waiter in waiting:
            waiter.set_exception(error)
        if not waiting:
            self._unheard(error)

    def over(self) -> asyncio.Future[None]:
        """Return a future of the caller's own that is done when it is over. It raises the error of the flush."""
        waiter = asyncio.get_running_loop().create_future()
        if not self._is_over:
            self._waiters.append(waiter)
        elif self._error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(self._error)
        return waiter
