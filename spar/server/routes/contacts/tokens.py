"""Access tokens of programs under `/v1`: create, list, revoke."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from spar.records.audit import refine
from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.api.route import ApiRoute
from spar.server.peers import peer_of
from spar.service.token_rows import NewToken, Scope, TokenView
from spar.service.tokens import LONGEST_DAYS

if TYPE_CHECKING:
    from spar.service.app import Service


class TokenBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body that creates a token: its name, its scopes, and its validity in days (null: until it is revoked)."""

    name: str
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=20)]
    days: Annotated[float, Meta(gt=0, le=LONGEST_DAYS)] | None = None


def token_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of tokens."""

    async def tokens(request: Request) -> Response:
        """List the tokens, without their secret texts."""
        return reply(await on_loop(service.agent(""), service.tokens.list(), PATIENCE))

    async def create(request: Request, body: TokenBody) -> Response:
        """Create a token and return its text, which cannot be read again."""
        refine(subject=body.name, detail={"scopes": body.scopes, "days": body.days})
        work = service.tokens.create(body.name, body.scopes, days=body.days, by=peer_of(request))
        return reply(await on_loop(service.agent(""), work, PATIENCE), 201)

    async def revoke(request: Request) -> Response:
        """Revoke a token: it becomes invalid, and the streams that it has opened end."""
        work = service.tokens.revoke(request.path_params["name"])
        return reply(await on_loop(service.agent(""), work, PATIENCE))

    return [
        ApiRoute("GET", "/v1/tokens", tokens, "admin", answer=list[TokenView]),
        ApiRoute("POST", "/v1/tokens", create, "admin", status=201, answer=NewToken),
        ApiRoute("DELETE", "/v1/tokens/{name}", revoke, "admin", answer=TokenView),
    ]
