"""Probes and metrics: `/livez`, `/startupz`, `/readyz`, `/metrics`; the application has the hooks, too.

The probes need no token and do no I/O. Alive means that the event loop answers; ready means that cycles complete, or
that a person paused them. Probes are answered from timestamps that the agent writes, so they never wait for it. If the
port listens on a loopback address only, requests with another `Host` are refused, so that no web page can read the
answers through a browser (DNS rebinding). Other machines need a token for the metrics, unless `service.metrics` allows
them without one.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.errors import NotReadyError
from spar.server.access.access import Access, AccessRefusedError
from spar.server.access.browsers import HostNames, is_local, is_local_peer
from spar.server.bodies import HANDLERS, bounded
from spar.server.problems import on_error, on_hidden_defect, problem
from spar.server.routes.hooks import hook_route

if TYPE_CHECKING:
    from spar.service.app import Service


def probes(service: Service, hosts: HostNames, access: Access) -> Starlette:
    """Return the application of probes, metrics and hooks."""

    async def metrics(request: Request) -> Response:
        """Return the metrics as Prometheus text, or as OpenMetrics if the client asks for it."""
        terms = service.loaded.settings.service.metrics
        peer = request.scope["client"][0]
        if terms == "token" or (terms == "local" and not is_local_peer(peer)):
            try:
                access.demand(await access.token(request.headers, peer), "read")
            except AccessRefusedError as refusal:
                return access.refuse(refusal)
            except NotReadyError as error:
                return await on_error(request, error)
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
        """Return the route of an endpoint; the host and the size of the body are checked first."""

        @wraps(endpoint)
        async def guarded(request: Request) -> Response:
            bounded(request.scope, request.receive)
            host = request.headers.get("host")
            if host is None:  # allowed by HTTP/1.0; without it a request of a web page cannot be recognized
                return problem(400, "a request must say which host it is for")
            if hosts.is_open or hosts.is_known(host):
                return await endpoint(request)
            return problem(421, f"host {host!r} is not served here; known: localhost, 127.0.0.1, [::1]")

        return Route(path, guarded)

    aliases = {"/livez": livez, "/healthz": livez, "/startupz": startupz, "/readyz": readyz, "/metrics": metrics}
    routes = [at(path, endpoint) for path, endpoint in aliases.items()]
    routes.append(hook_route(service, any_host=hosts.is_open, is_local=is_local))
    return Starlette(
        routes=routes,
        exception_handlers={**HANDLERS, Exception: on_hidden_defect, 404: _not_found, 405: _wrong_method},
    )


_KNOWN: Final = "/livez, /healthz, /startupz, /readyz, /metrics, /hooks/NAME, and the API under /v1"


async def _not_found(request: Request, error: Exception) -> Response:
    return problem(404, f"nothing at {request.url.path!r}; known: {_KNOWN}")


async def _wrong_method(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = problem(405, f"{request.method} is not what {request.url.path!r} takes")
    answer.headers.update(error.headers or {})
    return answer


def _answer(is_well: bool, report: dict[str, Any]) -> Response:
    return Response(json.dumps(report), 200 if is_well else 503, media_type="application/json")
