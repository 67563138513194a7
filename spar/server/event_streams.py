"""Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) of any source.

The id of each event is its `seq`: a client whose connection broke continues with `Last-Event-ID` (or `?after=`). The
server asks the agent's event loop for the next events only after the client has taken the last ones. So nothing is
buffered here; the source has the buffer.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from spar.agent.parts import AgentParts
from spar.decoding import encode
from spar.errors import InboxFullError, TransientError
from spar.operations.operation import Caller, Stream

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

#: Seconds without an event after which a comment is sent as a heartbeat.
HEARTBEAT = 15.0
#: Seconds that a client rests after events, for each client that reads with it: all together ask the agent's event
#: loop so many times a second at most, whatever their number.
REST = 0.002
#: Events that are held as they are sent, for the other clients.
HELD = 512


class ShareTakenError(InboxFullError):
    """Error of a token that reads as many streams as one token may."""


class StreamPlaces:
    """Places for the clients of a route's streams; one token gets a share of them only, so that others find room.

    Args: number: how many streams may be open at once; busy: what the clients do, as in "clients follow runs".
    """

    def __init__(self, number: int, busy: str) -> None:
        self._number, self._busy = number, busy
        self._open_by_peer = Counter[str]()

    @property
    def taken(self) -> int:
        """Return how many places are taken."""
        return self._open_by_peer.total()

    def take(self, caller: Caller) -> Callable[[], None]:
        """Take a place; return a function that frees it.

        Raises: ShareTakenError if the token of the caller has its share; TransientError if no place is free.
        """
        by_peer, peer = self._open_by_peer, caller.by
        share = share_of(self._number)
        if caller.is_token and by_peer[peer] >= share:
            raise ShareTakenError(
                f"{peer} has {by_peer[peer]} of the {self._number} streams open, which is as many as one token may "
                "have; close one of them"
            )
        if self.taken >= self._number:
            raise TransientError(f"{self.taken} clients {self._busy} already; try again later")
        by_peer[peer] += 1

        def free() -> None:
            self._open_by_peer -= Counter((peer,))  # without those at zero

        return free


def share_of(number: int) -> int:
    """Return how many of so many streams one token may have: two fifths."""
    return number * 2 // 5


class EventsAnswer(StreamingResponse):
    """Response that streams events. At its end, `left` is called and `frames` is closed."""

    def __init__(self, frames: AsyncGenerator[bytes], left: Callable[[], None]) -> None:
        super().__init__(frames, media_type="text/event-stream",
                         headers={"x-accel-buffering": "no"})  # fmt: skip
        self._frames, self._left = frames, left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()
            await self._frames.aclose()


async def frames(agent: AgentParts, stream: Stream, is_welcome: Callable[[], bool],
                 readers: Callable[[], int]) -> AsyncGenerator[bytes]:  # fmt: skip
    """Yield events as they come, and heartbeats between them, while the client is welcome.

    Heartbeats send the position of the stream, so that a client that reconnects skips what its filter left out.

    Args: readers: returns how many clients read such streams now.
    """
    yield b"retry: 1000\n" + _place(stream.position()) + b"\n"
    while (loop := agent.requests.loop) is not None and not loop.is_closed():
        pending = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(stream.source.some(), loop))
        try:
            while not (await asyncio.wait([pending], timeout=HEARTBEAT))[0]:
                if loop.is_closed() or not is_welcome():
                    return
                yield b": still going on\n" + _place(stream.position()) + b"\n"
            if pending.cancelled() or not is_welcome() or not (events := pending.result()):
                return
        finally:
            with suppress(RuntimeError):  # the agent's loop has been closed
                pending.cancel()
        yield b"".join(_framed(event, stream.name_of(event)) for event in events)
        await asyncio.sleep(REST * readers())


def _place(seq: int | None) -> bytes:
    """Return the line with the id of a position, nothing for None."""
    return b"" if seq is None else b"id: %d\n" % seq


#: The newest events with their bytes, by identity: each is encoded once, not for each client.
_held = OrderedDict[int, tuple[Any, bytes]]()


def _framed(event: Any, name: str) -> bytes:
    """Return an event as it is sent. Its JSON contains no line ends, so one `data` line is enough."""
    known = _held.get(id(event))
    if known is None or known[0] is not event:
        frame = b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, name.encode(), encode(event))
        known = _held[id(event)] = event, frame
        if len(_held) > HELD:
            _held.popitem(last=False)
    return known[1]
