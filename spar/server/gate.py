"""Availability of the control API while the agent starts and stops.

While the agent starts, its memory and its journal are not open: only the status and the stop are served. While it
stops, it accepts no work and no decisions; runs, cycles and the memory can still be read. A request that fails because
the agent ended meanwhile is answered 503, since that is no error of the server.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request

from spar.errors import NotReadyError
from spar.server.problems import CLOSED, on_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from spar.service.app import Service

#: Requests that are served at any time: methods, beginning and end of the path.
ALWAYS = ((("GET", "HEAD"), "/v1/status", ""), (("POST",), "/v1/agents/", ":stop"))
#: Requests that are also served while the agent stops.
WHILE_STOPPING = (
    (("GET", "HEAD"), "/v1/runs/", ""),
    (("POST",), "/v1/runs/", ":abort"),
    (("GET", "HEAD"), "/v1/cycles", ""),
    (("GET", "HEAD"), "/v1/memory/", ""),
)


class AvailabilityMiddleware:
    """Middleware that refuses requests to the control API while its service is not open."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        agent, has_answered = self._service.agent(""), False

        async def answering(message: Message) -> None:
            nonlocal has_answered
            has_answered = True
            await send(message)

        async def refuse(error: NotReadyError) -> None:
            await (await on_error(Request(scope), error))(scope, receive, send)

        try:
            if not self._is_answered_now(scope):
                self._service.demand_open()
            await self._app(scope, receive, answering)
        except NotReadyError as error:
            await refuse(error)
        except (Exception, asyncio.CancelledError):
            if has_answered or agent.core.state not in CLOSED:
                raise
            await refuse(NotReadyError(f"agent {agent.name!r} is {agent.core.state}: it ended before it could answer"))

    def _is_answered_now(self, scope: Scope) -> bool:
        """Return whether a request is served in the present state of the agent."""
        if scope["type"] != "http":
            return True
        is_stopping = self._service.agent("").core.state in ("stopping", "stopped")
        patterns = (*ALWAYS, *WHILE_STOPPING) if is_stopping else ALWAYS
        method, path = scope["method"], scope["path"]
        return any(
            method in methods and path.startswith(first) and path.endswith(last) for methods, first, last in patterns
        )
