"""Client for programs with an event loop: each request of the plain client in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from spar.client.client import Client
from spar.operations.operation import Operation

In = TypeVar("In", bound=Struct)
Out = TypeVar("Out")


class AsyncClient:
    """Client of one service, as `Client`. A request that is cancelled ends in its thread when its answer comes."""

    def __init__(self, place: Path | str, *, token: str = "", timeout: float = 30.0) -> None:
        self._client = Client(place, token=token, timeout=timeout)

    async def call(self, operation: Operation[In, Out], given: In | None = None) -> Out:
        """Carry out an operation and return its answer. Raises: as `Client.call`."""
        return await asyncio.to_thread(self._client.call, operation, given)

    async def events(self, operation: Operation[In, Any], given: In) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of a stream until it ends, over broken connections. Raises: as `Client.events`."""
        with closing(self._client.events(operation, given)) as events:
            while (event := await asyncio.to_thread(next, events, None)) is not None:
                yield event
