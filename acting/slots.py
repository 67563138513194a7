"""How many at once: a count with a queue, where what waits is a callback rather than a task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any


class Slots:
    """At most `limit` holders (0: any number); whoever must wait is called back in turn when a slot is his.

    A callback returns False when it no longer wants the slot; the next in the queue then gets it.
    """

    __slots__ = ("_queue", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._queue: deque[tuple[Callable[[Any], bool], Any]] = deque()

    def take(self, callback: Callable[[Any], bool], about: Any = None) -> bool:
        """True: the slot is taken. False: `callback(about)` will be called once, holding it."""
        if self.limit and self.used >= self.limit:
            self._queue.append((callback, about))
            return False
        self.used += 1
        return True

    def release(self) -> None:
        """Give a slot back, to whoever waits longest."""
        while self._queue:
            callback, about = self._queue.popleft()
            if callback(about):
                return
        self.used -= 1
