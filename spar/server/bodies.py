"""Limit for the size of a request's body: checked in the head's `Content-Length`, and while the body is read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect

from spar.server.problems import problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Largest body, in bytes.
LARGEST_BODY: Final = 1024 * 1024
#: Seconds for which the rest of a too large body is read and dropped, so that the peer can read the answer.
_LINGER: Final = 2.0


class _TooLargeError(Exception):
    """Error for a body above the limit."""


class BoundedBodies:
    """Middleware that answers 413 to a request with a body above `LARGEST_BODY`, and ends its connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if {b"content-length", b"transfer-encoding"} <= dict(scope["headers"]).keys():  # RFC 9112, 6.3: an attack
            answer = problem(400, "a request has a Content-Length or a Transfer-Encoding, not both")
            answer.headers["connection"] = "close"
            await answer(scope, receive, send)
            return
        size, has_answered = 0, False

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:
                raise _TooLargeError
            return message

        async def answering(message: Message) -> None:
            nonlocal has_answered
            has_answered = True
            await send(message)

        try:
            if _declared(scope) > LARGEST_BODY:
                raise _TooLargeError
            await self._app(scope, counted, answering)
        except _TooLargeError:
            if has_answered:
                raise
            await _refuse(scope, receive, send)
        except ClientDisconnect:
            return  # the client left before it had sent the whole body


def _declared(scope: Scope) -> int:
    """Return the length of the body by `Content-Length`, 0 without one."""
    value = dict(scope["headers"]).get(b"content-length", b"0")
    return int(value) if value.isdigit() else 0


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 413, and read on for `_LINGER` seconds so that the peer can read the answer."""
    answer = problem(413, f"the body is larger than {LARGEST_BODY} bytes, the most that is taken")
    answer.headers["connection"] = "close"
    await send({"type": "http.response.start", "status": 413, "headers": answer.raw_headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    try:
        async with asyncio.timeout(_LINGER):
            while (await receive()).get("more_body"):
                pass
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})
