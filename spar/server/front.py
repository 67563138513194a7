"""The thread that serves HTTP: on the Unix socket of a service, and on its port if probes are enabled.

`port` is the application of the port: probes, metrics and hooks, and the control API for clients with a token. The
thread has its own event loop. Sockets are bound before it starts, so that a port in use is an error of the start
instead of a log line.

Time and number of connections are limited, so that no peer shuts out the others. A connection that has not sent a whole
request within its time is ended. If there is no room for a new connection, the oldest one without a whole request is
ended: one of the same peer if that peer has too many, else one of any peer. If all have sent their requests, the new
connection is answered 503. Each listener has its own limits.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import threading
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h11
import uvicorn
from msgspec import Struct
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from spar.errors import ConfigError, NotReadyError
from spar.net.control_socket import SOCKET_NAME, name_of, short_path
from spar.parts.factory import home_of
from spar.server.access import Access, AccessRefusedError, HostNames, url_host
from spar.server.api.dispatch import BodyRefusedError, lengths_of, refuse
from spar.server.problems import on_error, on_hidden_defect, problem
from spar.server.routes.applications import control, probes
from spar.service.app import Service

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


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
        #: Number of connections that were ended to make room, and of those that were answered 503.
        self.ended = self.refused = 0

    def enter(self, connection: BoundedProtocol, peer: Hashable) -> bool:
        """Add a connection; return False if its requests must be refused for want of room."""
        is_within = list(self._connections.values()).count(peer) < self.bounds.of_a_peer
        has_room = is_within or self._end_oldest(peer)
        if has_room and len(self._connections) >= self.bounds.connections:
            has_room = self._end_oldest()
        self._connections[connection] = peer
        self.refused += not has_room
        return has_room

    def leave(self, connection: BoundedProtocol) -> None:
        """Remove a connection. Idempotent."""
        self._connections.pop(connection, None)

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


#: Headers of each answer: browsers neither render, store nor sniff it. See https://www.w3.org/TR/CSP3/ and RFC 9111,
#: 5.2.2.5.
SAFE_HEADERS: Final = (
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
)


def port(service: Service, listens_to: str) -> ASGIApp:
    """Return the application that the port serves. Args: listens_to: the address that it listens on."""
    hosts = HostNames(listens_to, service.loaded.settings.service.hosts)
    access = Access(service, hosts)
    api = control(service, access)
    others: ASGIApp = probes(service, hosts, access)
    if service.loaded.settings.service.console:
        from spar.server.routes.console import console

        others = console(service, access, others)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http":
                lengths_of(scope)  # of a request that ends in two places nothing is answered but this
            if scope["type"] != "http" or not (scope["path"] == "/v1" or scope["path"].startswith("/v1/")):
                await others(scope, receive, send)
                return
            await access.admit(scope)
        except BodyRefusedError as refusal:
            await (await refuse(Request(scope), refusal))(scope, receive, send)
        except AccessRefusedError as refusal:
            await access.refuse(refusal)(scope, receive, send)
        except NotReadyError as error:
            await (await on_error(Request(scope), error))(scope, receive, send)
        else:
            await api(scope, receive, send)

    return ServerErrorMiddleware(application, on_hidden_defect)


class Front:
    """The HTTP servers of a service, from `open` to `close`. `port` is the number of the port, 0 without one.

    Args: with_probes: whether the port is served at all.
    """

    def __init__(self, service: Service, state_dir: Path, host: str, port: int, *, with_probes: bool,
                 bounds: Bounds | None = None) -> None:  # fmt: skip
        self._service, self._state_dir = service, state_dir
        self._host, self.port = host, port
        self._with_probes, self._bounds = with_probes, bounds or Bounds()
        self._servers: list[uvicorn.Server] = []
        self._sockets: list[socket.socket] = []
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()

    @property
    def address(self) -> str:
        """Return the URL of the probes, "" without them."""
        return f"http://{url_host(self._host)}:{self.port}" if self.port else ""

    def open(self) -> None:
        """Bind the sockets and start the thread. Raises: ConfigError if an address cannot be bound."""
        doors: list[tuple[ASGIApp, socket.socket, Any]] = [(control(self._service), self._bind_unix(), ())]
        if self._with_probes:
            doors.append((port(self._service, self._host), self._bind_tcp(), SAFE_HEADERS))
        for application, listener, headers in doors:
            config = BoundedConfig(application, self._bounds, headers, log_config=None, access_log=False,
                                   lifespan="off", ws="none", timeout_graceful_shutdown=1,
                                   server_header=False)  # fmt: skip
            listener.listen(config.backlog)  # clients that connect before the thread serves have to wait
            self._servers.append(uvicorn.Server(config))
            self._sockets.append(listener)
        self._thread = threading.Thread(target=self._serve, name="spar front", daemon=True)
        self._thread.start()

    def close(self, timeout: float = 3.0) -> None:
        """Stop serving and remove the Unix socket; wait at most `timeout` seconds. Idempotent."""
        for server in self._servers:
            server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout)
        for listener in self._sockets:
            listener.close()
        if self._sockets:
            (self._state_dir / SOCKET_NAME).unlink(missing_ok=True)
        self._sockets, self._servers = [], []

    def _serve(self) -> None:
        async def serve() -> None:
            pairs = zip(self._servers, self._sockets, strict=True)
            await asyncio.gather(*(server.serve(sockets=[listener]) for server, listener in pairs))

        with suppress(asyncio.CancelledError):
            asyncio.run(serve())

    def _bind_unix(self) -> socket.socket:
        path = self._state_dir / SOCKET_NAME
        path.unlink(missing_ok=True)  # this process holds the lock on the directory, so no other one listens there
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old = os.umask(0o177)
        try:
            with short_path(path) as reachable:
                listener.bind(reachable)
        except OSError as error:
            listener.close()
            sentence = f"service.state_dir = {str(self._state_dir)!r}: no socket can be made there: {error.strerror}"
            raise ConfigError(sentence, path=("service", "state_dir")) from None
        finally:
            os.umask(old)
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        return listener

    def _bind_tcp(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        # The protocol is named, or asyncio sets no TCP_NODELAY.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._host, self.port))
        except OSError as error:
            listener.close()
            raise ConfigError(
                f"service.port = {self.port}: cannot listen on {self._host}:{self.port}: {error.strerror}; "
                "choose another port, 0 for any free one, or service.probes = false",
                path=("service", "port"),
            ) from None
        self.port = listener.getsockname()[1]
        return listener


@contextmanager
def served(service: Service) -> Iterator[str]:
    """Serve a service by its settings; yield the URL of the probes, "" without them.

    Raises: ConfigError if an address cannot be bound.
    """
    settings = service.loaded.settings.service
    folder = Path(home_of(service.loaded).state)
    front = Front(service, folder, settings.host, settings.port, with_probes=settings.probes)
    try:
        front.open()
        yield front.address
    finally:
        front.close()
