"""Runs under `/v1`: give one, ask after it, wait for it, follow it, call it off.

A run is followed as server-sent events (`spar.server.event_streams`); the stream ends after the terminal event. The
run's own record is the buffer.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.agent.measured import Blockable
from spar.errors import TransientError
from spar.records.session import Origin
from spar.runs.run import Receipt
from spar.server.answers import PATIENCE, decoded, on_loop, reply
from spar.server.event_streams import EventsAnswer, after_of, framed, frames

if TYPE_CHECKING:
    from spar.runs.run_events import RunEvent
    from spar.service.app import Service

#: The origin of sessions that begin here.
HTTP = Origin("http")
#: Who may follow runs at once: a fifth of all connections that the server takes.
FOLLOWERS = 50
#: Runs of one list.
LONGEST_LIST = 1_000
#: Seconds that calling a run off may take: its phase ends, or is left behind.
ABORT_WITHIN = 120.0
#: States in which the agent knows also the runs of earlier processes.
KNOWING = ("running", "pausing", "paused")


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


def run_routes(service: Service) -> list[Route]:
    """Return the routes of runs."""
    following = 0

    async def submit(request: Request) -> Response:
        """Accept `{message, session?, mode?, idempotency_key?, output?, options?}` and return a receipt (202).

        A header `traceparent` is linked to the traces of the run.
        """
        agent = service.agent("")
        run = decoded(await request.body(), RunBody)
        parent, tracer = request.headers.get("traceparent", ""), service.tracer

        async def work() -> Receipt:
            receipt = await agent.submit(
                run.message, session=run.session, mode=run.mode, idempotency_key=run.idempotency_key,
                output=run.output, options=run.options, origin=HTTP,
            )  # fmt: skip
            if tracer is not None and parent:  # before its first cycle can end: nothing was awaited in between
                tracer.linked(receipt.run_id, parent)
            return receipt

        return reply(await on_loop(agent, work(), PATIENCE), 202)

    async def listed(request: Request) -> Response:
        """List the runs that this process knows, the newest first: `limit` (50) of them, `open=1` those that have not
        ended."""
        agent, query = service.agent(""), request.query_params
        limit = query.get("limit", "50")
        if not (limit.isascii() and limit.isdigit() and len(limit) <= 9 and 1 <= int(limit) <= LONGEST_LIST):
            raise ValueError(f"limit = {limit[:40]!r}: must be 1 to {LONGEST_LIST}")
        is_open = query.get("open", "") in ("1", "true")

        async def work() -> Any:
            return agent.runs.rows(int(limit), is_open=is_open)

        return reply(await on_loop(agent, work(), PATIENCE))

    async def wait(request: Request) -> Response:
        """Wait at most `timeout` seconds (30) for a run and return its status."""
        agent = service.agent("")
        timeout = float(request.query_params.get("timeout", "30"))
        if not 0 <= timeout <= 3600:
            raise ValueError(f"timeout = {timeout:g}: must be 0 to 3600 seconds")
        return reply(await known(agent, agent.wait(_run_of(request), timeout), timeout + PATIENCE))

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

    async def feedback(request: Request) -> Response:
        """Take `{good, why?}` on a run, or a cycle, that has ended; it is on disk when this answers."""
        agent, run_id = service.agent(""), _run_of(request)
        word = decoded(await request.body(), FeedbackBody)
        await known(agent, agent.feedback(run_id, word.good, word.why), PATIENCE)
        return reply({"run_id": run_id, "good": word.good})

    async def events(request: Request) -> Response:
        """Stream the events of a run as server-sent events, after `after` or `Last-Event-ID`."""
        nonlocal following
        agent, run_id = service.agent(""), _run_of(request)
        stream = agent.core.events.run(run_id, after=after_of(request) or 0)
        await known(agent, agent.wait(run_id, 0), PATIENCE)  # says at once that there is no such run
        if following >= FOLLOWERS:
            raise TransientError(f"{following} clients follow runs already; try again later")
        following += 1

        def left() -> None:
            nonlocal following
            following -= 1

        return EventsAnswer(frames(agent, stream, frame), left)

    return [
        Route("/v1/runs", listed),
        Route("/v1/runs", submit, methods=["POST"]),
        Route("/v1/runs/{run_id:path}/wait", wait),
        Route("/v1/runs/{run_id:path}/events", events),
        Route("/v1/runs/{run_id:path}/feedback", feedback, methods=["POST"]),
        Route("/v1/runs/{run_id:path}:abort", abort, methods=["POST"]),
        Route("/v1/runs/{run_id:path}", status),
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
