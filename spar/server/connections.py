"""Limits for the time and the number of connections, so that no peer shuts out the others.

A connection that has not sent a whole request within its time is ended. If there is no room for a new connection, the
oldest one without a whole request is ended: one of the same peer if that peer has too many, else one of any peer. If
all have sent their requests, the new connection is answered 503. Each listener has its own limits.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Hashable, Iterable
from contextlib import suppress
from typing import Any

import h11
from msgspec import Struct
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from spar.net.control_socket import name_of
from spar.server.problems import problem

#: Connections of one listener, and of one of its peers (an IP address, or a process on the Unix socket).
MOST_CONNECTIONS, MOST_OF_A_PEER = 256, 64
#: Seconds in which a client must send the head, and the body, of a request.
HEAD_WITHIN, BODY_WITHIN = 10.0, 30.0
#: Seconds for which what a refused peer still sends is read and dropped, so that it can read the answer.
LINGER = 2.0
#: Name of a peer whose identity the kernel does not give.
UNKNOWN_PEER = "local"
#: Process, user and group of a peer: SO_PEERCRED in unix(7).
_CREDENTIALS = struct.Struct("3i")


class Bounds(Struct, frozen=True):
    """Limits of one listener. Times are in seconds."""

    connections: int = MOST_CONNECTIONS
    of_a_peer: int = MOST_OF_A_PEER
    head_within: float = HEAD_WITHIN
    body_within: float = BODY_WITHIN


class Room:
    """The open connections of one listener, within its limits."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        #: The peer of each connection, the oldest connection first.
        self._connections: dict[BoundedProtocol, Hashable] = {}
        self._number_by_peer: dict[Hashable, int] = {}
        #: Number of connections that were ended to make room, and of those that were answered 503.
        self.ended = self.refused = 0

    def enter(self, connection: BoundedProtocol, peer: Hashable) -> bool:
        """Add a connection; return False if its requests must be refused for want of room."""
        has_room = self._number_by_peer.get(peer, 0) < self.bounds.of_a_peer or self._end_oldest(peer)
        if has_room and len(self._connections) >= self.bounds.connections:
            has_room = self._end_oldest()
        self._connections[connection] = peer
        self._number_by_peer[peer] = self._number_by_peer.get(peer, 0) + 1
        self.refused += not has_room
        return has_room

    def leave(self, connection: BoundedProtocol) -> None:
        """Remove a connection. Idempotent."""
        if connection in self._connections:
            peer = self._connections.pop(connection)
            self._number_by_peer[peer] -= 1
            if not self._number_by_peer[peer]:
                del self._number_by_peer[peer]

    def _end_oldest(self, peer: Hashable = None) -> bool:
        """End the oldest connection without a whole request; return False if there is none.

        Args: peer: only connections of this peer; None: of any.
        """
        for connection, owner in self._connections.items():
            if (peer is None or owner == peer) and connection.is_owing:
                self.ended += 1
                self.leave(connection)
                connection.transport.abort()
                return True
        return False


class BoundedConfig(Config):
    """Configuration of a server, with the limits that its connections share.

    Args: headers: names and values of headers of each answer that has not its own ones of these names.
    """

    def __init__(self, app: Any, bounds: Bounds, headers: Iterable[tuple[str, str]] = (), **more: Any) -> None:
        # The peer is always the other end of the connection: neither a header nor FORWARDED_ALLOW_IPS changes that.
        self.usual_headers = [(name.encode(), value.encode()) for name, value in headers]
        super().__init__(_with_headers(app, self.usual_headers), http=BoundedProtocol, proxy_headers=False, **more)
        self.room = Room(bounds)


class BoundedProtocol(H11Protocol):
    """HTTP connection within limits.

    `client` is its peer, which the content of a request never changes: on a Unix socket the user and the process that
    connected, elsewhere the address and the port.
    """

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any],
                 _loop: asyncio.AbstractEventLoop | None = None) -> None:  # fmt: skip
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config, BoundedConfig)
        self._room, self._usual_headers = config.room, config.usual_headers
        self._owes = ""  # the part of a request that the peer must send in time: "head", "body" or ""
        self._deadline: asyncio.TimerHandle | None = None
        self._has_ended = False

    @property
    def is_owing(self) -> bool:
        """Return whether the peer has sent no whole request that waits for its answer."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family == socket.AF_UNIX:
            self.client = peer(connection)
            owner: Hashable = self.client
        else:
            self.client = self.client or (UNKNOWN_PEER, 0)
            owner = self.client[0]
        if not self._room.enter(self, owner):
            self.app = _with_headers(no_room, self._usual_headers)
        self._expect("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.leave(self)
        self._expect("")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._has_ended:
            return
        super().data_received(data)
        self._expect({h11.IDLE: "head", h11.SEND_BODY: "body"}.get(self.conn.their_state, ""))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE:  # without another request uvicorn closes it after a few seconds
            self._expect("head" if self.conn.trailing_data[0] else "")

    def _expect(self, part: str) -> None:
        """Start the timer for a part of a request, once; "" stops it."""
        if part == self._owes:
            return
        self._owes = part
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if part:
            bounds = self._room.bounds
            within = bounds.head_within if part == "head" else bounds.body_within
            self._deadline = self.loop.call_later(within, self._late)

    def _late(self) -> None:
        """End the connection of a peer that took too long; answer 408 if no answer has begun."""
        if not self.transport.is_closing():
            has_begun = self.conn.our_state is h11.SEND_RESPONSE or bool(self.conn.trailing_data[0])
            self._end(408 if has_begun else 0, f"the request's {self._owes} took too long")

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is no HTTP, and end the connection."""
        self._end(400, "this is no valid HTTP request")

    def _end(self, status: int, detail: str) -> None:
        """End the connection; a status is answered before, if no answer has begun.

        The rest of what the peer sends is dropped for a while, since with unread data it would not get the answer.
        """
        self._expect("")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if status and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = problem(status, detail)
            headers = [*self.server_state.default_headers, *self._usual_headers, *answer.raw_headers,
                       (b"connection", b"close")]  # fmt: skip
            with suppress(h11.LocalProtocolError):  # the answer to a HEAD has no body
                for event in (
                    h11.Response(status_code=status, headers=headers),
                    h11.Data(data=bytes(answer.body)),
                    h11.EndOfMessage(),
                ):
                    self.transport.write(self.conn.send(event) or b"")
            self._has_ended = True
            self.transport.write_eof()
            self.loop.call_later(LINGER, self.transport.close)
        else:
            self.transport.close()


def peer(connection: socket.socket) -> tuple[str, int]:
    """Return the user's name and the process id of the other end of a Unix socket, as they were when it connected.

    The kernel says them, so that no client can claim another identity.
    """
    try:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except (OSError, AttributeError):
        return UNKNOWN_PEER, 0
    process, user, _ = _CREDENTIALS.unpack(credentials)
    return name_of(user), process


def _with_headers(app: Any, headers: list[tuple[bytes, bytes]]) -> Any:
    """Return an application whose answers have these headers, unless they have their own ones."""
    if not headers:
        return app

    async def application(scope: Any, receive: Any, send: Any) -> None:
        async def complete(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", ())
                names = {name.lower() for name, _ in own}
                message = {**message, "headers": [*(row for row in headers if row[0] not in names), *own]}
            await send(message)

        await app(scope, receive, complete)

    return application


async def no_room(scope: Any, receive: Any, send: Any) -> None:
    """Answer 503 to a request for which there is no room."""
    answer = problem(503, "too many connections wait for an answer; try again later", retry_after=1.0)
    answer.headers["connection"] = "close"
    await answer(scope, receive, send)
