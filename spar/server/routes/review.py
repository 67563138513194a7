"""Records that wait for people, under `/v1`: approvals, calls in doubt and dead letters, and the answers to them.

All kinds are listed and shown in the same way. An answer names its record by id; the call that runs is the stored one,
or the one that an edit replaces it with. The answering person is known from the connection, never from the body; `by`
may name the person on whose word it was. The id of a call in doubt contains a slash, which may be escaped
(`cycle%2Fcall`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from anyio import to_thread
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import Response

from spar.agent.measured import Measured
from spar.errors import ConflictError
from spar.observe.logs import get_logger
from spar.records.approvals import ApprovalStatus, Approver, DecidedError, Decision
from spar.records.audit import refine
from spar.records.journal import Answer, DeadLetter, Doubt, named
from spar.review.kinds import APPROVALS, CALLS_IN_DOUBT, DEAD_LETTERS, ReviewKind
from spar.review.left_work import answered
from spar.review.pending_approvals import approver_of
from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.api.route import ApiRoute
from spar.server.peers import peer_of
from spar.server.problems import problem

if TYPE_CHECKING:
    from spar.service.app import Service

log = get_logger("spar.recovery")

LONGEST_REASON, LONGEST_NAME = 2000, 200
#: The decisions with which a field of a body is allowed; with others it is an error.
GOES_WITH: dict[str, tuple[str, ...]] = {
    "params": ("edit",),
    "call": ("replace",),
    "grant_for": ("approve",),
    "grant_session": ("approve",),
}
#: States of an approval that ended without an answer: answered 410. A pending one is about to expire.
GONE: tuple[ApprovalStatus, ...] = ("pending", "expired", "void")
#: The verbs for a dead letter, with the log message of each.
VERBS = {"retry": "dead letter retried", "drop": "dead letter dropped"}


class DecisionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a decision on an approval; `digest` is that of the call which was shown to the person."""

    digest: str
    decision: Decision
    reason: str = ""
    params: dict[str, Any] | None = None
    call: dict[str, Any] | None = None
    grant_for: float | None = None
    grant_session: bool | None = None

    def check(self) -> None:
        """Check the fields. Raises: ValueError for a field that the decision does not allow, or that is missing."""
        for name, decisions in GOES_WITH.items():
            if getattr(self, name) is not None and self.decision not in decisions:
                raise ValueError(f"{name!r} goes with {decisions[0]!r} only, the decision is {self.decision!r}")
        for name in ("params", "call"):
            if self.decision in GOES_WITH[name] and getattr(self, name) is None:
                raise ValueError(f"{self.decision!r} needs {name!r}: what is to run instead")
        _check_length("reason", self.reason, LONGEST_REASON)
        if self.grant_session is not None and self.grant_for is None:
            raise ValueError("'grant_session' needs 'grant_for': for how many seconds")


class AnswerBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of an answer about a call in doubt; `output` is the call's value, `by` the person on whose word it is."""

    answer: Answer
    output: Any | UnsetType = UNSET
    by: str = ""
    reason: str = ""

    def check(self) -> None:
        """Check the fields. Raises: ValueError for one that the answer does not allow, or that is too long."""
        if self.output is not UNSET and self.answer != "done":
            raise ValueError(f"'output' goes with 'done' only, the answer is {self.answer!r}")
        _check_length("by", self.by, LONGEST_NAME)
        _check_length("reason", self.reason, LONGEST_REASON)


