"""Live events of the agent under `/v1`, as server-sent events, for terminals and consoles.

A client that needs the complete state opens the stream first and requests `/v1/status` then. So it misses nothing; some
facts come twice.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct, field
from starlette.requests import Request
from starlette.responses import Response

from spar.server.answers import PATIENCE, on_loop
from spar.server.api.route import ApiRoute
from spar.server.event_streams import After, EventsAnswer, StreamPlaces, after_of, framed, frames
from spar.service.live.feed import FeedReader
from spar.service.live.told import LiveEvent, kinds_of

if TYPE_CHECKING:
    from spar.service.app import Service

#: Clients that may read the stream at once: a tenth of all connections of the server.
WATCHERS = 25


class EventsQuery(Struct, frozen=True):
    """Query of live events."""

    type: Annotated[
        list[str],
        Meta(description="Only events of these classes, separated by commas; a base class includes its subclasses."),
    ] = field(default_factory=list)
    session: Annotated[str | None, Meta(description="Only of this session; empty: only events of no session.")] = None
    after: After = None


def event_routes(service: Service) -> list[ApiRoute]:
    """Return the route of live events."""
    places = StreamPlaces(WATCHERS, "watch the events")

    async def live(request: Request, query: EventsQuery) -> Response:
        """Stream the events of the agent as server-sent events, until the client disconnects. With `after` or
        `Last-Event-ID`, the stream begins with the buffered events after that number (0: all)."""
        agent = service.agent("")
        names = frozenset(filter(None, ",".join(query.type).split(",")))
        kinds = kinds_of(names) if names else frozenset()
        after, session = after_of(request, query.after), query.session
        free = places.take(request)

        loop, readers = agent.requests.loop or asyncio.get_running_loop(), list[FeedReader]()

        async def read() -> FeedReader:
            readers.append(service.feed.read(after, kinds, session))
            return readers[0]

        def close() -> None:
            for reader in readers:
                reader.close()

        def left() -> None:
            free()
            with suppress(RuntimeError):  # the agent's loop has been closed
                loop.call_soon_threadsafe(close)

        try:
            reader: FeedReader = await on_loop(agent, read(), PATIENCE)
        except BaseException:
            left()
            raise
        return EventsAnswer(frames(agent, reader, frame, lambda: reader.seen), left)

    return [ApiRoute("GET", "/v1/events", live, "read", answer=None)]


def frame(event: LiveEvent) -> bytes:
    """Return one event as it is sent."""
    return framed(event, event.type)
