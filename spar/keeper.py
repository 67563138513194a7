"""Writes down what a cycle came to, behind its back.

Storing never delays the next cycle: the loop puts experiences and the tape's records into a bounded queue; one task
hands them to the store in order, tries again when the store fails or hangs, and is waited for when the agent stops.
A store whose methods are plain functions is called in a worker thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

from spar.bus import Events
from spar.clock import Clock
from spar.errors import PermanentError, SparError
from spar.events import ErrorOccurred, ExperienceStored
from spar.logs import get_logger
from spar.policies import Backoff
from spar.threads import Threads
from spar.types import CycleRecord, Experience, Fault

log = get_logger("spar.keeper")

QUEUE_LIMIT = 10_000
ATTEMPTS = 5
#: Seconds that a store may take for one item before it counts as failed.
STORE_WITHIN = 60.0


class Keeper:
    """The background writer of one agent. `lost` counts what could not be kept; nothing is lost silently."""

    def __init__(self, store: Any, events: Events, clock: Clock) -> None:
        self._store, self._events, self._clock = store, events, clock
        self._queue: deque[Experience | CycleRecord] = deque()
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff(0.05, 2.0)
        self._record: Callable[[CycleRecord], Any] | None = getattr(store, "record", None)
        self._threads = Threads("store", clock, limit=1)
        self.stored = self.lost = 0

    @property
    def wants_cycles(self) -> bool:
        return self._record is not None

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def keep(self, item: Experience | CycleRecord) -> None:
        """Accept one item at once. When the queue is full the newest is refused, counted and told."""
        if len(self._queue) >= QUEUE_LIMIT:
            self._give_up(item, OverflowError(f"{QUEUE_LIMIT} items already wait for the store"))
            return
        self._queue.append(item)
        self._writer()

    async def flush(self, timeout: float | None = None) -> bool:
        """Return once everything accepted so far is written; False when `timeout` seconds were not enough.

        What is not written by then stays in the queue and is written on. Raises: what the store's `flush` raises.
        """
        try:
            async with asyncio.timeout(timeout):
                if self._queue:
                    await asyncio.wait([self._writer()])
                if not self._queue and (flush := getattr(self._store, "flush", None)) is not None:
                    await self._ask(flush)
        except TimeoutError:
            return False
        return not self._queue

    def _writer(self) -> asyncio.Task[None]:
        """The task that writes, begun anew if it has come to its end or its event loop is gone."""
        if self._task is None or self._task.done() or self._task.get_loop().is_closed():
            self._task = asyncio.get_running_loop().create_task(self._write(), name="keeper")
        return self._task

    async def _write(self) -> None:
        while self._queue:
            item = self._queue[0]
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    await self._hand_over(item)
                except Exception as error:
                    if attempt == ATTEMPTS or isinstance(error, PermanentError):
                        self._give_up(item, error)
                        break
                    await self._clock.sleep(self._backoff.delay(attempt))
                else:
                    self.stored += 1
                    if isinstance(item, Experience) and self._events.wanted[ExperienceStored]:
                        self._events.publish(ExperienceStored(experience=item))
                    break
            self._queue.popleft()

    async def _hand_over(self, item: Experience | CycleRecord) -> None:
        """Give one item to the store. Raises what it raises, or TimeoutError; never CancelledError of its own."""
        try:
            async with asyncio.timeout(STORE_WITHIN):
                if isinstance(item, Experience):
                    await self._ask(self._store.store, item)
                else:
                    assert self._record is not None
                    await self._ask(self._record, item)
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"the store took longer than {STORE_WITHIN:g} s") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise SparError("the store cancelled itself") from error

    async def _ask(self, method: Callable[..., Any], *given: Any) -> None:
        """Call a method of the store where it belongs: awaited if it is async, else in a thread."""
        if inspect.iscoroutinefunction(method):
            await method(*given)
        elif inspect.isawaitable(answer := await self._threads.run(method, *given)):
            await answer

    def _give_up(self, item: Experience | CycleRecord, error: Exception) -> None:
        self.lost += 1
        cycle_id = item.origin if isinstance(item, Experience) else item.cycle_id
        fault = Fault.of(error, part=type(self._store).__qualname__, phase="reflect")
        log.error("not stored", cycle=cycle_id, part=fault.part, reason=fault.message)
        self._events.publish(
            ErrorOccurred(cycle_id=cycle_id, phase="reflect", error=fault, policy="drop", exception=error)
        )
