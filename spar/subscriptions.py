"""Who is told of events: plain handlers, async handlers with a queue and a task, streams with a buffer.

Each is bounded and counts what it loses; none can slow or stop whoever publishes. The bus (`spar.bus`) makes them and
hands the events over.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from spar.events import Event, Gap

if TYPE_CHECKING:
    from spar.bus import Events

FAILURES_UNTIL_OFF = 10
#: What a handler raises to end the process; everything else is its own failure.
ENDS_PROCESS = (KeyboardInterrupt, SystemExit)


class Subscription:
    """One handler of one class of events; call it to unsubscribe.

    `delivered` (handed over without an error; for an async handler, to its queue), `failures` (in a row), `dropped`
    and `is_off` can be read at any time.
    """

    __slots__ = ("__weakref__", "_events", "_handler", "_queue", "_task", "_wake", "delivered", "dropped", "failures",
                 "hand", "is_inline", "is_off", "kind", "name", "only_keeps")  # fmt: skip

    def __init__(
        self, events: Events, kind: type[Event], handler: Callable[[Any], Any], limit: int, *, only_keeps: bool = False
    ) -> None:
        if limit < 1:
            raise ValueError(f"a buffer must hold at least one event, found {limit!r}")
        self._events, self.kind, self._handler = events, kind, handler
        self.name = name_of(handler)
        self.delivered = self.failures = self.dropped = 0
        self.is_off = False
        is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object whose __call__ is async is an async handler
        )
        #: Its handler is called by whoever publishes, and has failed or not when that returns.
        self.is_inline = not is_async
        #: It puts events away and cannot publish any: such ones are told first, so that they see events in order.
        self.only_keeps = only_keeps or is_async
        #: What the bus calls with each event.
        self.hand: Callable[[Any], Any] = self._put if is_async else handler
        self._queue: deque[Event] = deque(maxlen=limit if is_async else 0)
        self._wake: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        """Unsubscribe. Idempotent; what is queued for an async handler is dropped."""
        self._events.forget(self)

    def failed(self, error: BaseException) -> None:
        """Count a failure of the handler; too many in a row turn it off."""
        self.failures += 1
        turned_off = self.failures >= FAILURES_UNTIL_OFF
        self._events.tell_of_failure(self.name, error, turned_off)
        if turned_off:
            self()

    async def drain(self) -> None:
        """Return once an async handler has seen everything that was queued for it."""
        task = self._task
        if task is None or task is current_task():
            return
        while not task.done() and (self._queue or self._wake is None):
            await self._events.clock.sleep(0.001)

    def close(self) -> None:
        """Hear nothing more; the bus has forgotten it."""
        self.is_off = True
        # Whoever is just being told of an event still has this subscription on the list.
        self.hand = self._handler = _nobody
        self._queue.clear()
        if self._task is not None and not self._task.done() and self._task is not current_task():
            self._task.cancel()

    def _put(self, event: Event) -> None:
        queue, wake = self._queue, self._wake
        if len(queue) == queue.maxlen:
            self.dropped += 1
        queue.append(event)
        if wake is not None:
            if not wake.done():
                wake.set_result(None)
        elif self._task is None or self._task.done():
            self._task = self._events.spawn(self._serve(queue), f"handler {self.name}")

    async def _serve(self, queue: deque[Event]) -> None:
        loop = asyncio.get_running_loop()
        while not self.is_off:
            while queue and not self.is_off:
                try:
                    await self._handler(queue.popleft())
                except (*ENDS_PROCESS, GeneratorExit):
                    raise
                except BaseException as error:
                    if is_cancelled():
                        raise
                    self.failed(error)
                else:
                    self.failures = 0
            if self.is_off:
                return
            self._wake = loop.create_future()
            try:
                await self._wake
            finally:
                self._wake = None


class _Buffer:
    """What a stream has not read yet. Held by its subscriptions, so that the stream itself can go away unread."""

    __slots__ = ("_events", "kept", "missed", "wake")

    def __init__(self, events: Events, limit: int) -> None:
        self._events = events
        self.kept: deque[Event] = deque(maxlen=limit)
        self.missed = 0
        self.wake: asyncio.Future[None] | None = None

    def receive(self, event: Event) -> None:
        if len(self.kept) == self.kept.maxlen:
            self.missed += 1
            self._events.dropped += 1
        self.kept.append(event)
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)

    def gap(self) -> Gap:
        """Stands for what was missed, stamped as the last of it: to resume after it is to miss nothing more."""
        missed, self.missed = self.missed, 0
        return Gap(missed=missed, agent=self._events.agent, seq=self.kept[0].seq - 1, at=self._events.clock.now())


class EventStream(AsyncIterator[Event]):
    """An async iterator over events, subscribed from the moment it was made; ends when the agent stops.

    When its bounded buffer overflows, the oldest events go and one `Gap` stands in their place. One that nobody
    holds any more is closed.
    """

    def __init__(self, events: Events, kinds: tuple[type[Event], ...], buffer: int) -> None:
        if buffer < 1:
            raise ValueError(f"a stream's buffer must hold at least one event, found {buffer!r}")
        self._buffer = _Buffer(events, buffer)
        self._closed = False
        receive = self._buffer.receive
        self._subscriptions = [events.connect(kind, receive, only_keeps=True) for kind in _widest(kinds)]
        weakref.finalize(self, _unsubscribe, self._subscriptions).atexit = False

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        buffer = self._buffer
        while True:
            if buffer.missed:
                return buffer.gap()
            if buffer.kept:
                return buffer.kept.popleft()
            if self._closed:
                raise StopAsyncIteration
            buffer.wake = asyncio.get_running_loop().create_future()
            try:
                await buffer.wake
            finally:
                buffer.wake = None

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        """End the stream: what is buffered can still be read."""
        self._closed = True
        _unsubscribe(self._subscriptions)
        wake = self._buffer.wake
        if wake is not None and not wake.done():
            wake.set_result(None)

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()


def current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def is_cancelled() -> bool:
    """Whether the current task is cancelled from outside, and not only what it awaits has raised that."""
    task = current_task()
    return task is not None and task.cancelling() > 0


def name_of(handler: Any) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)


def _widest(kinds: tuple[type[Event], ...]) -> list[type[Event]]:
    """The classes to subscribe to: a class whose parent is asked for too would bring its events twice."""
    asked = list(dict.fromkeys(kinds or (Event,)))
    return [kind for kind in asked if not any(base in asked for base in kind.__mro__[1:])]


def _unsubscribe(subscriptions: list[Subscription]) -> None:
    for subscription in subscriptions:
        subscription()


def _nobody(event: Event) -> None:
    return None
