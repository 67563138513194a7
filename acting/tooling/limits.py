"""Limits of concurrency and rate: counters with a queue in which callbacks wait, not tasks.

A *permit* has `take(about, go) -> bool` and `release(about)`. `take` returns True when the caller holds the permit now.
It returns False when the caller has to wait: `go(about)` is called once when the permit is free, and then the caller
holds it. It returns False if the caller does not need the permit any more; the next in the queue gets it then. Each
call takes its permits in the same order (the slots of its tool, its resources sorted by name, the rate last), so that
no two calls wait for each other for ever.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct, field

from spar.clock import Clock, Timer
from spar.errors import SparError
from spar.types import Fault

#: Rate: a count in a time ("10/min"), or "" for any number.
RATE = re.compile(r"(?:([1-9]\d{0,5})/(s|min|h|day))?\Z")
_PERIODS = {"s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0}

#: Callback of a hold: lets a held call go on; a second argument is the result of a call that may not run, and ends it.
#: Returns False if the call is over, so that it takes nothing.
Go = Callable[..., bool]


class Hold:
    """A reason not to start a call yet, such as a permit."""

    __slots__ = ()

    def take(self, about: Any, go: Go, /) -> Any:
        """Return True if the call is free, or the result of a call that may not run. False holds the call: then `go` is
        called once, later."""
        raise NotImplementedError

    def release(self, about: Any, /) -> None:
        """Give back what an ended call had taken."""


async def acquire(permit: Hold, about: Any = None) -> Any:
    """Wait for a permit and take it. Return None, or the result of a call that may not run, which takes nothing."""
    turn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def called(_: Any, refusal: Any = None) -> bool:
        if turn.done():
            return False
        turn.set_result(refusal)
        return refusal is None

    if (taken := permit.take(about, called)) is not False:
        return None if taken is True else taken
    try:
        return await turn
    except asyncio.CancelledError:
        if turn.done() and not turn.cancelled() and turn.result() is None:
            permit.release(about)
        raise


class Slots(Struct, Hold, eq=False, weakref=True):
    """A permit with at most `limit` holders (0: any number)."""

    limit: int
    used: int = 0
    _queue: deque[tuple[Any, Go]] = field(default_factory=deque)

    def take(self, about: Any, go: Go, /) -> bool:
        if self.limit and self.used >= self.limit:
            self._queue.append((about, go))
            return False
        self.used += 1
        return True

    def release(self, about: Any = None, /) -> None:
        """Give a slot back; the caller that waits longest gets it."""
        while self._queue:
            about, go = self._queue.popleft()
            if go(about):
                return
        self.used -= 1


class SharedSlots(Slots, kw_only=True, eq=False):
    """A permit with one holder in all processes that run an agent.

    Args: acquire: returns when this process has it: a function that gives it back; a call fails by an error of that.
    """

    limit: int = 1
    acquire: Callable[[], Awaitable[Callable[[], object]]]
    _give_back: Callable[[], object] | None = None
    _asking: asyncio.Task[None] | None = None

    def take(self, about: Any, go: Go, /) -> bool:
        if super().take(about, go):
            self._ask(about, go)
        return False

    def release(self, about: Any = None, /) -> None:
        """Give the slot back; the caller of this process that waits longest asks for it."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()
        if self._queue:
            self._ask(*self._queue.popleft())
        else:
            self.used -= 1

    def _ask(self, about: Any, go: Go) -> None:
        self._asking = asyncio.get_running_loop().create_task(self._answer(about, go))

    async def _answer(self, about: Any, go: Go) -> None:
        refusal: tuple[Any, ...] = ()
        try:
            self._give_back = await self.acquire()
        except SparError as error:
            refusal = (about.failed(Fault.of(error, part=about.call.tool, phase="act")),)
        if not go(about, *refusal):
            self.release()


class Rate(Hold):
    """A permit for at most `count` starts in any `period` seconds (an exact sliding window)."""

    __slots__ = ("_clock", "_queue", "_starts", "_timer", "count", "period")

    def __init__(self, text: str, clock: Clock) -> None:
        match = RATE.match(text)
        assert match is not None  # the catalog has checked it
        self.count, self.period = int(match[1]), _PERIODS[match[2]]
        self._clock = clock
        self._starts: deque[float] = deque(maxlen=self.count)
        self._queue: deque[tuple[Any, Go]] = deque()
        self._timer: Timer | None = None

    def take(self, about: Any, go: Go, /) -> bool:
        if self._queue or self._wait() > 0:
            self._queue.append((about, go))
            self._arm()
            return False
        self._starts.append(self._clock.monotonic())
        return True

    def release(self, about: Any = None, /) -> None:
        """Do nothing: a start counts, however the call ended."""

    def _wait(self) -> float:
        """Return the seconds until one more call may start."""
        if len(self._starts) < self.count:
            return 0.0
        return self._starts[0] + self.period - self._clock.monotonic()

    def _arm(self) -> None:
        if self._timer is None and self._queue:
            self._timer = self._clock.call_at(self._clock.monotonic() + max(0.0, self._wait()), self._due)

    def _due(self) -> None:
        self._timer = None
        while self._queue and self._wait() <= 0:
            about, go = self._queue.popleft()
            if go(about):
                self._starts.append(self._clock.monotonic())
        self._arm()
