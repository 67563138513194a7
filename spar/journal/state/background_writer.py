"""Writes down what a cycle came to, behind its back.

Storing never delays the next cycle: the loop puts experiences and the tape's records into a bounded queue; one task
hands them to the store in order, tries again when the store fails or hangs, and is waited for when the agent stops.
A store whose methods are plain functions is called in a worker thread.
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
from spar.clock import Clock
from spar.errors import PermanentError, SparError
from spar.events import ErrorOccurred, ExperienceStored
from spar.observe.logs import get_logger
from spar.ports.optional import offers
from spar.ports.store import Flushes, KeepsCycles, KeepsExperiences
from spar.threads import Threads
from spar.types import CycleRecord, Experience, Fault

log = get_logger("spar.keeper")

QUEUE_LIMIT = 10_000
ATTEMPTS = 5
#: Seconds that a store may take for one item before it counts as failed.
STORE_WITHIN = 60.0


class _Method:
    """A method of the store with what waits for it: how often it has failed in a row, and when it is tried again."""

    __slots__ = ("call", "failures", "queue", "rests_until")

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self.call = call
        self.queue: deque[_Waiting] = deque()
        self.failures = 0
        self.rests_until = -math.inf

    @property
    def is_ill(self) -> bool:
        """Return whether it has failed so often that no item is to blame."""
        return self.failures >= ATTEMPTS


class _Waiting:
    """An item that waits, its place in the order of all, and how often it was tried."""

    __slots__ = ("attempts", "item", "number")

    def __init__(self, item: Experience | CycleRecord, number: int) -> None:
        self.item, self.number, self.attempts = item, number, 0


class BackgroundWriter:
    """The background writer of one agent. `lost` counts what could not be kept; nothing is lost silently.

    A method of the store that fails is left alone for a while, with one back-off for all that waits for it; what waits
    for the other one goes on.
    """

    def __init__(self, store: KeepsExperiences, events: Events, clock: Clock) -> None:
        self._store, self._events, self._clock = store, events, clock
        self._experiences = _Method(store.store)
        self._cycles = _Method(store.record) if offers(store, KeepsCycles) else None
        self._methods = [method for method in (self._experiences, self._cycles) if method is not None]
        self._number = 0
        self._is_hurried = False
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff(0.05, 2.0)
        self._changed = asyncio.Event()
        self._threads = Threads("store", clock, limit=1)
        self.stored = self.lost = 0

    @property
    def wants_cycles(self) -> bool:
        return self._cycles is not None

    @property
    def waiting(self) -> int:
        return sum(len(method.queue) for method in self._methods)

    def keep(self, item: Experience | CycleRecord) -> None:
        """Accept one item at once. When the queue is full the newest is refused, counted and told."""
        method = self._experiences if isinstance(item, Experience) else self._cycles
        assert method is not None
        if self.waiting >= QUEUE_LIMIT:
            self._give_up(item, OverflowError(f"{QUEUE_LIMIT} items already wait for the store"))
            return
        self._number += 1
        method.queue.append(_Waiting(item, self._number))
        self._changed.set()
        self._writer()

    async def flush(self, timeout: float | None = None) -> bool:
        """Return once everything accepted so far is written; False when `timeout` seconds were not enough.

        What waits for a method that has failed again and again has one last attempt and is then given up. What is not
        written in time stays and is written on. Raises: what the store's `flush` raises.
        """
        self._is_hurried = True
        self._changed.set()
        try:
            async with asyncio.timeout(timeout):
                if self.waiting:
                    await asyncio.wait([self._writer()])
                if not self.waiting and offers(self._store, Flushes):
                    await self._ask(self._store.flush)
        except TimeoutError:
            return False
        finally:
            self._is_hurried = False
        return not self.waiting

    def _writer(self) -> asyncio.Task[None]:
        """The task that writes, begun anew if it has come to its end or its event loop is gone."""
        if self._task is None or self._task.done() or self._task.get_loop().is_closed():
            self._changed = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._write(), name="background writer")
        return self._task

    async def _write(self) -> None:
        while waiting := [method for method in self._methods if method.queue]:
            now = self._clock.monotonic()
            ready = [method for method in waiting if method.rests_until <= now or (self._is_hurried and method.is_ill)]
            if ready:
                await self._try(min(ready, key=lambda method: method.queue[0].number))
            else:
                await self._rest(min(method.rests_until for method in waiting) - now)

    async def _rest(self, seconds: float) -> None:
        """Wait until a method is to be tried again, or something comes for another one, or a stop hurries."""
        self._changed.clear()
        pause = asyncio.ensure_future(self._clock.sleep(seconds))
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait([pause, change], return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            change.cancel()

    async def _try(self, method: _Method) -> None:
        """One attempt to hand over what has waited longest for this method."""
        first = method.queue[0]
        try:
            await self._hand_over(method.call, first.item)
        except Exception as error:
            first.attempts += 1
            is_lasting = isinstance(error, PermanentError)
            if self._is_hurried and method.is_ill and not is_lasting:
                while method.queue:  # a last attempt has failed: the others would fail as well
                    self._give_up(method.queue.popleft().item, error)
            elif is_lasting or first.attempts >= ATTEMPTS:
                method.queue.popleft()
                self._give_up(first.item, error)
            if not is_lasting:
                method.failures += 1
                method.rests_until = self._clock.monotonic() + self._backoff.delay(method.failures)
        else:
            method.queue.popleft()
            method.failures, method.rests_until = 0, -math.inf
            self.stored += 1
            if isinstance(first.item, Experience) and self._events.wanted[ExperienceStored]:
                self._events.publish(ExperienceStored(experience=first.item))

    async def _hand_over(self, call: Callable[[Any], Any], item: Experience | CycleRecord) -> None:
        """Give one item to the store. Raises what it raises, or TimeoutError; never CancelledError of its own."""
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
