"""Writer of experiences and cycle records for a memory without a journal, in a background task.

Storing never delays the next cycle: the loop puts the items into a bounded queue. One task gives them to the store in
order, tries again if the store fails or hangs, and is waited for when the agent stops. Store methods that are plain
functions run in a worker thread.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections import deque
from collections.abc import Callable
from typing import Any

from spar.backoff import Backoff
from spar.bus.bus import Events
from spar.clock import Clock, Wake
from spar.errors import PermanentError, SparError
from spar.events import ErrorOccurred, ExperienceStored
from spar.observe.logs import get_logger
from spar.ports.any_part import has
from spar.ports.store import DurableStore
from spar.threads import Threads
from spar.types import CycleRecord, Experience, Fault

log = get_logger("spar.keeper")

QUEUE_LIMIT = 10_000
ATTEMPTS = 5
#: Seconds after which the store counts as failed for one item.
STORE_WITHIN = 60.0


class _Method:
    """Method of the store with its queue of items, each with its number in the order of all; the attempts at the first
    of them, its failures in a row, and the time of its next attempt."""

    __slots__ = ("attempts", "call", "failures", "queue", "rests_until")

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self.call = call
        self.queue = deque[tuple[int, Experience | CycleRecord]]()
        self.attempts = self.failures = 0
        self.rests_until = -math.inf


class BackgroundWriter:
    """Background writer of one agent. `lost` counts the items that could not be stored; each loss is reported.

    A store method that fails is tried again after a back-off, shared by all its items. The items of the other method
    are stored meanwhile.
    """

    def __init__(self, store: DurableStore, events: Events, clock: Clock) -> None:
        self._store, self._events, self._clock = store, events, clock
        self._experiences = _Method(store.store)
        self._cycles = _Method(store.record) if has(store, DurableStore.record) else None
        self._methods = [method for method in (self._experiences, self._cycles) if method is not None]
        self._number = 0
        self._is_flushing = False
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff(0.05, 2.0)
        self._wake = Wake(clock)
        self._threads = Threads("store", clock, limit=1)
        self.stored = self.lost = 0

    @property
    def wants_cycles(self) -> bool:
        """Return whether the store records cycles."""
        return self._cycles is not None

    @property
    def waiting(self) -> int:
        """Return how many items wait."""
        return sum(len(method.queue) for method in self._methods)

    def keep(self, item: Experience | CycleRecord) -> None:
        """Queue one item. If the queue is full, drop the item, count it and report it."""
        method = self._experiences if isinstance(item, Experience) else self._cycles
        assert method is not None
        if self.waiting >= QUEUE_LIMIT:
            self._drop(item, OverflowError(f"{QUEUE_LIMIT} items already wait for the store"))
            return
        self._number += 1
        method.queue.append((self._number, item))
        self._wake.set()
        self._writer()

    async def flush(self, timeout: float | None = None) -> bool:
        """Wait until all accepted items are written; return False if `timeout` seconds were not enough.

        Items of a method that keeps failing get one last attempt and are then dropped. Items that are not written in
        time stay queued. Raises: errors of the store's `flush`.
        """
        self._is_flushing = True
        self._wake.set()
        try:
            async with asyncio.timeout(timeout):
                if self.waiting:
                    await asyncio.wait([self._writer()])
                if not self.waiting and has(self._store, DurableStore.flush):
                    await self._ask(self._store.flush)
        except TimeoutError:
            return False
        finally:
            self._is_flushing = False
        return not self.waiting

    def _writer(self) -> asyncio.Task[None]:
        """Return the writing task; start it if it has ended or its event loop is closed."""
        if self._task is None or self._task.done() or self._task.get_loop().is_closed():
            self._wake = Wake(self._clock)
            self._task = asyncio.get_running_loop().create_task(self._write(), name="background writer")
        return self._task

    async def _write(self) -> None:
        while waiting := [method for method in self._methods if method.queue]:
            now = self._clock.monotonic()
            ready = [
                method for method in waiting
                if method.rests_until <= now or (self._is_flushing and method.failures >= ATTEMPTS)
            ]  # fmt: skip
            if ready:
                await self._try(min(ready, key=lambda method: method.queue[0][0]))
            else:
                await self._wake.sleep(min(method.rests_until for method in waiting) - now)

    async def _try(self, method: _Method) -> None:
        """Try once to store the oldest item of this method."""
        item, queue = method.queue[0][1], method.queue
        try:
            await self._store_item(method.call, item)
        except Exception as error:
            method.attempts += 1
            is_lasting = isinstance(error, PermanentError)
            dropped = int(is_lasting or method.attempts >= ATTEMPTS)
            if not is_lasting:
                if self._is_flushing and method.failures >= ATTEMPTS:
                    dropped = len(queue)  # the last attempt failed: the other items would fail, too
                method.failures += 1
                method.rests_until = self._clock.monotonic() + self._backoff.delay(method.failures)
            for _ in range(dropped):
                method.attempts = 0
                self._drop(queue.popleft()[1], error)
        else:
            queue.popleft()
            method.attempts, method.failures, method.rests_until = 0, 0, -math.inf
            self.stored += 1
            if isinstance(item, Experience) and self._events.wanted[ExperienceStored]:
                self._events.publish(ExperienceStored(experience=item))

    async def _store_item(self, call: Callable[[Any], Any], item: Experience | CycleRecord) -> None:
        """Store one item. Raises: errors of the store, or TimeoutError; a CancelledError of the store becomes a
        SparError."""
        try:
            async with asyncio.timeout(STORE_WITHIN):
                await self._ask(call, item)
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"the store took longer than {STORE_WITHIN:g} s") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise SparError("the store cancelled itself") from error

    async def _ask(self, method: Callable[..., Any], *arguments: Any) -> None:
        """Call a method of the store: awaited if it is async, else in a thread."""
        if inspect.iscoroutinefunction(method):
            await method(*arguments)
        elif inspect.isawaitable(answer := await self._threads.run(method, *arguments)):
            await answer

    def _drop(self, item: Experience | CycleRecord, error: Exception) -> None:
        """Drop an item, and report it."""
        self.lost += 1
        cycle_id = item.origin if isinstance(item, Experience) else item.cycle_id
        fault = Fault.of(error, part=type(self._store).__qualname__, phase="reflect")
        log.error("not stored", cycle=cycle_id, part=fault.part, reason=fault.message)
        self._events.publish(
            ErrorOccurred(cycle_id=cycle_id, phase="reflect", error=fault, policy="drop", exception=error)
        )
