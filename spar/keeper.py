"""Writes down what a cycle came to, behind its back.

Storing never delays the next cycle: the loop puts experiences and the tape's records into a bounded queue; one task
hands them to the store in order, tries again when the store fails, and is waited for when the agent stops.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

from spar.clock import Clock
from spar.errors import PermanentError
from spar.events import ErrorOccurred, Events, ExperienceStored
from spar.policies import Backoff
from spar.types import CycleRecord, Experience, Fault

QUEUE_LIMIT = 10_000
ATTEMPTS = 5


class Keeper:
    """The background writer of one agent. `lost` counts what could not be kept; nothing is lost silently."""

    def __init__(self, store: Any, events: Events, clock: Clock) -> None:
        self._store, self._events, self._clock = store, events, clock
        self._queue: deque[Experience | CycleRecord] = deque()
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff(0.05, 2.0)
        self._record: Callable[[CycleRecord], Any] | None = getattr(store, "record", None)
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
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write(), name="keeper")

    async def flush(self, timeout: float | None = None) -> bool:
        """Return once everything accepted so far is written; False when `timeout` seconds were not enough."""
        task = self._task
        if task is not None and not task.done():
            await asyncio.wait([task], timeout=timeout)
        if not self._queue and (flush := getattr(self._store, "flush", None)) is not None:
            await _maybe(flush())
        return not self._queue

    async def _write(self) -> None:
        while self._queue:
            item = self._queue[0]
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    await _maybe(self._store.store(item) if isinstance(item, Experience) else self._tape(item))
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

    def _tape(self, record: CycleRecord) -> Any:
        assert self._record is not None
        return self._record(record)

    def _give_up(self, item: Experience | CycleRecord, error: Exception) -> None:
        self.lost += 1
        cycle_id = item.origin if isinstance(item, Experience) else item.cycle_id
        fault = Fault.of(error, part=type(self._store).__qualname__, phase="reflect")
        self._events.publish(
            ErrorOccurred(cycle_id=cycle_id, phase="reflect", error=fault, policy="drop", exception=error)
        )


async def _maybe(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
