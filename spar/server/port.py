"""The application of the port: probes, metrics and hooks, and the control API for clients with a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spar.server.access.access import Access
from spar.server.access.browsers import HostNames
from spar.server.access.safe_headers import SafeHeaders
from spar.server.access.token_door import TokenDoor
from spar.server.routes.control import control
from spar.server.routes.probes import probes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from spar.service.app import Service


def port(service: Service, listens_to: str) -> ASGIApp:
    """Return the application that the port serves. Args: listens_to: the address that it listens on."""
    hosts = HostNames(listens_to, service.loaded.settings.service.hosts)
    access = Access(service)
    api, others = TokenDoor(control(service, access), service, hosts, access), probes(service, hosts, access)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        is_api = scope["type"] == "http" and (scope["path"] == "/v1" or scope["path"].startswith("/v1/"))
        await (api if is_api else others)(scope, receive, send)

    return SafeHeaders(application)
