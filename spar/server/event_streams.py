"""Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), whatever they are about.

Each event has its `seq` as its id, so that a client whose connection broke goes on with `Last-Event-ID` (or `?after=`)
where it was. The server asks the agent's event loop for the next events only when the client has taken the last, so
nothing gathers here: what the agent keeps is the buffer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import StreamingResponse

from spar.agent.measured import Blockable
from spar.server.encoding import encode

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

#: Seconds without an event after which a comment says that the connection lives.
HEARTBEAT = 15.0
#: The parameter of a stream that says where a client was.
After = Annotated[str | None, Meta(description="The number of the last event that was seen; 0: from the beginning.")]


class Source(Protocol):
    """Source of a stream: gives the next events, as soon as there are any, and none at its end."""

    async def some(self) -> Sequence[Any]: ...


class EventsAnswer(StreamingResponse):
    """A stream of events that is closed, and no longer counted, whatever ends it."""

    def __init__(self, frames: AsyncGenerator[bytes], left: Callable[[], None]) -> None:
        super().__init__(frames, media_type="text/event-stream",
                         headers={"cache-control": "no-store", "x-accel-buffering": "no"})  # fmt: skip
        self._frames, self._left = frames, left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()
            await self._frames.aclose()


async def frames(agent: Blockable, source: Source, frame: Callable[[Any], bytes],
                 position: Callable[[], int | None] = lambda: None) -> AsyncGenerator[bytes]:  # fmt: skip
    """Yield events as they come, and signs of life between them.

    Args: frame: one event as it is sent; position: the number up to which the client has seen everything, told with
        each sign of life: what is filtered out need not be looked through again.
    """
    yield b"retry: 1000\n" + _place(position()) + b"\n"
    while (loop := agent.event_loop) is not None and not loop.is_closed():
        asked = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(source.some(), loop))
        try:
            while not (await asyncio.wait([asked], timeout=HEARTBEAT))[0]:
                if loop.is_closed():
                    return
                yield b": still going on\n" + _place(position()) + b"\n"
            if asked.cancelled() or not (events := asked.result()):
                return
        finally:
            with suppress(RuntimeError):  # the agent's loop has been closed
                asked.cancel()
        yield b"".join(map(frame, events))


def _place(seq: int | None) -> bytes:
    return b"" if seq is None else b"id: %d\n" % seq


def framed(event: Any, name: str) -> bytes:
    """One event as it is sent: JSON has no line ends, so it is one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, name.encode(), encode(event))


def after_of(request: Request, parameter: str | None) -> int | None:
    """Return the number of the last event that the client has seen; None where it says none. Raises: ValueError."""
    given = request.headers.get("last-event-id") or parameter
    if not given:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 19):
        raise ValueError(f"after = {given[:40]!r}: must be the seq of an event, or 0 for all")
    return int(given)
