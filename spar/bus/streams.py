"""Streams of events: a bounded buffer for each, and a `Gap` in the place of what it lost."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from spar.bus.subscriptions import Subscription
from spar.events import Event, Gap


class Losses(Protocol):
    """The account of what the readers of streams have missed; `gap` stands for that, and is counted."""

    dropped: int

    def gap(self, missed: int, seq: int) -> Gap: ...


class _Buffer:
    """Unread events of a stream. Held by its subscriptions, so that the stream itself can go away unread."""

    __slots__ = ("_losses", "kept", "missed", "wake")

    def __init__(self, losses: Losses, limit: int) -> None:
        self._losses = losses
        self.kept: deque[Event] = deque(maxlen=limit)
        self.missed = 0
        self.wake: asyncio.Future[None] | None = None

    def receive(self, event: Event) -> None:
        if len(self.kept) == self.kept.maxlen:
            self.missed += 1
            self._losses.dropped += 1
        self.kept.append(event)
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)

    def gap(self) -> Gap:
        """Stands for what was missed, stamped as the last of it: to resume after it is to miss nothing more."""
        missed, self.missed = self.missed, 0
        return self._losses.gap(missed, self.kept[0].seq - 1)


class EventStream(AsyncIterator[Event]):
    """An async iterator over events, subscribed from the moment it was made; ends when the agent stops.

    When its bounded buffer overflows, the oldest events go and one `Gap` stands in their place. One that nobody
    holds any more is closed.
    """

    def __init__(
        self, connect: Callable[..., Subscription], losses: Losses, kinds: tuple[type[Event], ...], buffer: int
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
        """Return how many events are buffered for the reader."""
        return len(self._buffer.kept)

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


def _widest(kinds: tuple[type[Event], ...]) -> list[type[Event]]:
    """The classes to subscribe to: a class whose parent is asked for too would bring its events twice."""
    asked = list(dict.fromkeys(kinds or (Event,)))
    return [kind for kind in asked if not any(base in asked for base in kind.__mro__[1:])]


def _unsubscribe(subscriptions: list[Subscription]) -> None:
    for subscription in subscriptions:
        subscription()


def _forget(loop: asyncio.AbstractEventLoop | None, subscriptions: list[Subscription]) -> None:
    """End the subscriptions of a stream that is gone, in the thread of the event loop that it was made in.

    The collector that finds it may run in any other thread.
    """
    if loop is None or loop is _running_loop():
        _unsubscribe(subscriptions)
        return
    try:
        loop.call_soon_threadsafe(_unsubscribe, subscriptions)
    except RuntimeError:  # it is closed: nothing runs there that could be disturbed
        _unsubscribe(subscriptions)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
