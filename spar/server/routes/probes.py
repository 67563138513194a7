"""`/livez`, `/startupz`, `/readyz`, `/metrics`: no I/O, no authentication, loopback only; beside them the hooks.

Alive means that the event loop answers; ready means that cycles complete, or that a person paused them. A probe is
answered from timestamps that the work leaves behind, never by asking the work. Requests that do not name this
machine as their host are refused, so that no web page can read them through a browser (DNS rebinding).
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.server.bodies import BoundedBodies
from spar.server.problems import problem
from spar.server.routes.hooks import hook_route

if TYPE_CHECKING:
    from spar.service.app import Service

#: A `Host` header of this machine, with or without a port.
_LOCAL = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?", re.ASCII | re.IGNORECASE)


def probes(service: Service, *, any_host: bool = False) -> Starlette:
    """The application that answers probes and scrapes and takes what is posted to hooks.

    Args: any_host: it listens to other machines on purpose.
    """

    async def metrics(request: Request) -> Response:
        """Return the metrics as Prometheus text, or as OpenMetrics if the client asks for it."""
        body, content_type = service.metrics.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def livez(request: Request) -> Response:
        """Answer 200 while the event loop answers; 503 once it was blocked for 15 s."""
        return _answer(*service.alive())

    async def startupz(request: Request) -> Response:
        """Answer 200 once the service has started, until it drains."""
        return _answer(*service.started())

    async def readyz(request: Request) -> Response:
        """Answer 200 while cycles complete or a person has paused them, and the disk has room."""
        return _answer(*service.ready())

    def at(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
        @wraps(endpoint)
        async def guarded(request: Request) -> Response:
            host = request.headers.get("host")
            if host is None:  # as HTTP/1.0 allows it: nothing says that it is not a web page's request
                return problem(400, "a request must say which host it is for")
            if any_host or is_local(host):
                return await endpoint(request)
            return problem(421, f"host {host!r} is not served here; known: localhost, 127.0.0.1, [::1]")

        return Route(path, guarded)

    aliases = {"/livez": livez, "/healthz": livez, "/startupz": startupz, "/readyz": readyz, "/metrics": metrics}
    routes = [at(path, endpoint) for path, endpoint in aliases.items()]
    routes.append(hook_route(service, any_host=any_host, is_local=is_local))
    return Starlette(routes=routes, middleware=[Middleware(BoundedBodies)])


def is_local(host: str) -> bool:
    """Return whether a `Host` header names this machine, as seen from itself."""
    return _LOCAL.fullmatch(host) is not None


def _answer(is_well: bool, report: dict[str, Any]) -> Response:
    return Response(json.dumps(report), 200 if is_well else 503, media_type="application/json")
