"""Client for programs with an event loop: each request of the plain client in a thread."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct

from spar.client.client import PATIENCE, Client, EventReader
from spar.clock import SystemClock
from spar.operations.operation import Operation
from spar.threads import Threads

In = TypeVar("In", bound=Struct)
Out = TypeVar("Out")

#: Requests at once, those included whose callers have left.
AT_ONCE: Final = 32


class Paced:
    """Work of the running event loop that any thread may ask for: done `after` seconds, and once in `every` seconds."""

    def __init__(self, work: Callable[[], object], every: float, after: float = 0.0) -> None:
        self._work, self._every, self._after = work, every, after
        self._loop = asyncio.get_running_loop()
        self._is_due, self._done_at = False, -math.inf

    def ask(self) -> None:
        """Have the work done; it begins after this call."""
        if not self._is_due:
            with suppress(RuntimeError):  # the loop is closed: nobody needs it any more
                self._loop.call_soon_threadsafe(self._plan)

    def _plan(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_at(max(self._done_at + self._every, self._loop.time() + self._after), self._do)

    def _do(self) -> None:
        self._is_due, self._done_at = False, self._loop.time()
        self._work()


class AsyncClient:
    """Client of one service, as `Client`. A request that is cancelled ends in its thread when its answer comes."""

    def __init__(self, place: Path | str, *, token: str = "", timeout: float | None = None) -> None:
        self.client = Client(place, token=token, timeout=timeout)
        self._threads = Threads("client", SystemClock(), limit=AT_ONCE)

    async def call(self, operation: Operation[In, Out], given: In | None = None) -> Out:
        """Carry out an operation and return its answer. Raises: as `Client.call`; TransientError."""
        return await self._threads.run(self.client.call, operation, given)

    async def answer(self, operation: Operation[In, Any], given: In | None = None) -> Any:
        """Carry out an operation and return its answer as JSON values. Raises: as `Client.answer`; TransientError."""
        return await self._threads.run(self.client.answer, operation, given)

    async def events(
        self, operation: Operation[In, Any], given: In, patience: float = PATIENCE
    ) -> AsyncGenerator[dict[str, Any]]:
        """Yield the events of a stream. Args and raises: as `ResumingStream`."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(arrived.set)

        reader = EventReader(self.client.events(operation, given, patience), wake)
        try:
            while not reader.is_over:
                await arrived.wait()
                arrived.clear()
                for event in reader.take():
                    yield event
            if reader.error is not None:
                raise reader.error
        finally:
            reader.close()
