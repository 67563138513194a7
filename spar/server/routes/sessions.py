"""Sessions under `/v1`: list, show, change titles and defaults, reset, forget.

A slash in the key of a session may be escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from spar.records.audit import refine
from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.api.route import ApiRoute
from spar.server.peers import peer_of
from spar.session.control.session_control import LARGEST_PAGE, USUAL_PAGE, SessionPage, SessionView

if TYPE_CHECKING:
    from spar.service.app import Service

#: Seconds that resetting or forgetting may take: a running run ends first.
LONG_WITHIN = 120.0


class SessionsQuery(msgspec.Struct, frozen=True):
    """Query of a list of sessions."""

    limit: Annotated[int, Meta(ge=1, le=LARGEST_PAGE, description="How many.")] = USUAL_PAGE
    after: Annotated[str, Meta(description="The place where the page begins: `next` of the page before.")] = ""


class SessionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a change: a title, and default options of the session's runs by name; null removes an option."""

    title: str | UnsetType = UNSET
    defaults: dict[str, Any] | UnsetType = UNSET


def session_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of sessions."""

    async def sessions(request: Request, query: SessionsQuery) -> Response:
        """List the sessions, the last used one first; `next` is the place where the next page begins."""
        agent = service.agent("")
        return reply(await on_loop(agent, agent.session_control.list(query.limit, query.after), PATIENCE))

    async def session(request: Request) -> Response:
        """Return one session."""
        agent = service.agent("")
        return reply(await on_loop(agent, agent.session_control.show(_key(request)), PATIENCE))

    async def change(request: Request, body: SessionBody) -> Response:
        """Set the title or the defaults of a session and return it; null removes a default."""
        agent = service.agent("")
        title = None if body.title is UNSET else body.title
        defaults = None if body.defaults is UNSET else body.defaults
        refine(detail={"title": title, "defaults": defaults})
        work = agent.session_control.change(_key(request), title=title, defaults=defaults)
        return reply(await on_loop(agent, work, PATIENCE))

    async def reset(request: Request) -> Response:
        """Reset a session and return it: its next message begins a conversation, its runs end with reason `reset`."""
        agent = service.agent("")
        work = agent.session_control.reset(_key(request), peer_of(request))
        return reply(await on_loop(agent, work, LONG_WITHIN))

    async def forget(request: Request) -> Response:
        """Delete a session with its transcript, cycles, runs and workspace."""
        agent = service.agent("")
        work = agent.session_control.forget(_key(request), peer_of(request))
        return reply({"deleted": await on_loop(agent, work, LONG_WITHIN)})

    return [
        ApiRoute("GET", "/v1/sessions", sessions, "read", answer=SessionPage),
        ApiRoute("POST", "/v1/sessions/{key:path}:reset", reset, "operate", answer=SessionView),
        ApiRoute("GET", "/v1/sessions/{key:path}", session, "read", answer=SessionView),
        ApiRoute("PATCH", "/v1/sessions/{key:path}", change, "operate", answer=SessionView),
        ApiRoute("DELETE", "/v1/sessions/{key:path}", forget, "admin"),
    ]


def _key(request: Request) -> str:
    key: str = request.path_params["key"]
    return key
