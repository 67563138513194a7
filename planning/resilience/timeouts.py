"""Bounds on a provider's answer: the time that it may take, and its bytes.

The size of what it says is counted where it is read (`planning.llm.provider`); this is for what never becomes anything:
silence, keep-alives, bytes without an end.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import anyio

from spar.clock import Clock, Timer

R = TypeVar("R")


class Watch:
    """Ends a wait for the provider that brings nothing. What passes while nobody waits for it does not count.

    One timer, moved lazily, whatever number of events comes. Times in seconds: until the beginning, without anything
    after that, and in all.
    """

    def __init__(self, clock: Clock, first: float, idle: float, longest: float) -> None:
        self._clock, self._idle = clock, idle
        self._left, self._left_in_all = first, longest
        self._until = 0.0
        self._scope: anyio.CancelScope | None = None
        self._timer: Timer | None = None
        self.has_begun = self.is_over = False

    async def over(self, waited: Awaitable[R]) -> R:
        """Return the result of an awaitable. Raises: TimeoutError when it takes too long."""
        began = self._clock.monotonic()
        self._until = began + min(self._left, self._left_in_all)
        if self._timer is None:
            self._timer = self._clock.call_at(self._until, self._look)
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                return await waited
            finally:
                self._scope = None
                took = self._clock.monotonic() - began
                self._left -= took
                self._left_in_all -= took
        self.is_over = True
        raise TimeoutError  # only the watch cancels this scope

    def progress(self) -> None:
        """Something came."""
        self._left = self._idle
        if not self.has_begun:  # the wait for the beginning may have been the longer one
            self.has_begun = True
            self.stop()

    def stop(self) -> None:
        """Watch no more, until there is something to wait for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_too_long(self) -> bool:
        """Return whether what came was never late, and still too slow in all."""
        return self._left_in_all <= 0.0 < self._left

    def _look(self) -> None:
        self._timer = None
        if self._scope is None:
            return
        if self._clock.monotonic() < self._until:
            self._timer = self._clock.call_at(self._until, self._look)
            return
        self._scope.cancel()


def bound(client: Any, most: int, error: Callable[[], Exception]) -> None:
    """Let an HTTP client read no more than so many bytes of an answer; it would keep a line without an end in memory.

    Args: error: what is raised when it is more.

    Clients of another make (not httpx or its successor) are left as they are: only time bounds those.
    """
    hooks = getattr(client, "event_hooks", None)
    if not isinstance(hooks, Mapping):
        return

    async def wrap(response: Any) -> None:
        stream = response.stream
        kind: Any = sys.modules[type(response).__module__.partition(".")[0]].AsyncByteStream

        class Bounded(kind):  # type: ignore[misc]
            async def __aiter__(self) -> AsyncIterator[bytes]:
                left = most
                async for chunk in stream:
                    left -= len(chunk)
                    if left < 0:
                        raise error()
                    yield chunk

            async def aclose(self) -> None:
                await stream.aclose()

        response.stream = Bounded()

    client.event_hooks = {**hooks, "response": [*hooks.get("response", ()), wrap]}
