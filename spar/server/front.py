"""The thread that serves HTTP on the Unix socket of a service, and on its port if probes are enabled.

`port` is the application of the port: probes, metrics and hooks, and the control API for clients with a token.

The thread has its own event loop. Sockets are bound before it starts, so that a port in use is an error of the start
instead of a log line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request

from spar.config.factory import home_of
from spar.errors import ConfigError, NotReadyError
from spar.net.control_socket import SOCKET_NAME, short_path
from spar.server.access.access import Access, AccessRefusedError
from spar.server.access.sessions import HostNames, url_host
from spar.server.connections import BoundedConfig, Bounds
from spar.server.problems import BodyRefusedError, lengths_of, on_error, on_hidden_defect, refuse
from spar.server.routes.applications import control, probes
from spar.service.app import Service

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from spar.service.app import Service


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

        with contextlib.suppress(asyncio.CancelledError):
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


def front_of(service: Service) -> Front:
    """Return the HTTP servers of a service by its settings, not yet open."""
    settings = service.loaded.settings.service
    folder = Path(home_of(service.loaded).state)
    return Front(service, folder, settings.host, settings.port, with_probes=settings.probes)
