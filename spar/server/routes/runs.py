"""Runs under `/v1`: give one, ask after it, wait for it, follow it, call it off.

A run is followed as server-sent events (`spar.server.event_streams`); the stream ends after the terminal event. The
run's own record is the buffer.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from spar.agent.measured import Blockable
from spar.errors import TransientError
from spar.runs.run import Receipt, RunStatus
from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.api.route import ApiRoute
from spar.server.event_streams import After, EventsAnswer, after_of, framed, frames
from spar.server.peers import origin_of

if TYPE_CHECKING:
    from spar.runs.run_events import RunEvent
    from spar.service.app import Service

#: Who may follow runs at once: a fifth of all connections that the server takes.
FOLLOWERS = 50
#: Runs of one list.
LONGEST_LIST = 1_000
#: Seconds that calling a run off may take: its phase ends, or is left behind.
ABORT_WITHIN = 120.0
#: States in which the agent knows also the runs of earlier processes.
KNOWING = ("running", "pausing", "paused")


class RunsQuery(msgspec.Struct, frozen=True):
    """Query of a list of runs."""

    limit: Annotated[int, Meta(ge=1, le=LONGEST_LIST, description="How many.")] = 50
    open: Annotated[bool, Meta(description="Only those that have not ended.")] = False


class WaitQuery(msgspec.Struct, frozen=True):
    """Query of a wait."""

    timeout: Annotated[float, Meta(ge=0, le=3600, description="Seconds to wait at most.")] = 30.0


class RunEventsQuery(msgspec.Struct, frozen=True):
    """Query of the events of a run."""

    after: After = None


class RunBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a submission; `mode` says what becomes of it while its session is busy.

    `output` is a JSON schema of the answer, `options` are its `model instructions thinking timeout verbose`.
    """

    message: str
    session: str = "main"
    mode: str | None = None
    idempotency_key: str | None = None
    output: dict[str, Any] | None = None
    options: dict[str, Any] | None = None


class FeedbackBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of feedback: whether a run went well, and why."""

    good: bool
    why: str = ""


def run_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of runs."""
    following = 0

    async def submit(request: Request, body: RunBody) -> Response:
        """Accept a message and return its receipt.

        A header `traceparent` is linked to the traces of the run.
        """
        agent = service.agent("")
        origin = origin_of(request)
        parent, tracer = request.headers.get("traceparent", ""), service.tracer

        async def work() -> Receipt:
            receipt = await agent.submit(
                body.message, session=body.session, mode=body.mode, idempotency_key=body.idempotency_key,
                output=body.output, options=body.options, origin=origin,
            )  # fmt: skip
            if tracer is not None and parent:  # before its first cycle can end: nothing was awaited in between
                tracer.linked(receipt.run_id, parent)
            return receipt

        return reply(await on_loop(agent, work(), PATIENCE), 202)

    async def listed(request: Request, query: RunsQuery) -> Response:
        """List the runs that this process knows, the newest first."""
        agent = service.agent("")

        async def work() -> Any:
            return agent.runs.rows(query.limit, is_open=query.open)

        return reply(await on_loop(agent, work(), PATIENCE))

    async def wait(request: Request, query: WaitQuery) -> Response:
        """Wait for a run and return its status."""
        agent = service.agent("")
        return reply(await known(agent, agent.wait(_run_of(request), query.timeout), query.timeout + PATIENCE))

    async def status(request: Request) -> Response:
        """Return the status of a run."""
        agent = service.agent("")
        return reply(await known(agent, agent.wait(_run_of(request), 0), PATIENCE))

    async def abort(request: Request) -> Response:
        """End a run and return its status."""
        agent, run_id = service.agent(""), _run_of(request)

        async def work() -> Any:
            if (await agent.wait(run_id, 0)).status == "timeout":
                await agent.abort(run_id)
            return await agent.wait(run_id, 0)

        return reply(await known(agent, work(), ABORT_WITHIN))

    async def feedback(request: Request, body: FeedbackBody) -> Response:
        """Take a word on a run, or a cycle, that has ended; it is on disk when this answers."""
        agent, run_id = service.agent(""), _run_of(request)
        await known(agent, agent.feedback(run_id, body.good, body.why), PATIENCE)
        return reply({"run_id": run_id, "good": body.good})

    async def events(request: Request, query: RunEventsQuery) -> Response:
        """Stream the events of a run as server-sent events, after `after` or `Last-Event-ID`."""
        nonlocal following
        agent, run_id = service.agent(""), _run_of(request)
        stream = agent.core.events.run(run_id, after=after_of(request, query.after) or 0)
        await known(agent, agent.wait(run_id, 0), PATIENCE)  # says at once that there is no such run
        if following >= FOLLOWERS:
            raise TransientError(f"{following} clients follow runs already; try again later")
        following += 1

        def left() -> None:
            nonlocal following
            following -= 1

        return EventsAnswer(frames(agent, stream, frame), left)

    return [
        ApiRoute("GET", "/v1/runs", listed, "read"),
        ApiRoute("POST", "/v1/runs", submit, "operate", status=202, answer=Receipt),
        ApiRoute("GET", "/v1/runs/{run_id:path}/wait", wait, "read", answer=RunStatus),
        ApiRoute("GET", "/v1/runs/{run_id:path}/events", events, "read", answer=None),
        ApiRoute("POST", "/v1/runs/{run_id:path}/feedback", feedback, "operate"),
        ApiRoute("POST", "/v1/runs/{run_id:path}:abort", abort, "operate", answer=RunStatus),
        ApiRoute("GET", "/v1/runs/{run_id:path}", status, "read", answer=RunStatus),
    ]


async def known(agent: Blockable, work: Coroutine[Any, Any, Any], patience: float) -> Any:
    """Return the answer to a question about a run.

    Raises: TransientError where only an agent that runs could know it; LookupError.
    """
    try:
        return await on_loop(agent, work, patience)
    except LookupError:
        if agent.core.state in KNOWING:
            raise
        raise TransientError(f"agent {agent.name!r} is {agent.core.state}: it knows its runs while it runs") from None


def _run_of(request: Request) -> str:
    run_id: str = request.path_params["run_id"]
    return run_id


def frame(event: RunEvent) -> bytes:
    """Return one event as it is sent."""
    return framed(event, event.stream)
