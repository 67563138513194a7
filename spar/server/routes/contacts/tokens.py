"""Tokens of programs under `/v1`: make one, list them, revoke one."""

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
    """Body that makes a token: its name, its rights, and for how many days it is good; without `days` until it is
    revoked."""

    name: str
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=20)]
    days: Annotated[float, Meta(gt=0, le=LONGEST_DAYS)] | None = None


def token_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of tokens."""

    async def tokens(request: Request) -> Response:
        """List the tokens: all but themselves."""
        return reply(await on_loop(service.agent(""), service.tokens.list(), PATIENCE))

    async def create(request: Request, body: TokenBody) -> Response:
        """Make a token and return it; it is told to nobody again."""
        refine(subject=body.name, detail={"scopes": body.scopes, "days": body.days})
        work = service.tokens.create(body.name, body.scopes, days=body.days, by=peer_of(request))
        return reply(await on_loop(service.agent(""), work, PATIENCE), 201)

    async def revoke(request: Request) -> Response:
        """Revoke a token: it is good for nothing any more, and streams that it has opened end."""
        work = service.tokens.revoke(request.path_params["name"])
        return reply(await on_loop(service.agent(""), work, PATIENCE))

    return [
        ApiRoute("GET", "/v1/tokens", tokens, "admin", answer=list[TokenView]),
        ApiRoute("POST", "/v1/tokens", create, "admin", status=201, answer=NewToken),
        ApiRoute("DELETE", "/v1/tokens/{name}", revoke, "admin", answer=TokenView),
    ]