def _check_length(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise ValueError(f"{name!r} has {len(text)} characters, at most {most} are kept")


class ApprovalsQuery(msgspec.Struct, frozen=True):
    """Query of a list of approvals."""

    status: Annotated[Literal[ApprovalStatus, "all"], Meta(description="Only with this status.")] = "pending"


class DoubtsQuery(msgspec.Struct, frozen=True):
    """Query of a list of calls in doubt."""

    status: Annotated[Literal["open", "all"], Meta(description="`all`: also the answered ones.")] = "open"


class RecordHandler:
    """Handler that shows one record of a kind, with `text` for people.

    Args:
        find: Returns the record of an id or a unique beginning of one. Raises: LookupError that names the known ids.
    """

    def __init__(self, kind: ReviewKind, find: Callable[[str], Awaitable[Any]]) -> None:
        self._kind, self._find = kind, find

    def route(self, ids: str = "id") -> ApiRoute:
        """Return the route of one record. Args: ids: the path parameter of the id, with its type."""
        return ApiRoute("GET", f"{self._kind.path}/{{{ids}}}", self.show, "read")

    async def show(self, request: Request) -> Response:
        """Return one record, with `text` for people."""
        return await self.respond(await self._find(request.path_params["id"]))

    async def respond(self, record: Any) -> Response:
        """Return a record with `text`, its rendering for a person.

        The text may be megabytes long, so a thread renders it: the probes must not wait.
        """
        text = await to_thread.run_sync(self._kind.full, record, datetime.now(UTC))
        return reply({**asdict(record), "text": text})


def approval_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of approvals and grants."""

    async def ask(question: Callable[[Approver], Coroutine[Any, Any, Any]]) -> Any:
        agent = service.agent("")
        approver = approver_of(agent.setup)
        if approver is None:
            raise LookupError(f"agent {agent.name!r} keeps no approvals: its act module has nobody to ask")
        return await on_loop(agent, question(approver), PATIENCE)

    async def list_approvals(request: Request, query: ApprovalsQuery) -> Response:
        """List the records of a status; default: those that wait for an answer."""
        return reply(await ask(lambda approver: approver.list(None if query.status == "all" else query.status)))

    async def decide(request: Request, body: DecisionBody) -> Response:
        """Decide about a call that waits for approval."""
        body.check()
        record = await ask(lambda approver: approver.get(request.path_params["id"]))
        detail = {"tool": record.call.tool, "digest": body.digest, "reason": body.reason, "grant_for": body.grant_for}
        refine(action=f"approval.{body.decision}", subject=record.id,
               detail={name: value for name, value in detail.items() if value})  # fmt: skip
        more = {} if body.grant_session is None else {"grant_session": body.grant_session}
        try:
            return await approvals.respond(await ask(lambda approver: approver.decide(
                record.id, body.digest, body.decision, by=peer_of(request), reason=body.reason, params=body.params,
                call=body.call, grant_for=body.grant_for, **more,
            )))  # fmt: skip
        except DecidedError as error:
            latest = await ask(lambda approver: approver.get(record.id))
            return problem(410 if latest.status in GONE else 409, str(error))

    async def grants(request: Request) -> Response:
        """List the grants in force."""
        return reply(await ask(lambda approver: approver.grants()))

    async def revoke(request: Request) -> Response:
        """End a grant."""
        return reply(await ask(lambda approver: approver.revoke(request.path_params["id"])))

    approvals = RecordHandler(APPROVALS, lambda id: ask(lambda approver: approver.get(id)))
    return [
        ApiRoute("GET", APPROVALS.path, list_approvals, "read"),
        approvals.route(),
        ApiRoute("POST", "/v1/approvals/{id}", decide, "approve"),
        ApiRoute("GET", "/v1/grants", grants, "read"),
        ApiRoute("DELETE", "/v1/grants/{id}", revoke, "approve"),
    ]


def recovery_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of calls in doubt and dead letters."""

    async def ask(question: Callable[[Measured, Any], Coroutine[Any, Any, Any]]) -> Any:
        agent = service.agent("")
        journal = agent.recovery.journal
        if journal is None:
            sentence = f"agent {agent.name!r} keeps no journal now: it does not run, or its memory has none"
            raise LookupError(sentence)
        return await on_loop(agent, question(agent, journal), PATIENCE)

    async def find_doubt(id: str) -> Doubt:
        async def look(agent: Measured, journal: Any) -> Doubt:
            doubt: Doubt = named(await journal.doubts(agent.name, is_open=False), id, CALLS_IN_DOUBT.noun)
            return replace(doubt, call=await journal.call(doubt))

        doubt: Doubt = await ask(look)
        return doubt

    async def find_letter(id: str) -> DeadLetter:
        letter: DeadLetter = named(await list_letters(), id, DEAD_LETTERS.noun)
        return letter

    async def list_letters() -> Any:
        return await ask(lambda agent, journal: agent.recovery.letters.list())

    async def list_doubts(request: Request, query: DoubtsQuery) -> Response:
        """List the records of a status; default: those that wait for an answer."""
        return reply(await ask(lambda agent, journal: journal.doubts(agent.name, is_open=query.status == "open")))

    async def list_dead_letters(request: Request) -> Response:
        """List the records that wait for an answer."""
        return reply(await list_letters())

    async def resolve(request: Request, body: AnswerBody) -> Response:
        """Answer what became of a call in doubt. With a header `Idempotency-Key` the same answer may be repeated."""
        body.check()
        doubt = await find_doubt(request.path_params["id"])
        output = None if body.output is UNSET else body.output
        by = f"{peer_of(request)} for {body.by}" if body.by else peer_of(request)
        detail = {"answer": body.answer, "by": body.by, "reason": body.reason, "repeated": doubt.answer is not None}
        refine(subject=doubt.id, detail={name: value for name, value in detail.items() if value})
        try:
            if doubt.answer is None:
                await ask(lambda agent, journal: agent.recovery.doubts.resolve(
                    doubt.id, body.answer, by=by, output=output, reason=body.reason
                ))  # fmt: skip
                log.info("call in doubt answered", agent=service.agent("").name, id=doubt.id, tool=doubt.call.tool,
                         answer=body.answer, by=by, reason=body.reason)  # fmt: skip
                return await doubts.respond(await find_doubt(doubt.id))
        except ConflictError:  # another answer was faster
            doubt = await find_doubt(doubt.id)
        is_same = (doubt.answer, doubt.answered_by, doubt.output) == (body.answer, by, output)
        if (
            is_same and "idempotency-key" in request.headers
        ):  # repeated by a client that did not receive the first response
            return await doubts.respond(doubt)
        return problem(409, answered(doubt))

    async def settle_letter(request: Request) -> Response:
        """Try a dead letter again (`retry`), or end it permanently (`drop`)."""
        id, verb = request.path_params["id"], request.path_params["verb"]
        if verb not in VERBS:
            raise LookupError(f"no verb {verb!r}; known: {', '.join(VERBS)}")
        try:
            item = await ask(lambda agent, journal: (
                agent.recovery.letters.revive(id) if verb == "retry" else agent.recovery.letters.bury(id)
            ))  # fmt: skip
        except ConflictError as error:
            return problem(409, str(error))
        log.info(VERBS[verb], agent=service.agent("").name, id=item.id, by=peer_of(request))
        return reply(item)

    doubts, letters = RecordHandler(CALLS_IN_DOUBT, find_doubt), RecordHandler(DEAD_LETTERS, find_letter)
    return [
        ApiRoute("POST", "/v1/calls/in-doubt/{id:path}/resolve", resolve, "approve"),
        ApiRoute("GET", CALLS_IN_DOUBT.path, list_doubts, "read"),
        doubts.route("id:path"),
        ApiRoute("POST", "/v1/dead-letters/{id:path}/{verb}", settle_letter, "operate", verbs=tuple(VERBS)),
        ApiRoute("GET", DEAD_LETTERS.path, list_dead_letters, "read"),
        letters.route("id:path"),
    ]
