"""Limit for the size of a request's body: by what its head says, and while it is read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect

from spar.server.problems import problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Bytes of a body.
LARGEST_BODY: Final = 1024 * 1024
#: Seconds for which what a peer sends too much is still taken, so that it comes to read the answer.
_LINGER: Final = 2.0


class _TooLargeError(Exception):
    """The peer has sent more than it may."""


class BoundedBodies:
    """An application that no body above `LARGEST_BODY` reaches: it is answered 413 and the connection ends."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
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
            return  # it went before it had sent everything; nobody is there to be answered


def _declared(scope: Scope) -> int:
    """Return the length that the head gives; the protocol has seen to it that it is a number, if any."""
    value = dict(scope["headers"]).get(b"content-length", b"0")
    return int(value) if value.isdigit() else 0


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
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
