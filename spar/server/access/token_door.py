"""Access check before the API at the port: a request needs a valid token; its route demands the scope.

Only the head is checked; the body of a refused request is not read. The peer of an admitted request is `token NAME`,
never the owner of the process. A long answer, such as a stream of events, ends when its token becomes invalid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from spar.errors import NotReadyError
from spar.server.access.access import Access, AccessRefusedError
from spar.server.access.browsers import HostNames
from spar.server.peers import peer_of
from spar.server.problems import on_error, problem
from spar.service.token_rows import TokenRow

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from spar.service.app import Service

#: Methods that change nothing.
READS: Final = frozenset({"GET", "HEAD"})


class _EndedError(OSError):
    """Error that ends an answer whose token has become invalid."""


class TokenDoor:
    """Middleware that admits only requests with a valid token.

    Args: hosts: the host names that are served.
    """

    def __init__(self, app: ASGIApp, service: Service, hosts: HostNames, access: Access) -> None:
        self._app, self._service = app, service
        self._hosts, self._access = hosts, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            token = await self._check(scope)
        except AccessRefusedError as refusal:
            await self._access.refuse(refusal)(scope, receive, send)
        except NotReadyError as error:
            await (await on_error(Request(scope), error))(scope, receive, send)
        else:
            inside = {**scope, "client": (f"token {token.name}", 0), "token": token}
            await self._serve(token, inside, receive, send)

    async def _check(self, scope: Scope) -> TokenRow:
        """Return the token of a request that is admitted. Raises: AccessRefusedError, NotReadyError."""
        headers = Headers(scope=scope)
        host = headers.get("host")
        if host is None:  # allowed by HTTP/1.0; without it a request of a web page cannot be recognized
            raise AccessRefusedError(400, "host", "a request must say which host it is for")
        if not self._hosts.is_known(host):
            raise AccessRefusedError(421, "host", f"host {host[:100]!r} is not served here; service.hosts names others")
        if self._hosts.is_foreign(headers):
            raise AccessRefusedError(403, "origin", "web pages of other origins may not ask here")
        return await self._access.token(headers, peer_of(Request(scope)))

    async def _serve(self, token: TokenRow, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an admitted request; end the answer to a read as soon as its token is invalid."""
        is_read, has_begun, has_ended = scope["method"] in READS, False, False

        async def sending(message: Message) -> None:
            nonlocal has_begun, has_ended
            if has_ended:
                raise _EndedError
            if not is_read or self._service.tokens.is_valid(token):
                has_begun = True
                await send(message)
                return
            has_ended = True
            if has_begun:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                await problem(401, "the token was revoked or has expired meanwhile")(scope, receive, send)
            raise _EndedError

        try:
            await self._app(scope, receive, sending)
        except (_EndedError, ClientDisconnect):
            if not has_ended:
                raise
