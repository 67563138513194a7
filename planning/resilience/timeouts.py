"""Bounds on a provider's answer: its time and its bytes.

`planning.llm.provider` counts the size of the text of an answer. The bounds here hold for answers that never become
text: silence, keep-alives, bytes without an end.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import anyio

from spar.clock import Clock, Timer

R = TypeVar("R")


class Watch:
    """Time limit of the waits for a provider's answer. Time in which nobody waits for the provider does not count.

    It has one timer, which is moved only when it fires, however many events come.

    Args, in seconds: first: until the answer begins; idle: between two events after that; longest: for the whole.
    """

    def __init__(self, clock: Clock, first: float, idle: float, longest: float) -> None:
        self._clock, self._idle = clock, idle
        self._left, self._left_in_all = first, longest
        self._until = 0.0
        self._scope: anyio.CancelScope | None = None
        self._timer: Timer | None = None
        self.has_begun = self.is_over = False

    async def over(self, waited: Awaitable[R]) -> R:
        """Await this and return its result. Raises: TimeoutError when it takes too long."""
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
                elapsed = self._clock.monotonic() - began
                self._left -= elapsed
                self._left_in_all -= elapsed
        self.is_over = True
        raise TimeoutError  # only the watch cancels this scope

    def progress(self) -> None:
        """Begin a new idle wait: the provider has sent something."""
        self._left = self._idle
        if not self.has_begun:  # the wait for the beginning may have been the longer one
            self.has_begun = True
            self.stop()

    def stop(self) -> None:
        """Stop the timer until the next wait begins."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_too_long(self) -> bool:
        """Return whether the whole answer took too long although no single wait did."""
        return self._left_in_all <= 0.0 < self._left

    def _look(self) -> None:
        self._timer = None
        if self._scope is None:
            return
        if self._clock.monotonic() < self._until:
            self._timer = self._clock.call_at(self._until, self._look)
            return
        self._scope.cancel()


def limit_bytes(client: Any, most: int, error: Callable[[], Exception]) -> None:
    """Limit the bytes that an HTTP client reads of an answer. Without a limit it keeps a line without an end in memory.

    Args: most: in bytes; error: returns the exception that is raised above the limit.

    Only clients of httpx or its successor are limited. For other clients only the time limits hold.
    """
    hooks = getattr(client, "event_hooks", None)
    if not isinstance(hooks, Mapping):
        return

    async def wrap(response: Any) -> None:
        stream = response.stream
        stream_class: Any = sys.modules[type(response).__module__.partition(".")[0]].AsyncByteStream

        class Bounded(stream_class):  # type: ignore[misc]
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
