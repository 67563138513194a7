"""Limit for the size of a request's body: checked in the head's `Content-Length`, and while the body is read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from spar.server.problems import problem

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

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
