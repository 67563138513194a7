"""Errors over HTTP as problem+json (RFC 9457), and the limit for the size of a request's body: checked in the head's
`Content-Length`, and while the body is read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, to_builtins
from starlette.requests import Request
from starlette.responses import Response

from spar.errors import ConfigError, ConflictError, InboxFullError, LifecycleError, NoRoomError, TransientError
from spar.operations.operation import GoneError
from spar.records.approvals import DigestMismatchError

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


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


#: Largest body, in bytes.
LARGEST_BODY: Final = 1024 * 1024
#: Seconds for which the rest of a refused body is read and dropped, so that the peer can read the answer.
_LINGER: Final = 2.0


class BodyRefusedError(Exception):
    """Refusal of a body, after which the connection ends."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def lengths_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers that tell where the body of a request ends. Raises: BodyRefusedError if there are two."""
    heads = {name: value for name, value in scope["headers"] if name in (b"content-length", b"transfer-encoding")}
    if len(heads) == 2:  # RFC 9112, 6.3: an attack
        raise BodyRefusedError(400, "a request has a Content-Length or a Transfer-Encoding, not both")
    return heads


def bounded(scope: Scope, receive: Receive) -> Receive:
    """Return the function that receives the messages of a request; it refuses a body above `LARGEST_BODY`.

    Raises: BodyRefusedError for a head that tells of a larger body, or of the length in two ways.
    """
    heads = lengths_of(scope)
    declared = heads.get(b"content-length", b"")
    size = int(declared) if declared.isdigit() else 0

    def check() -> None:
        if size > LARGEST_BODY:
            raise BodyRefusedError(413, f"the body is larger than {LARGEST_BODY} bytes, the most that is taken")

    check()
    if not heads or declared == b"0":
        return receive
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        check()
        return message

    return counted


class _LastAnswer(Response):
    """Answer that ends its connection, after the rest of the body was read for at most `_LINGER` seconds."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        try:
            async with asyncio.timeout(_LINGER):
                while (await receive()).get("more_body"):
                    pass
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def refuse(request: Request, refusal: BodyRefusedError) -> Response:
    """Return the answer to a request whose body is refused; with it the connection ends."""
    answer = problem(refusal.status, str(refusal))
    return _LastAnswer(answer.body, answer.status_code, {"connection": "close"}, answer.media_type)


#: Handler of refusals for an application.
HANDLERS: Final[dict[Any, Any]] = {BodyRefusedError: refuse}
