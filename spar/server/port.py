"""The application of the port: probes, metrics and hooks, and the control API for clients with a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request

from spar.errors import NotReadyError
from spar.server.access.access import Access, AccessRefusedError
from spar.server.access.browsers import HostNames
from spar.server.bodies import BodyRefusedError, lengths_of, refuse
from spar.server.problems import on_error, on_hidden_defect
from spar.server.routes.control import control
from spar.server.routes.probes import probes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from spar.service.app import Service

#: Headers of each answer: browsers neither render, store nor sniff it. See https://www.w3.org/TR/CSP3/ and RFC 9111,
#: 5.2.2.5.
SAFE_HEADERS: Final = (
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
)


def port(service: Service, listens_to: str) -> ASGIApp:
    """Return the application that the port serves. Args: listens_to: the address that it listens on."""
    hosts = HostNames(listens_to, service.loaded.settings.service.hosts)
    access = Access(service, hosts)
    api = control(service, access)
    others: ASGIApp = probes(service, hosts, access)
    if service.loaded.settings.service.console:
        from spar.server.routes.console import console

        others = console(service, access, others)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http":
                lengths_of(scope)  # of a request that ends in two places nothing is answered but this
            if scope["type"] != "http" or not (scope["path"] == "/v1" or scope["path"].startswith("/v1/")):
                await others(scope, receive, send)
                return
            await access.admit(scope)
        except BodyRefusedError as refusal:
            await (await refuse(Request(scope), refusal))(scope, receive, send)
        except AccessRefusedError as refusal:
            await access.refuse(refusal)(scope, receive, send)
        except NotReadyError as error:
            await (await on_error(Request(scope), error))(scope, receive, send)
        else:
            await api(scope, receive, send)

    return ServerErrorMiddleware(application, on_hidden_defect)
