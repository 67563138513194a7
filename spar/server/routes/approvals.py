"""Approvals and grants under `/v1`: what waits for people, and their answers.

A decision carries an id and the digest of what was shown, nothing that is run: the call that runs is the one that is
kept. Who decided is what the connection says, never the body.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from anyio import to_thread
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.records.approvals import Approval, ApprovalStatus, Approver, DecidedError, Decision
from spar.review.approvals import full
from spar.review.pending_approvals import approver_of
from spar.server.answers import PATIENCE, decoded, on_loop, reply
from spar.server.peers import UNKNOWN_PEER
from spar.server.problems import problem

if TYPE_CHECKING:
    from spar.service.app import Service

STATUSES = (*get_args(ApprovalStatus), "all")
#: What goes with which decision, and nothing else: what does not fit is refused rather than ignored.
GOES_WITH: dict[str, tuple[str, ...]] = {
    "params": ("edit",),
    "call": ("replace",),
    "grant_for": ("approve",),
    "grant_session": ("approve",),
}
LONGEST_REASON = 2000
#: States in which it is too late for an answer, though nobody gave one; what is pending still is just expiring.
GONE: tuple[ApprovalStatus, ...] = ("pending", "expired", "void")


class DecisionBody(msgspec.Struct, forbid_unknown_fields=True):
    digest: str
    decision: Decision
    reason: str = ""
    params: dict[str, Any] | None = None
    call: dict[str, Any] | None = None
    grant_for: float | None = None
    grant_session: bool | None = None

    def check(self) -> None:
        """Raises: ValueError for a field that does not go with the decision, or one that is missing."""
        for name, decisions in GOES_WITH.items():
            if getattr(self, name) is not None and self.decision not in decisions:
                raise ValueError(f"{name!r} goes with {decisions[0]!r} only, the decision is {self.decision!r}")
        for name in ("params", "call"):
            if self.decision in GOES_WITH[name] and getattr(self, name) is None:
                raise ValueError(f"{self.decision!r} needs {name!r}: what is to run instead")
        if len(self.reason) > LONGEST_REASON:
            raise ValueError(f"'reason' has {len(self.reason)} characters, at most {LONGEST_REASON} are kept")
        if self.grant_session is not None and self.grant_for is None:
            raise ValueError("'grant_session' needs 'grant_for': for how many seconds")


def approval_routes(service: Service) -> list[Route]:
    """What a service's control API offers about approvals."""

    async def ask(question: Callable[[Approver], Coroutine[Any, Any, Any]]) -> Any:
        agent = service.agent("")
        approver = approver_of(agent.setup)
        if approver is None:
            raise LookupError(f"agent {agent.name!r} keeps no approvals: its act module has nobody to ask")
        return await on_loop(agent, question(approver), PATIENCE)

    async def listed(request: Request) -> Response:
        """List approvals with `status` (`pending` if left out; `all` for all)."""
        status = request.query_params.get("status", "pending")
        if status not in STATUSES:
            raise ValueError(f"status = {status!r}: must be one of {', '.join(STATUSES)}")
        return reply(await ask(lambda approver: approver.list(None if status == "all" else status)))

    async def one(request: Request) -> Response:
        """Return an approval, with `text` for people."""
        return await told(await ask(lambda approver: approver.get(request.path_params["id"])))

    async def decide(request: Request) -> Response:
        """Decide: `{digest, decision, reason?, params?, call?, grant_for?, grant_session?}`."""
        body = decoded(await request.body(), DecisionBody)
        body.check()
        asked = await ask(lambda approver: approver.get(request.path_params["id"]))
        more = {} if body.grant_session is None else {"grant_session": body.grant_session}
        try:
            return await told(await ask(lambda approver: approver.decide(
                asked.id, body.digest, body.decision, by=peer_of(request), reason=body.reason, params=body.params,
                call=body.call, grant_for=body.grant_for, **more,
            )))  # fmt: skip
        except DecidedError as error:
            now = await ask(lambda approver: approver.get(asked.id))
            return problem(410 if now.status in GONE else 409, str(error))

    async def grants(request: Request) -> Response:
        """List the grants in force."""
        return reply(await ask(lambda approver: approver.grants()))

    async def revoke(request: Request) -> Response:
        """End a grant."""
        return reply(await ask(lambda approver: approver.revoke(request.path_params["id"])))

    return [
        Route("/v1/approvals", listed),
        Route("/v1/approvals/{id}", one),
        Route("/v1/approvals/{id}", decide, methods=["POST"]),
        Route("/v1/grants", grants),
        Route("/v1/grants/{id}", revoke, methods=["DELETE"]),
    ]


async def told(approval: Approval) -> Response:
    """An approval with `text`, which is what a person is to be shown: drawn here, from what is kept.

    A call may be megabytes long: drawing it must not keep the probes waiting.
    """
    text = await to_thread.run_sync(full, approval, datetime.now(UTC))
    return reply({**asdict(approval), "text": text})


def peer_of(request: Request) -> str:
    """Who is at the other end of the connection, as the server's protocol has found out."""
    return request.client.host if request.client is not None else UNKNOWN_PEER
