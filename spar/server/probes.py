"""`/livez`, `/startupz`, `/readyz`, `/metrics`: no I/O, no authentication, loopback only.

Alive means that the event loop answers; ready means that cycles complete, or that a person paused them. A probe is
answered from timestamps that the work leaves behind, never by asking the work. Requests that do not name this
machine as their host are refused, so that no web page can read them through a browser (DNS rebinding).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.server.problems import problem

if TYPE_CHECKING:
    from spar.app import Service

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


def probes(service: Service) -> Starlette:
    """The application that answers probes and scrapes."""

    async def metrics(request: Request) -> Response:
        body, content_type = service.metrics.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def livez(request: Request) -> Response:
        return _answer(*service.alive())

    async def startupz(request: Request) -> Response:
        return _answer(*service.started())

    async def readyz(request: Request) -> Response:
        return _answer(*service.ready())

    def at(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
        async def guarded(request: Request) -> Response:
            host = request.headers.get("host", "").rsplit(":", 1)[0] or "127.0.0.1"
            if host not in LOCAL_HOSTS:
                return problem(421, f"host {host!r} is not served here; known: localhost, 127.0.0.1, [::1]")
            return await endpoint(request)

        return Route(path, guarded)

    aliases = {"/livez": livez, "/healthz": livez, "/startupz": startupz, "/readyz": readyz, "/metrics": metrics}
    return Starlette(routes=[at(path, endpoint) for path, endpoint in aliases.items()])


def _answer(is_well: bool, report: dict[str, Any]) -> Response:
    return Response(json.dumps(report), 200 if is_well else 503, media_type="application/json")
