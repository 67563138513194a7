"""Errors over HTTP as problem+json (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any, Literal

from msgspec import Struct, to_builtins
from starlette.requests import Request
from starlette.responses import Response

from spar.errors import ConfigError, ConflictError, InboxFullError, LifecycleError, NoRoomError, TransientError
from spar.records.approvals import DigestMismatchError

#: What an exception of the agent means to whoever called over HTTP.
STATUS_OF: tuple[tuple[type[Exception], int], ...] = (
    (LifecycleError, 409),
    (DigestMismatchError, 409),
    (ConflictError, 409),
    (TransientError, 503),
    (ConfigError, 400),  # and nothing else is: the command line tells a bad configuration by it
    (NoRoomError, 507),
    (InboxFullError, 429),
    (PermissionError, 403),
    (LookupError, 404),
    (ValueError, 422),
    (TypeError, 422),
    (TimeoutError, 504),
)


#: States in which a service is not open yet, or not any more: what is refused then may be asked of it again later.
CLOSED = ("created", "stopping", "stopped")


class ProblemBody(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Body of a refusal; `scope` is the right that a token needs for what was asked, where it has not got it."""

    type: Literal["about:blank"]
    title: str
    status: int
    detail: str
    scope: str = ""


def problem(status: int, detail: str, *, retry_after: float | None = None, scope: str = "") -> Response:
    """An error as problem+json.

    Args: retry_after: seconds after which the same may be asked again; scope: the right that is needed.
    """
    headers = None if retry_after is None else {"retry-after": str(max(1, ceil(retry_after)))}
    body = ProblemBody(type="about:blank", title=HTTPStatus(status).phrase, status=status, detail=detail, scope=scope)
    return Response(json.dumps(to_builtins(body)), status, headers, media_type="application/problem+json")


def status_of(error: Exception) -> int:
    if isinstance(error, LifecycleError) and error.state in CLOSED:
        return 503
    return next((status for kind, status in STATUS_OF if isinstance(error, kind)), 500)


async def on_error(request: Request, error: Exception) -> Response:
    detail = str(error.args[0]) if isinstance(error, LookupError) and error.args else str(error)
    retry_after = error.retry_after if isinstance(error, TransientError) else None
    return problem(status_of(error), detail or type(error).__name__, retry_after=retry_after)


#: The handlers of what a caller did wrong: answered, and no error of the server, which would log it with its stack.
REFUSALS: Mapping[Any, Any] = {kind: on_error for kind, _ in STATUS_OF}
