"""Senders of messages under `/v1`: list them, pair one by its code; allow, deny and forget one by name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from spar.channels.senders import Senders, SenderView
from spar.records.audit import refine
from spar.records.senders import SenderStatus
from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.api.route import ApiRoute
from spar.server.peers import peer_of

if TYPE_CHECKING:
    from spar.service.app import Service

Terms = Literal["trusted", "untrusted"]


class SendersQuery(msgspec.Struct, frozen=True):
    """Query of a list of senders."""

    status: Annotated[SenderStatus | None, Meta(description="Only with this status.")] = None


class PairBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a pairing: the code that the sender received, the person's name, and the trust in its text."""

    code: str
    person: str = ""
    trust: Terms = "trusted"


class AllowBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body that allows a sender by name."""

    sender: str
    person: str = ""
    trust: Terms = "trusted"


class SenderBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body that names a sender."""

    sender: str


def sender_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of senders."""

    async def ask(question: Callable[[Senders], Coroutine[Any, Any, Any]]) -> Response:
        agent = service.agent("")
        return reply(await on_loop(agent, question(agent.senders), PATIENCE))

    async def senders(request: Request, query: SendersQuery) -> Response:
        """List the senders that the settings name or that have written."""

        async def work(table: Senders) -> Any:
            return table.list(query.status)

        return await ask(work)

    async def pair(request: Request, body: PairBody) -> Response:
        """Allow the sender that received a code."""
        refine(subject=body.person, detail={"trust": body.trust})
        by = peer_of(request)
        return await ask(lambda table: table.pair(body.code, person=body.person, trust=body.trust, by=by))

    async def allow(request: Request, body: AllowBody) -> Response:
        """Allow a sender by name, without a code."""
        refine(subject=body.sender, detail={"trust": body.trust, "person": body.person})
        by = peer_of(request)
        return await ask(lambda table: table.allow(body.sender, person=body.person, trust=body.trust, by=by))

    async def deny(request: Request, body: SenderBody) -> Response:
        """Ignore all messages of a sender."""
        refine(subject=body.sender)
        by = peer_of(request)
        return await ask(lambda table: table.deny(body.sender, by=by))

    async def forget(request: Request, body: SenderBody) -> Response:
        """Delete the decision about a sender."""
        refine(subject=body.sender)
        return await ask(lambda table: table.forget(body.sender))

    return [
        ApiRoute("GET", "/v1/senders", senders, "read", answer=list[SenderView]),
        ApiRoute("POST", "/v1/senders:pair", pair, "admin", answer=SenderView),
        ApiRoute("POST", "/v1/senders:allow", allow, "admin", answer=SenderView),
        ApiRoute("POST", "/v1/senders:deny", deny, "admin", answer=SenderView),
        ApiRoute("POST", "/v1/senders:forget", forget, "admin", answer=SenderView),
    ]
