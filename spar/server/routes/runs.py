"""Runs under `/v1`: submit, list, show, wait, follow, abort, give feedback.

The events of a run are streamed as server-sent events (`spar.server.event_streams`). The stream ends after the terminal
event; the record of the run is its buffer.
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
from spar.server.event_streams import After, EventsAnswer, StreamPlaces, after_of, framed, frames
from spar.server.peers import origin_of

if TYPE_CHECKING:
    from spar.runs.run_events import RunEvent
    from spar.service.app import Service

#: Clients that may follow runs at once: a fifth of all connections of the server.
FOLLOWERS = 50
#: Runs in one list.
LONGEST_LIST = 1_000
#: Seconds that an abort may take: the running phase ends first, or is abandoned.
ABORT_WITHIN = 120.0
#: States in which the agent also knows the runs of earlier processes.
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
    """Body of a submission.

    `mode` is the queue mode while the session is busy (as `runs.queue_mode`), `output` a JSON schema of the answer, and
    `options` may have `model`, `instructions`, `thinking`, `timeout` and `verbose`.
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
    places = StreamPlaces(FOLLOWERS, "follow runs")

    async def submit(request: Request, body: RunBody) -> Response:
        """Accept a message and return its receipt.

        The traces of the run link to a header `traceparent`.
        """
        agent = service.agent("")
        origin = origin_of(request)
        parent, tracer = request.headers.get("traceparent", ""), service.tracer

        async def work() -> Receipt:
            receipt = await agent.submit(
                body.message, session=body.session, mode=body.mode, idempotency_key=body.idempotency_key,
                output=body.output, options=body.options, origin=origin,
            )  # fmt: skip
            if tracer is not None and parent:  # no await since submit, so the first cycle of the run cannot have ended
                tracer.linked(receipt.run_id, parent)
            return receipt

        return reply(await on_loop(agent, work(), PATIENCE), 202)

    async def list_runs(request: Request, query: RunsQuery) -> Response:
        """List the runs that this process knows, the newest first."""
        agent = service.agent("")

        async def work() -> Any:
            return agent.runs.rows(query.limit, is_open=query.open)

        return reply(await on_loop(agent, work(), PATIENCE))

    async def wait(request: Request, query: WaitQuery) -> Response:
        """Wait for a run and return its status."""
        agent = service.agent("")
        return reply(await about_run(agent, agent.wait(_run_of(request), query.timeout), query.timeout + PATIENCE))

    async def status(request: Request) -> Response:
        """Return the status of a run."""
        agent = service.agent("")
        return reply(await about_run(agent, agent.wait(_run_of(request), 0), PATIENCE))

    async def abort(request: Request) -> Response:
        """End a run and return its status."""
        agent, run_id = service.agent(""), _run_of(request)

        async def work() -> Any:
            if (await agent.wait(run_id, 0)).status == "timeout":
                await agent.abort(run_id)
            return await agent.wait(run_id, 0)

        return reply(await about_run(agent, work(), ABORT_WITHIN))

    async def feedback(request: Request, body: FeedbackBody) -> Response:
        """Store feedback on a run, or a cycle, that has ended; it is on disk when this answers."""
        agent, run_id = service.agent(""), _run_of(request)
        await about_run(agent, agent.feedback(run_id, body.good, body.why), PATIENCE)
        return reply({"run_id": run_id, "good": body.good})

    async def events(request: Request, query: RunEventsQuery) -> Response:
        """Stream the events of a run as server-sent events, after `after` or `Last-Event-ID`."""
        agent, run_id = service.agent(""), _run_of(request)
        stream = agent.core.events.run(run_id, after=after_of(request, query.after) or 0)
        await about_run(agent, agent.wait(run_id, 0), PATIENCE)  # raises at once for an unknown run
        return EventsAnswer(frames(agent, stream, frame), places.take(request))

    return [
        ApiRoute("GET", "/v1/runs", list_runs, "read"),
        ApiRoute("POST", "/v1/runs", submit, "operate", status=202, answer=Receipt),
        ApiRoute("GET", "/v1/runs/{run_id:path}/wait", wait, "read", answer=RunStatus),
        ApiRoute("GET", "/v1/runs/{run_id:path}/events", events, "read", answer=None),
        ApiRoute("POST", "/v1/runs/{run_id:path}/feedback", feedback, "operate"),
        ApiRoute("POST", "/v1/runs/{run_id:path}:abort", abort, "operate", answer=RunStatus),
        ApiRoute("GET", "/v1/runs/{run_id:path}", status, "read", answer=RunStatus),
    ]


async def about_run(agent: Blockable, work: Coroutine[Any, Any, Any], patience: float) -> Any:
    """Return the result of work on a run.

    Raises: LookupError for an unknown run; TransientError instead, while the agent does not know all its runs.
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
