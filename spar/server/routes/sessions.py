"""Sessions under `/v1`: list and show them, set their titles and defaults, begin them anew, forget them.

A key with a slash in it is one segment when that is escaped, but need not be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.records.audit import refine
from spar.server.answers import PATIENCE, decoded, on_loop, reply
from spar.server.routes.review import peer_of
from spar.session.control.session_control import USUAL_PAGE

if TYPE_CHECKING:
    from spar.service.app import Service

#: Seconds that a reset or a forgetting may take: a run in hand ends first.
LONG_WITHIN = 120.0


class SessionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a change: a title, and options of the session's runs by name; null takes an option back."""

    title: str | UnsetType = UNSET
    defaults: dict[str, Any] | UnsetType = UNSET


def session_routes(service: Service) -> list[Route]:
    """Return the routes of sessions."""

    async def sessions(request: Request) -> Response:
        """List the sessions, the one that was used last first: `limit` (50) of them, `after` the `next` of a page."""
        agent, given = service.agent(""), request.query_params
        limit = given.get("limit", str(USUAL_PAGE))
        if not (limit.isascii() and limit.isdigit() and len(limit) <= 9):
            raise ValueError(f"limit = {limit[:40]!r}: must be a whole number")
        work = agent.session_control.list(int(limit), given.get("after", ""))
        return reply(await on_loop(agent, work, PATIENCE))

    async def session(request: Request) -> Response:
        """Return one session."""
        agent = service.agent("")
        return reply(await on_loop(agent, agent.session_control.show(_key(request)), PATIENCE))

    async def change(request: Request) -> Response:
        """Set `{title?, defaults?}` of a session and return it; a default that is null is taken back."""
        agent, body = service.agent(""), decoded(await request.body(), SessionBody)
        title = None if body.title is UNSET else body.title
        defaults = None if body.defaults is UNSET else body.defaults
        refine(detail={"title": title, "defaults": defaults})
        work = agent.session_control.change(_key(request), title=title, defaults=defaults)
        return reply(await on_loop(agent, work, PATIENCE))

    async def reset(request: Request) -> Response:
        """Begin a session anew and return it; its runs end with reason `reset`."""
        agent = service.agent("")
        work = agent.session_control.reset(_key(request), peer_of(request))
        return reply(await on_loop(agent, work, LONG_WITHIN))

    async def forget(request: Request) -> Response:
        """Delete what is kept of a session: transcript, cycles, runs, workspace, and the session itself."""
        agent = service.agent("")
        work = agent.session_control.forget(_key(request), peer_of(request))
        return reply({"deleted": await on_loop(agent, work, LONG_WITHIN)})

    return [
        Route("/v1/sessions", sessions),
        Route("/v1/sessions/{key:path}:reset", reset, methods=["POST"]),
        Route("/v1/sessions/{key:path}", session),
        Route("/v1/sessions/{key:path}", change, methods=["PATCH"]),
        Route("/v1/sessions/{key:path}", forget, methods=["DELETE"]),
    ]


def _key(request: Request) -> str:
    key: str = request.path_params["key"]
    return key
