"""What recovery has left to people, under `/v1`: calls in doubt and dead letters, and their answers.

An answer names the call by its id and says what became of it, nothing that is run: the call that is made again is the
one that is kept. Who answered is what the connection says; on whose word may be said besides. An id of a call in doubt
has a slash in it and is one segment when that is escaped (`cycle%2Fcall`), but need not be.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from anyio import to_thread
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.agent.measured import Measured
from spar.errors import ConflictError
from spar.observe.logs import get_logger
from spar.records.journal import Answer, DeadLetter, Doubt, named
from spar.review.in_doubt import answered, doubt_full, letter_full
from spar.server.answers import PATIENCE, decoded, on_loop, reply
from spar.server.problems import problem
from spar.server.routes.approvals import LONGEST_REASON, peer_of

if TYPE_CHECKING:
    from spar.service.app import Service

log = get_logger("spar.recovery")

WHICH = ("open", "all")
LONGEST_NAME = 200
#: What can be done about a dead letter, and what the log says then.
VERBS = {"retry": "dead letter retried", "drop": "dead letter dropped"}


class AnswerBody(msgspec.Struct, forbid_unknown_fields=True):
    """What became of a call in doubt; `output` is what it returned, `by` on whose word."""

    answer: Answer
    output: Any | UnsetType = UNSET
    by: str = ""
    reason: str = ""

    def check(self) -> None:
        """Raises: ValueError for a field that does not go with the answer, or is too long."""
        if self.output is not UNSET and self.answer != "done":
            raise ValueError(f"'output' goes with 'done' only, the answer is {self.answer!r}")
        for name, most in (("by", LONGEST_NAME), ("reason", LONGEST_REASON)):
            if (length := len(getattr(self, name))) > most:
                raise ValueError(f"{name!r} has {length} characters, at most {most} are kept")


def recovery_routes(service: Service) -> list[Route]:
    """What a service's control API offers about work that was cut off."""

    async def ask(question: Callable[[Measured, Any], Coroutine[Any, Any, Any]]) -> Any:
        agent = service.agent("")
        journal = agent.recovery.journal
        if journal is None:
            sentence = f"agent {agent.name!r} keeps no journal now: it does not run, or its memory has none"
            raise LookupError(sentence)
        return await on_loop(agent, question(agent, journal), PATIENCE)

    # -- calls in doubt

    async def doubts(request: Request) -> Response:
        """List calls in doubt with `status` (`open` if left out, or `all`)."""
        which = request.query_params.get("status", "open")
        if which not in WHICH:
            raise ValueError(f"status = {which!r}: must be one of {', '.join(WHICH)}")
        return reply(await ask(lambda agent, journal: journal.doubts(agent.name, is_open=which == "open")))

    async def find(id: str) -> Doubt:
        """Raises: LookupError that says which there are."""

        async def look(agent: Measured, journal: Any) -> Doubt:
            found: Doubt = named(await journal.doubts(agent.name, is_open=False), id, "call in doubt")
            return replace(found, call=await journal.call(found))

        doubt: Doubt = await ask(look)
        return doubt

    async def doubt(request: Request) -> Response:
        """Return a call in doubt, with `text` for people; a slash in the id may stand as `%2F`."""
        return await told(await find(request.path_params["id"]), doubt_full)

    async def resolve(request: Request) -> Response:
        """Answer `{answer, output?, by?, reason?}`; an `Idempotency-Key` makes a repeated answer safe."""
        body = decoded(await request.body(), AnswerBody)
        body.check()
        kept = await find(request.path_params["id"])
        output = None if body.output is UNSET else body.output
        by = f"{peer_of(request)} for {body.by}" if body.by else peer_of(request)
        try:
            if kept.answer is None:
                await ask(lambda agent, journal: agent.recovery.doubts.resolve(
                    kept.id, body.answer, by=by, output=output, reason=body.reason
                ))  # fmt: skip
                log.info("call in doubt answered", agent=service.agent("").name, id=kept.id, tool=kept.call.tool,
                         answer=body.answer, by=by, reason=body.reason)  # fmt: skip
                return await told(await find(kept.id), doubt_full)
        except ConflictError:  # somebody was faster
            kept = await find(kept.id)
        is_same = (kept.answer, kept.answered_by, kept.output) == (body.answer, by, output)
        if is_same and "idempotency-key" in request.headers:  # sent again, because its answer did not arrive
            return await told(kept, doubt_full)
        return problem(409, answered(kept))

    # -- dead letters

    async def letters(request: Request) -> Response:
        """List dead letters: work that was put aside."""
        return reply(await ask(lambda agent, journal: agent.recovery.letters.list()))

    async def letter(request: Request) -> Response:
        """Return one dead letter, with `text` for people."""

        async def look(agent: Measured, journal: Any) -> DeadLetter:
            found: DeadLetter = named(await agent.recovery.letters.list(), request.path_params["id"], "dead letter")
            return found

        return await told(await ask(look), letter_full)

    async def deal(request: Request) -> Response:
        """`retry` tries a dead letter again, `drop` ends it for good."""
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

    return [
        Route("/v1/calls/in-doubt", doubts),
        Route("/v1/calls/in-doubt/{id:path}/resolve", resolve, methods=["POST"]),
        Route("/v1/calls/in-doubt/{id:path}", doubt),
        Route("/v1/dead-letters", letters),
        Route("/v1/dead-letters/{id:path}/{verb}", deal, methods=["POST"]),
        Route("/v1/dead-letters/{id:path}", letter),
    ]


async def told(found: Any, draw: Callable[[Any, datetime], str]) -> Response:
    """What was found with `text`, which is what a person is to be shown: drawn here, from what is kept.

    It may be megabytes long: drawing it must not keep the probes waiting.
    """
    text = await to_thread.run_sync(draw, found, datetime.now(UTC))
    return reply({**asdict(found), "text": text})
