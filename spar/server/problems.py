"""Errors over HTTP as problem+json (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any, Final, Literal

from msgspec import Struct, to_builtins
from starlette.requests import Request
from starlette.responses import Response

from spar.errors import ConfigError, ConflictError, InboxFullError, LifecycleError, NoRoomError, TransientError
from spar.operations.operation import GoneError
from spar.records.approvals import DigestMismatchError

#: The HTTP status for each class of exceptions; the first class that fits counts.
STATUS_OF: tuple[tuple[type[Exception], int], ...] = (
    (LifecycleError, 409),
    (DigestMismatchError, 409),
    (GoneError, 410),
    (ConflictError, 409),
    (TransientError, 503),
    (ConfigError, 400),  # used for nothing else: the command line recognizes a bad configuration by 400
    (NoRoomError, 507),
    (InboxFullError, 429),
    (PermissionError, 403),
    (IndexError, 500),  # a defect: what is not known is a LookupError
    (LookupError, 404),
    (ValueError, 422),
    (TypeError, 422),
    (TimeoutError, 504),
)


#: States in which a service is not yet, or no longer, open; a client may repeat a request that was refused for that.
CLOSED = ("created", "stopping", "stopped")
#: Largest body of a request, in bytes; a larger one is answered 413.
LARGEST_BODY: Final = 1024 * 1024


class ProblemBody(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Body of a refusal. `scope` is the scope that the request's token lacks, "" for other refusals."""

    type: Literal["about:blank"]
    title: str
    status: int
    detail: str
    scope: str = ""


def problem(status: int, detail: str, *, retry_after: float | None = None, scope: str = "") -> Response:
    """Return an error as problem+json.

    Args: retry_after: seconds after which the client may repeat the request; scope: the scope that a token needs.
    """
    headers = None if retry_after is None else {"retry-after": str(max(1, ceil(retry_after)))}
    body = ProblemBody(type="about:blank", title=HTTPStatus(status).phrase, status=status, detail=detail, scope=scope)
    return Response(json.dumps(to_builtins(body)), status, headers, media_type="application/problem+json")


def status_of(error: Exception) -> int:
    """Return the HTTP status for an exception: 500 if `STATUS_OF` has none."""
    if isinstance(error, LifecycleError) and error.state in CLOSED:
        return 503
    return next((status for kind, status in STATUS_OF if isinstance(error, kind)), 500)


async def on_error(request: Request, error: Exception) -> Response:
    """Return the answer for an exception of a handler. Raises: the error if it is a defect, which the server logs."""
    if isinstance(error, IndexError):
        raise error
    detail = str(error.args[0]) if isinstance(error, LookupError) and error.args else str(error)
    retry_after = error.retry_after if isinstance(error, TransientError) else None
    return problem(status_of(error), detail or type(error).__name__, retry_after=retry_after)


async def on_defect(request: Request, error: Exception) -> Response:
    """Return the answer for an error that no other handler answered; the server logs it with its stack."""
    return problem(status_of(error), str(error) or type(error).__name__)


async def on_hidden_defect(request: Request, error: Exception) -> Response:
    """Return the answer for an error of a route that needs no token: it says nothing of the error."""
    return problem(500, "this could not be answered; the log of the service says why")


#: Exception handlers for errors of the caller. Without one the server would log the error as its own, with a stack.
REFUSALS: Mapping[Any, Any] = {kind: on_error for kind, _ in STATUS_OF}
