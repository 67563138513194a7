"""Live events under `/v1`: what the agent does, as server-sent events, for a terminal or a console that watches it.

A client that wants the whole picture opens the stream first and asks for `/v1/status` then: what is in both is the same
fact twice, and nothing falls between.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.errors import TransientError
from spar.server.answers import PATIENCE, on_loop
from spar.server.event_streams import EventsAnswer, after_of, framed, frames
from spar.service.live.feed import FeedReader
from spar.service.live.told import LiveEvent, kinds_of

if TYPE_CHECKING:
    from spar.service.app import Service

#: Who may watch at once: a tenth of all connections that the server takes.
WATCHERS = 25
#: The parameters of the stream; another one is refused rather than ignored.
PARAMETERS = ("type", "session", "after")


def event_routes(service: Service) -> list[Route]:
    """Return the route of live events."""
    watching = 0

    async def live(request: Request) -> Response:
        """Stream what happens from now on as server-sent events, until the client goes; after `after` or
        `Last-Event-ID` (0: all that is kept) first what came since. `type` (names of events with commas, bases too) and
        `session` (empty: what belongs to none) select."""
        nonlocal watching
        agent, query = service.agent(""), request.query_params
        for name in query:
            if name not in PARAMETERS:
                raise ValueError(f"no parameter {name[:40]!r}; known: {', '.join(PARAMETERS)}")
        names = frozenset(filter(None, ",".join(query.getlist("type")).split(",")))
        kinds = kinds_of(names) if names else frozenset()
        after, session = after_of(request), query.get("session")
        if watching >= WATCHERS:
            raise TransientError(f"{watching} clients watch the events already; try again later")
        watching += 1

        async def read() -> FeedReader:
            return service.feed.read(after, kinds, session)

        try:
            reader: FeedReader = await on_loop(agent, read(), PATIENCE)
        except BaseException:
            watching -= 1
            raise
        loop = agent.event_loop or asyncio.get_running_loop()

        def left() -> None:
            nonlocal watching
            watching -= 1
            with suppress(RuntimeError):  # the agent's loop has been closed
                loop.call_soon_threadsafe(reader.close)

        return EventsAnswer(frames(agent, reader, frame, lambda: reader.seen), left)

    return [Route("/v1/events", live)]


def frame(event: LiveEvent) -> bytes:
    """Return one event as it is sent."""
    return framed(event, event.type)
