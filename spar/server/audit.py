"""Audit of the control API: each request that changes something leaves one entry, independent of its handler.

A request that ended with an error of the service, or took too long, may have changed something, and leaves an entry,
too. `ACTIONS` names the action of each route. The action of a route that is missing there is its method and path, so
that no change is without an entry. The actor is the peer of the socket or the token, never a name from the body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from spar.errors import SparError
from spar.observe.logs import get_logger
from spar.ports.optional import offers
from spar.records.audit import AuditDraft, AuditEntry, AuditLog, KeepsAudit, auditing, current
from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.api.route import ApiRoute
from spar.server.peers import UNKNOWN_PEER

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from spar.service.app import Service

log = get_logger("spar.audit")

#: Methods that change nothing.
READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: By method and path: the name of the action, and the kinds of rows of the store with which the entry is written in one
#: transaction ("": the first row of any kind; none: the middleware writes the entry when the request has succeeded).
ACTIONS: Final[Mapping[tuple[str, str], tuple[str, tuple[str, ...]]]] = {
    ("POST", "/v1/agents/{name}:step_{phase}"): ("agent", ()),
    ("POST", "/v1/agents/{target}"): ("agent", ("state.pause",)),
    ("POST", "/v1/sensors/{sensor}:restore"): ("sensor.restore", ()),
    ("POST", "/v1/runs/{run_id:path}:abort"): ("run.abort", ()),
    ("POST", "/v1/runs/{run_id:path}/feedback"): ("run.feedback", ()),
    ("POST", "/v1/deliveries/{target}"): ("delivery", ("",)),
    ("POST", "/v1/approvals/{id}"): ("approval", ("approval",)),
    ("DELETE", "/v1/grants/{id}"): ("grant.revoke", ("grant",)),
    ("POST", "/v1/calls/in-doubt/{id:path}/resolve"): ("doubt.resolve", ("doubt",)),
    ("POST", "/v1/dead-letters/{id:path}/{verb}"): ("dead_letter", ("dead_letter",)),
    ("POST", "/v1/senders:pair"): ("sender.pair", ("sender",)),
    ("POST", "/v1/senders:allow"): ("sender.allow", ("sender",)),
    ("POST", "/v1/senders:deny"): ("sender.deny", ("sender",)),
    ("POST", "/v1/senders:forget"): ("sender.forget", ("sender",)),
    ("POST", "/v1/sessions/{key:path}:reset"): ("session.reset", ("session.reset",)),
    ("PATCH", "/v1/sessions/{key:path}"): ("session.change", ("session",)),
    ("DELETE", "/v1/sessions/{key:path}"): ("session.forget", ("session",)),
    ("POST", "/v1/incidents/{id}:close"): ("incident.close", ()),
    ("POST", "/v1/notifiers/{target}"): ("notifier", ()),
    ("DELETE", "/v1/memory/experiences/{id}"): ("experience.forget", ("experience",)),
    ("POST", "/v1/memory/experiences:forget"): ("experience.forget", ("experience",)),
    ("POST", "/v1/memory/experiences:import"): ("experience.import", ("experience",)),
    ("POST", "/v1/tokens"): ("token.create", ("token",)),
    ("DELETE", "/v1/tokens/{name}"): ("token.revoke", ("token",)),
    ("POST", "/v1/examples:teach"): ("example.teach", ("",)),
    ("POST", "/v1/examples:forget"): ("example.forget", ("",)),
}
#: Requests other than reads that leave no entry: a message is stored with its origin, and the audit chain covers it; a
#: tried example is not stored.
NOT_AUDITED: Final = frozenset({("POST", "/v1/runs"), ("POST", "/v1/examples:try")})
#: Actions whose entry is written before they are carried out: afterwards the memory may be closed.
_FIRST: Final = frozenset({"agent.stop"})
#: Statuses of requests that may have been carried out or not: an error of the service, a stop meanwhile, a timeout.
_UNCERTAIN: Final = frozenset({500, 503, 504})


class AuditQuery(Struct, frozen=True):
    """Query of a list of entries."""

    limit: Annotated[int, Meta(ge=1, le=1_000, description="How many.")] = 50
    before: Annotated[int | None, Meta(description="Only those before the one with this number.")] = None
    since: Annotated[datetime | None, Meta(description="Only from this time on.")] = None
    until: Annotated[datetime | None, Meta(description="Only from before this time.")] = None
    actor: Annotated[str, Meta(description="Only of this user, token, sender or part.")] = ""
    action: Annotated[str, Meta(description="Only this action (`approval.deny`), or all of a kind (`approval`).")] = ""


class AuditMiddleware:
    """Middleware that opens an entry for each request that changes something, and writes those that no row wrote."""

    def __init__(self, app: ASGIApp, service: Service, routes: Sequence[ApiRoute]) -> None:
        self._app, self._service, self._routes = app, service, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in READS or (draft := self._draft(scope)) is None:
            await self._app(scope, receive, send)
            return
        if draft.action in _FIRST:
            await write(self._service, draft)

        status = 500  # if the handler raises

        async def answering(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status < 400 and not draft.is_written:
                    await write(self._service, draft)
            await send(message)

        try:
            with auditing(draft):
                await self._app(scope, receive, answering)
        finally:
            if status in _UNCERTAIN and not draft.is_written:  # the change may have happened
                draft.detail["answered"] = status
                await write(self._service, draft)
            draft.is_written = True  # rows of later background work belong to no request

    def _draft(self, scope: Scope) -> AuditDraft | None:
        """Return the entry of a request; None if the path is no route, or the request leaves no entry."""
        method = scope["method"]
        for route in self._routes:
            match, child = route.matches(scope)
            if match is Match.FULL:
                break
        else:
            return None
        if (method, route.path) in NOT_AUDITED:
            return None
        action, rows = ACTIONS.get((method, route.path), (f"{method} {route.path}", ("",)))
        params = {name: str(value) for name, value in child["path_params"].items()}
        subject = next(iter(params.values()), "")
        if "target" in params:
            subject, _, verb = subject.rpartition(":")
            action = f"{action}.{verb}"
        elif "phase" in params:
            action = f"{action}.step_{params['phase']}"
        elif "verb" in params:
            action = f"{action}.{params['verb']}"
        peer = scope.get("client") or (UNKNOWN_PEER, 0)
        return AuditDraft(str(peer[0]), "http", action, subject, agent=self._service.agent("").name, rows=rows)


async def write_before(service: Service) -> None:
    """Write the entry of the present request now, since a stop may cut off what it does and close the store."""
    if (draft := current()) is not None and not draft.is_written:
        await write(service, draft)
        draft.is_written = True


async def write(service: Service, draft: AuditDraft) -> None:
    """Write an entry that no row of the store has written. If that fails, log the failure with the entry's content."""
    try:
        await on_loop(service.agent(""), service.audit(draft), PATIENCE)
    except (SparError, TimeoutError) as error:
        log.error("audit entry not written", actor=draft.actor, action=draft.action, subject=draft.subject,
                  reason=str(error))  # fmt: skip


def audit_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of the audit log."""

    def log() -> AuditLog:
        if not offers(service.memory, KeepsAudit):
            raise LookupError("this store keeps no audit log")
        return service.memory.audit

    async def entries(request: Request, query: AuditQuery) -> Response:
        """List entries of the audit log, newest first."""
        return reply(
            await log().entries(query.limit, before=query.before, since=query.since, until=query.until,
                                actor=query.actor, action=query.action)
        )  # fmt: skip

    async def verify(request: Request) -> Response:
        """Verify the chain of the audit log and return `{ok, why}`; `why` names the first wrong entry."""
        why = await log().verify()
        return reply({"ok": not why, "why": why})

    return [
        ApiRoute("GET", "/v1/audit", entries, "read", answer=list[AuditEntry]),
        ApiRoute("GET", "/v1/audit/verify", verify, "read"),
    ]
