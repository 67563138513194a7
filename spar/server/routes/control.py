"""Application of the control API under `/v1`: a route for each operation, and the document that describes them.

The routes run in the server's thread. Operations of the agent run in its event loop, and the route waits for them with
a time limit; if that loop is blocked, the answer says by what.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from spar.operations.operation import Nothing, Operation
from spar.operations.table import operations
from spar.server.access.access import Access
from spar.server.api.dispatch import OperationRoute
from spar.server.api.openapi import document, plain_path
from spar.server.api.repeated import Repeated
from spar.server.bodies import HANDLERS
from spar.server.problems import REFUSALS, on_defect, problem

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
