"""The console: its files, and the sign-in: `POST /console/session` exchanges a token for the cookie of a session.

`GET` says which token a session is of and what it may do, `DELETE` ends the session. The token comes in the body and
is kept nowhere; the page never sees the id of the session. All three are for pages of this port only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.console.pages import page_files
from spar.decoding import decode, encode
from spar.server.access import LONGEST, Access, AccessRefusedError, cookie_name
from spar.server.api.dispatch import HANDLERS, bounded
from spar.server.problems import REFUSALS, on_hidden_defect, problem
from spar.service.token_rows import TokenRow

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from spar.service.app import Service

#: The path of the session of a browser.
SESSION = "/console/session"


class SignIn(Struct, frozen=True, forbid_unknown_fields=True):
    """The token that a person enters."""

    token: str


def console(service: Service, access: Access, others: ASGIApp) -> ASGIApp:
    """Return an application that serves the console besides others. A file needs no token."""
    files, session = page_files(), sign_in(service, access)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path == SESSION:
            await session(scope, receive, send)
        elif scope.get("method") in ("GET", "HEAD") and (file := files.get(path)) is not None:
            headers = Headers(scope=scope)
            try:
                access.check_host(headers)
            except AccessRefusedError as refusal:
                answer = access.refuse(refusal)
            else:
                has_it = headers.get("if-none-match") == file.headers["etag"]
                answer = Response(status_code=304) if has_it else Response(file.content)
                answer.headers.update(file.headers)
            await answer(scope, receive, send)
        else:
            await others(scope, receive, send)

    return application


def sign_in(service: Service, access: Access) -> Starlette:
    """Return the application of the sign-in."""

    def view(token: TokenRow | None) -> Response:
        about = token and {"agent": service.agent.name, "token": token.name, "scopes": token.scopes,
                 "expires_at": token.expires_at}  # fmt: skip
        return Response(encode(about), media_type="application/json")

    async def show(request: Request) -> Response:
        """Say which token the session is of, null without one."""
        session = access.sessions.find(access.check_place(request.scope))
        return view(None if session is None else session.token)

    async def begin(request: Request) -> Response:
        """Exchange a token for the cookie of a session."""
        headers = access.check_place(request.scope)
        access.demand_own_page(headers)
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return problem(415, "the token comes as JSON: Content-Type: application/json")
        body = await Request(request.scope, bounded(request.scope, request.receive)).body()
        try:
            text = decode(body, SignIn).token
        except msgspec.DecodeError:
            return problem(422, 'the body must be {"token": "spar_…"}')
        token = await access.known(text, request.scope["client"][0])
        if (old := access.sessions.find(headers)) is not None:
            access.sessions.end(old)
        answer = view(token)
        # The browser says by which scheme it asked; a proxy that speaks TLS changes neither Origin nor Host.
        is_secure = headers.get("origin", "").casefold().startswith("https:")
        answer.set_cookie(cookie_name(headers, is_secure=is_secure), access.sessions.begin(token), int(LONGEST),
                          secure=is_secure, httponly=True, samesite="strict")  # fmt: skip
        return answer

    async def end(request: Request) -> Response:
        """End the session."""
        headers = access.check_place(request.scope)
        access.demand_own_page(headers)
        if (session := access.sessions.find(headers)) is not None:
            access.sessions.end(session)
        answer = Response(status_code=204)
        for is_secure in (True, False):
            answer.delete_cookie(cookie_name(headers, is_secure=is_secure), secure=is_secure, httponly=True,
                                 samesite="strict")  # fmt: skip
        return answer

    routes = [Route(SESSION, endpoint, methods=[method])
              for method, endpoint in (("GET", show), ("POST", begin), ("DELETE", end))]  # fmt: skip
    handlers = {**REFUSALS, **HANDLERS, **access.handlers, Exception: on_hidden_defect, 405: _wrong_method}
    return Starlette(routes=routes, exception_handlers=handlers)


async def _wrong_method(request: Request, error: Exception) -> Response:
    answer = problem(405, f"{request.method} is not what {SESSION!r} takes: GET, POST, DELETE")
    answer.headers["allow"] = "DELETE, GET, POST"
    return answer
