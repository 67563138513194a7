"""Security headers of all answers of the port: browsers neither render, store nor sniff them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: See https://www.w3.org/TR/CSP3/ and RFC 9111, 5.2.2.5.
SAFE: Final = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class SafeHeaders:
    """Middleware that adds the headers of `SAFE` to each answer that does not have them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ())]
                names = {name.lower() for name, _ in headers}
                message = {**message, "headers": [*headers, *(header for header in SAFE if header[0] not in names)]}
            await send(message)

        await self._app(scope, receive, sending)
