"""Applications of the servers: the control API under `/v1`, a route for each operation and the document that describes
them; and probes and metrics (`/livez`, `/startupz`, `/readyz`, `/metrics`), with the hooks.

The routes run in the server's thread. Operations of the agent run in its event loop, and the route waits for them with
a time limit; if that loop is blocked, the answer says by what.

The probes need no token and do no I/O. Alive means that the event loop answers; ready means that cycles complete, or
that a person paused them. Probes are answered from timestamps that the agent writes, so they never wait for it. If the
port listens on a loopback address only, requests with another `Host` are refused, so that no web page can read the
answers through a browser (DNS rebinding). Other machines need a token for the metrics, unless `service.metrics` allows
them without one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from spar.errors import NotReadyError
from spar.operations.operation import Nothing, Operation, operations
from spar.server.access import Access, AccessRefusedError, HostNames, is_local, is_local_peer
from spar.server.api.dispatch import HANDLERS, OperationRoute, bounded
from spar.server.api.openapi import document, plain_path
from spar.server.api.repeated import Repeated
from spar.server.problems import REFUSALS, on_defect, on_error, on_hidden_defect, problem
from spar.server.routes.hooks import hook_route

if TYPE_CHECKING:
    from spar.service.app import Service


def control(service: Service, access: Access | None = None) -> Starlette:
    """Return the application of the control API of a service.

    Args: access: checks the scopes of tokens; None where every peer may do everything.
    """
    handlers = {**REFUSALS, **HANDLERS, Exception: on_defect, 404: _not_found, 405: _wrong_method}
    if access is not None:
        handlers |= access.handlers
    repeated = Repeated(service)
    return Starlette(
        # An id may hold a colon, so that a path with a verb behind the id fits the path without one, too.
        routes=[
            OperationRoute(operation, service, repeated, access)
            for operation in sorted(served(), key=lambda operation: "}:" not in operation.path)
        ],
        exception_handlers=handlers,
    )


def served() -> list[Operation[Any, Any]]:
    """Return the operations of the control API, in the order of its routes."""
    return [OPENAPI, *operations()]


def described() -> dict[str, Any]:
    """Return the OpenAPI document of the control API; it needs no service."""
    return document(served())


async def _openapi(service: Service, given: Nothing) -> dict[str, Any]:
    """Return this API as an OpenAPI document."""
    return described()


#: The description of the API, which is an operation of it.
OPENAPI: Operation[Nothing, dict[str, Any]] = Operation(
    _openapi, "openapi", "GET /v1/openapi.json", "read", where="service"
)


async def _wrong_method(request: Request, error: Exception) -> Response:
    answer = problem(405, f"{request.method} is not what {request.url.path!r} takes; {_known(request.url.path)}")
    fitting = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    path = max((route.path for route in fitting), key=len)  # the path that says most, as a verb after an id
    methods = {method for route in fitting if route.path == path for method in route.methods}
    answer.headers["allow"] = ", ".join(sorted(methods))
    return answer


async def _not_found(request: Request, error: Exception) -> Response:
    return problem(404, f"nothing at {request.url.path!r}; {_known(request.url.path)}")


def _known(path: str) -> str:
    """Return the clause that names the requests for the noun of a path, or the place of all."""
    noun = re.match(r"/v1/[^/:]*", path)
    known = [f"{operation.method} {plain_path(operation)}" for operation in served()
             if noun is not None and re.match(rf"{re.escape(noun[0])}(?![^/:])", operation.path)]  # fmt: skip
    return f"known: {', '.join(known)}" if known else "the API is under /v1; GET /v1/openapi.json describes it"


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
        """Answer 200 while cycles complete or a person has paused them, and the memory takes new work."""
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
    handlers = {**HANDLERS, Exception: on_hidden_defect, 404: _no_probe, 405: _wrong_method_of_probe}
    return Starlette(routes=routes, exception_handlers=handlers)


async def _no_probe(request: Request, error: Exception) -> Response:
    known = "/livez, /healthz, /startupz, /readyz, /metrics, /hooks/NAME, and the API under /v1"
    return problem(404, f"nothing at {request.url.path!r}; known: {known}")


async def _wrong_method_of_probe(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = problem(405, f"{request.method} is not what {request.url.path!r} takes")
    answer.headers.update(error.headers or {})
    return answer


def _answer(is_well: bool, report: dict[str, Any]) -> Response:
    return Response(json.dumps(report), 200 if is_well else 503, media_type="application/json")
