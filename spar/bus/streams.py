"""Streams of events: a bounded buffer for each, and a `Gap` in place of lost events."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable

from spar.bus.subscriptions import Bus, Subscription
from spar.events import Event, Gap


class _Buffer:
    """Unread events of a stream. Its subscriptions hold it, so that the stream itself can be collected unread."""

    __slots__ = ("_losses", "events", "missed", "wake")

    def __init__(self, losses: Bus, limit: int) -> None:
        self._losses = losses
        self.events: deque[Event] = deque(maxlen=limit)
        self.missed = 0
        self.wake: asyncio.Future[None] | None = None

    def receive(self, event: Event) -> None:
        if len(self.events) == self.events.maxlen:
            self.missed += 1
            self._losses.dropped += 1
        self.events.append(event)
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)

    def gap(self) -> Gap:
        """Return the `Gap` for the missed events, with the `seq` of the last of them, so that a reader can resume after
        it."""
        missed, self.missed = self.missed, 0
        return self._losses.gap(missed, self.events[0].seq - 1)


class EventStream(AsyncIterator[Event]):
    """Async iterator over events, subscribed from the moment it was made; ends when the agent stops.

    When its bounded buffer overflows, the oldest events are dropped and one `Gap` takes their place. A stream that is
    not referenced any more is closed.
    """

    def __init__(
        self, connect: Callable[..., Subscription], losses: Bus, kinds: tuple[type[Event], ...], buffer: int
    ) -> None:
        if buffer < 1:
            raise ValueError(f"a stream's buffer must hold at least one event, found {buffer!r}")
        self._buffer = _Buffer(losses, buffer)
        self._closed = False
        receive = self._buffer.receive
        self._subscriptions = [connect(kind, receive, only_keeps=True) for kind in _widest(kinds)]
        weakref.finalize(self, _forget, _running_loop(), self._subscriptions).atexit = False

    @property
    def waiting(self) -> int:
        """Return the number of events that wait for the reader."""
        return len(self._buffer.events)

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        buffer = self._buffer
        while True:
            if buffer.missed:
                return buffer.gap()
            if buffer.events:
                return buffer.events.popleft()
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
        """End the stream: buffered events can still be read."""
        self._closed = True
        _unsubscribe(self._subscriptions)
        wake = self._buffer.wake
        if wake is not None and not wake.done():
            wake.set_result(None)

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()


def _widest(kinds: tuple[type[Event], ...]) -> list[type[Event]]:
    """Return the classes to subscribe to, without those that have a base class among them: their events would come
    twice."""
    requested = list(dict.fromkeys(kinds or (Event,)))
    return [kind for kind in requested if not any(base in requested for base in kind.__mro__[1:])]


def _unsubscribe(subscriptions: list[Subscription]) -> None:
    for subscription in subscriptions:
        subscription()


def _forget(loop: asyncio.AbstractEventLoop | None, subscriptions: list[Subscription]) -> None:
    """End the subscriptions of a collected stream, in the thread of the event loop in which it was made.

    The garbage collector may run in any other thread.
    """
    if loop is None or loop is _running_loop():
        _unsubscribe(subscriptions)
        return
    try:
        loop.call_soon_threadsafe(_unsubscribe, subscriptions)
    except RuntimeError:  # the loop is closed: nothing runs there that could be disturbed
        _unsubscribe(subscriptions)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
