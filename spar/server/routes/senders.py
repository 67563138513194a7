"""Senders of messages under `/v1`: list them, pair one by its code, allow, deny and forget them by name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.channels.senders import Senders
from spar.records.audit import refine
from spar.records.senders import SenderStatus
from spar.server.answers import PATIENCE, decoded, on_loop, reply
from spar.server.routes.review import peer_of

if TYPE_CHECKING:
    from spar.service.app import Service

Terms = Literal["trusted", "untrusted"]


class PairBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a pairing: the code that the sender was told, who it is, and how far its text is trusted."""

    code: str
    person: str = ""
    trust: Terms = "trusted"


class AllowBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body that lets a sender in by name."""

    sender: str
    person: str = ""
    trust: Terms = "trusted"


class SenderBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body that names a sender."""

    sender: str


def sender_routes(service: Service) -> list[Route]:
    """Return the routes of senders."""

    async def ask(question: Callable[[Senders], Coroutine[Any, Any, Any]]) -> Response:
        agent = service.agent("")
        return reply(await on_loop(agent, question(agent.senders), PATIENCE))

    async def senders(request: Request) -> Response:
        """List the senders that settings name or that were met; `status` is waiting, allowed or denied."""
        status = request.query_params.get("status")
        known = get_args(SenderStatus)
        if status is not None and status not in known:
            raise ValueError(f"status = {status[:40]!r}: must be one of {', '.join(known)}")

        async def work(known: Senders) -> Any:
            return known.list(status)

        return await ask(work)

    async def pair(request: Request) -> Response:
        """Let the sender in that was told `{code, person?, trust?}`."""
        body = decoded(await request.body(), PairBody)
        refine(subject=body.person, detail={"trust": body.trust})
        by = peer_of(request)
        return await ask(lambda known: known.pair(body.code, person=body.person, trust=body.trust, by=by))

    async def allow(request: Request) -> Response:
        """Let `{sender, person?, trust?}` in, without a code."""
        body = decoded(await request.body(), AllowBody)
        refine(subject=body.sender, detail={"trust": body.trust, "person": body.person})
        by = peer_of(request)
        return await ask(lambda known: known.allow(body.sender, person=body.person, trust=body.trust, by=by))

    async def deny(request: Request) -> Response:
        """Never listen to `{sender}`, nor answer it."""
        body = decoded(await request.body(), SenderBody)
        refine(subject=body.sender)
        by = peer_of(request)
        return await ask(lambda known: known.deny(body.sender, by=by))

    async def forget(request: Request) -> Response:
        """Forget what was decided about `{sender}`."""
        body = decoded(await request.body(), SenderBody)
        refine(subject=body.sender)
        return await ask(lambda known: known.forget(body.sender))

    return [
        Route("/v1/senders", senders),
        Route("/v1/senders:pair", pair, methods=["POST"]),
        Route("/v1/senders:allow", allow, methods=["POST"]),
        Route("/v1/senders:deny", deny, methods=["POST"]),
        Route("/v1/senders:forget", forget, methods=["POST"]),
    ]
