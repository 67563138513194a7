"""Result of a flush, for which any number of tasks can wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Flush:
    """Result of a flush. The writer sets it by the methods of a future, which wakes all waiting tasks.

    A task that is cancelled does not cancel the flush.

    Args: report_error: called with the error of the flush if no task waits any more.
    """

    __slots__ = ("_error", "_is_over", "_report_error", "_waiters")

    def __init__(self, report_error: Callable[[BaseException], object]) -> None:
        self._waiters: list[asyncio.Future[None]] = []
        self._error: BaseException | None = None
        self._is_over, self._report_error = False, report_error

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
            self._report_error(error)

    def end(self) -> asyncio.Future[None]:
        """Return a new future that is done when the flush is over; awaiting it raises the error of the flush."""
        waiter = asyncio.get_running_loop().create_future()
        if not self._is_over:
            self._waiters.append(waiter)
        elif self._error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(self._error)
        return waiter
