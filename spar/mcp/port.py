"""Streamable HTTP: each request has a token of the service, with which its calls are carried out.

Host and origin are checked as at the port of the service, and then the token, by the service itself, so that nobody
without one reaches the protocol. No session is kept between two requests.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import Response

from spar.client.async_client import AsyncClient
from spar.client.client import RefusedError, ServiceError
from spar.errors import ConfigError, TransientError
from spar.mcp.serving import server_of
from spar.operations.agent import StatusChoice, status
from spar.server.access import HostNames, url_host
from spar.server.front import SAFE_HEADERS, BoundedConfig, Bounds
from spar.server.problems import LARGEST_BODY, problem
from spar.service.token_rows import Scope

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as RequestScope

#: The path of the protocol.
PATH: Final = "/mcp"
_CHALLENGE: Final = 'Bearer realm="spar"'


def application(url: str, host: str, names: Collection[str], scopes: Collection[Scope]) -> ASGIApp:
    """Return the application.

    Args: url: of the port of the service; host: the address that is listened on; names: more host names.
    """
    hosts = HostNames(host, names)
    server = server_of(lambda request: AsyncClient(url, token=_token(request.headers)), scopes)
    protocol = server.streamable_http_app(
        streamable_http_path=PATH, stateless_http=True, max_request_body_size=LARGEST_BODY,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # checked here already
    )  # fmt: skip

    async def guarded(scope: RequestScope, receive: Receive, send: Send) -> None:
        refusal = await _refusal(Headers(scope=scope), hosts, url) if scope["type"] == "http" else None
        await (refusal or protocol)(scope, receive, send)

    return guarded


async def _refusal(headers: Headers, hosts: HostNames, url: str) -> Response | None:
    """Return the answer to a request that is not admitted."""
    host = headers.get("host", "")
    if not hosts.is_known(host):
        return problem(421, f"host {host[:100]!r} is not served here; --allow-host names others")
    if hosts.is_foreign(headers):
        return problem(403, "web pages of other origins may not ask here")
    if not (token := _token(headers)):
        return _unknown("a token is needed; spar tokens create NAME --scopes read makes one")
    try:
        await AsyncClient(url, token=token).answer(status, StatusChoice(lanes=False))
    except RefusedError as error:
        if error.status == 401:
            return _unknown(error.detail)
        if error.status != 403:  # a token without the scope `read` is one, too
            return problem(error.status, error.detail)
    except (ServiceError, TransientError) as error:
        return problem(503, str(error), retry_after=1.0)
    return None


def _unknown(detail: str) -> Response:
    answer = problem(401, detail)
    answer.headers["www-authenticate"] = _CHALLENGE
    return answer


def _token(headers: Any) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.casefold() == "bearer" else ""


async def serve_port(url: str, host: str, port: int, names: Collection[str], scopes: Collection[Scope],
                     began: Callable[[str], object] = lambda address: None) -> None:  # fmt: skip
    """Serve over HTTP until the process is told to end.

    Args: began: called with the address when it is served.
    Raises: ConfigError if the address cannot be bound.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port") from None
    config = BoundedConfig(application(url, host, names, scopes), Bounds(), log_config=None, access_log=False,
                           lifespan="on", ws="none", server_header=False, timeout_graceful_shutdown=1,
                           headers=SAFE_HEADERS)  # fmt: skip
    listener.listen(config.backlog)
    began(f"http://{url_host(host)}:{listener.getsockname()[1]}{PATH}")
    await uvicorn.Server(config).serve(sockets=[listener])
