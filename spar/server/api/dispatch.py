"""Dispatch of a request to its operation: scope, state of the agent, input, audit, run, answer.

A read is cancelled when its client has gone, so that no wait is kept for nobody. An operation that changes something is
carried out to its end, since its change has begun. If nobody can know whether it was carried out, its entry in the
audit log says what was answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route

from spar.data.scrub import mask_json
from spar.decoding import decode
from spar.errors import NotReadyError, SparError
from spar.observe.logs import get_logger
from spar.operations.operation import PATIENCE, Caller, Operation, Stream
from spar.records.audit import AuditDraft, auditing
from spar.server.access.access import Access
from spar.server.agent_loop import on_loop
from spar.server.api.input import read_input
from spar.server.bodies import BoundedBodies
from spar.server.encoding import encode
from spar.server.event_streams import EventsAnswer, StreamPlaces, framed, frames
from spar.server.peers import peer_of
from spar.server.problems import CLOSED, problem, status_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from spar.service.app import Service

log = get_logger("spar.audit")
R = TypeVar("R")

#: Statuses of requests that may have been carried out or not: an error of the service, a stop meanwhile, a timeout.
_UNCERTAIN: Final = frozenset({500, 503, 504})


class OperationRoute(Route):
    """Route of one operation.

    Args: access: refuses tokens without the needed scope; None on the control socket, whose peer owns the process.
    """

    def __init__(self, operation: Operation[Any, Any], service: Service, access: Access | None = None) -> None:
        self.operation, self._service, self._access = operation, service, access
        self._places = StreamPlaces(*operation.streams) if operation.streams is not None else None
        super().__init__(operation.path, self._respond, methods=[operation.method])
        self.app = BoundedBodies(self.app)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for this route.

        A verb after the id of something that is read has its colon as it is; an id that ends in the same text has it
        as `%3A`.
        """
        verb, raw = self.path.rpartition(":")[2], scope.get("raw_path") or b""
        is_verb = self.operation.method == "GET" and self.path.endswith(f"}}:{verb}") and bool(raw)
        if is_verb and not raw.partition(b"?")[0].endswith(f":{verb}".encode()):
            return Match.NONE, {}
        return super().matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose token has the scope; of another one no body is read. Raises: AccessRefusedError."""
        if self._access is not None and self.matches(scope)[0] is Match.FULL:
            self._access.demand(scope["token"], self.operation.scope)
        await super().handle(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        """Answer a request. Raises: any error of the operation, which the application turns into a problem."""
        self._demand_served()
        body = b"" if self.operation.method == "GET" else await request.body()
        given = read_input(self.operation, request.path_params, request.query_params, body)
        try:
            if self.operation.audit is None:
                return await self._run(request, given)
            return await self._run_audited(request, given)
        except (Exception, asyncio.CancelledError) as error:
            agent = self._service.agent
            if agent.core.state not in CLOSED or (isinstance(error, Exception) and status_of(error) != 500):
                raise
            ended = f"agent {agent.name!r} is {agent.core.state}: it ended before it could answer"
            raise NotReadyError(ended) from error

    def _demand_served(self) -> None:
        """Check that the operation is served now. Raises: NotReadyError while the agent starts or stops."""
        is_stopping = self._service.agent.core.state in ("stopping", "stopped")
        served = self.operation.served
        if served != "always" and not (served == "stopping" and is_stopping):
            self._service.demand_open()

    async def _run_audited(self, request: Request, given: Any) -> Response:
        """Run the operation and leave one entry in the audit log; none if it was refused."""
        draft, status = self._draft(request, given), 500
        try:
            if self.operation.audit is not None and self.operation.audit.is_first(self._service, given):
                await self._write(draft)
            with auditing(draft):
                response = await self._run(request, given)
            status = response.status_code
            if status < 400:
                await self._write(draft)
            return response
        except Exception as error:
            status = status_of(error)
            raise
        finally:
            if status in _UNCERTAIN and not draft.is_written:  # the change may have happened
                draft.detail["answered"] = status
                await self._write(draft)
            draft.is_written = True  # rows of later background work belong to no request

    def _draft(self, request: Request, given: Any) -> AuditDraft:
        """Return the entry of a request. The actor is the peer or the token, never a name from the request."""
        entry = self.operation.audit
        assert entry is not None
        draft = AuditDraft(peer_of(request), "http", entry.action, entry.subject_of(given),
                           agent=self._service.agent.name, rows=entry.rows)  # fmt: skip
        draft.detail = entry.detail_of(given)
        return draft

    async def _write(self, draft: AuditDraft) -> None:
        """Write an entry that no row of the store has written. If that fails, log the failure with its content."""
        if draft.is_written:
            return
        draft.is_written = True
        try:
            await on_loop(self._service.agent, self._service.audit(draft), PATIENCE)
        except (SparError, TimeoutError) as error:
            log.error("audit entry not written", actor=draft.actor, action=draft.action, subject=draft.subject,
                      reason=str(error))  # fmt: skip

    async def _run(self, request: Request, given: Any) -> Response:
        """Run the operation and return its answer as a response."""
        operation = self.operation
        if self._places is not None:
            return await self._stream(request, given, self._places)
        work = operation.run(self._service, given, _caller(request))
        if operation.where == "agent":
            work = on_loop(self._service.agent, work, operation.seconds(given))
        answer = await (_while_connected(request, work) if operation.is_read else work)
        content = encode(answer)
        try:
            decode(content, operation.answer)
        except msgspec.DecodeError as error:
            log.error("answer does not fit its type", operation=operation.name, reason=str(error))
            return problem(500, f"the answer of {operation.name!r} does not fit its type: {error}")
        if operation.is_masked:
            content = mask_json(content.decode()).encode()
        return Response(content, operation.status, media_type="application/json")

    async def _stream(self, request: Request, given: Any, places: StreamPlaces) -> Response:
        """Return the response that streams the events of the operation until its client leaves."""
        agent, streams = self._service.agent, list[Stream]()
        loop = agent.requests.loop or asyncio.get_running_loop()
        free = places.take(request)

        async def work() -> None:
            streams.append(await self.operation.run(self._service, given, _caller(request)))

        def left() -> None:
            free()
            for stream in streams:
                with suppress(RuntimeError):  # the agent's loop has been closed
                    loop.call_soon_threadsafe(stream.close)

        try:
            await _while_connected(request, on_loop(agent, work(), PATIENCE))
        except BaseException:
            left()
            raise
        (stream,) = streams
        events = frames(agent, stream.source, lambda event: framed(event, stream.name_of(event)), stream.position)
        return EventsAnswer(events, left)


def _caller(request: Request) -> Caller:
    """Return the client of a request."""
    headers = request.headers
    return Caller(peer_of(request), "token" in request.scope, headers.get("idempotency-key", ""),
                  headers.get("traceparent", ""), headers.get("last-event-id", ""))  # fmt: skip


async def _while_connected(request: Request, work: Awaitable[R]) -> R:
    """Return the result of work; cancel it when the client has gone. Raises: ClientDisconnect."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            await asyncio.wait((working,))
            leaving.result()  # the body of a read is dropped; it may be too large
        if working.cancelled() and leaving.done():
            raise ClientDisconnect
        return await working
    finally:
        working.cancel()
        if not leaving.cancel() and not leaving.cancelled():
            leaving.exception()  # retrieved here: the work was faster


async def _left(request: Request) -> None:
    """Return when the client of a request has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
