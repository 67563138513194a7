"""Runs under `/v1`: give one, ask after it, wait for it, follow it, call it off.

A run is followed as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html): each has the
run's `seq` as its id, so that a client whose connection broke goes on with `Last-Event-ID` (or `?after=`) where it was.
The stream ends after the terminal event. The server asks the agent's event loop for the next events only when the
client has taken the last, so nothing gathers here: the run's own record is the buffer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from spar.agent.measured import Blockable
from spar.errors import TransientError
from spar.records.session import Origin
from spar.server.answers import PATIENCE, decoded, encode, on_loop, reply

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from spar.runs.run_events import RunEvent
    from spar.runs.run_log import RunStream
    from spar.service.app import Service

#: The origin of sessions that begin here.
HTTP = Origin("http")
#: Seconds without an event after which a comment says that the connection lives.
HEARTBEAT = 15.0
#: Who may follow runs at once: a fifth of all connections that the server takes.
FOLLOWERS = 50
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


def run_routes(service: Service) -> list[Route]:
    """Return the routes of runs."""
    following = 0

    async def submit(request: Request) -> Response:
        """Accept `{message, session?, mode?, idempotency_key?, output?, options?}` and return a receipt (202)."""
        agent = service.agent("")
        run = decoded(await request.body(), RunBody)
        work = agent.submit(
            run.message, session=run.session, mode=run.mode, idempotency_key=run.idempotency_key, output=run.output,
            options=run.options, origin=HTTP,
        )  # fmt: skip
        return reply(await on_loop(agent, work, PATIENCE), 202)

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

    async def events(request: Request) -> Response:
        """Stream the events of a run as server-sent events, after `after` or `Last-Event-ID`."""
        nonlocal following
        agent, run_id = service.agent(""), _run_of(request)
        stream = agent.core.events.run(run_id, after=_after(request))
        await known(agent, agent.wait(run_id, 0), PATIENCE)  # says at once that there is no such run
        if following >= FOLLOWERS:
            raise TransientError(f"{following} clients follow runs already; try again later")
        following += 1

        def left() -> None:
            nonlocal following
            following -= 1

        return _Followed(_frames(agent, stream), left)

    return [
        Route("/v1/runs", submit, methods=["POST"]),
        Route("/v1/runs/{run_id:path}/wait", wait),
        Route("/v1/runs/{run_id:path}/events", events),
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


def _after(request: Request) -> int:
    """The number of the last event that the client has seen. Raises: ValueError."""
    given = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not (given.isascii() and given.isdigit() and len(given) <= 19):
        raise ValueError(f"after = {given[:40]!r}: must be the seq of an event, or 0 for all")
    return int(given)


class _Followed(StreamingResponse):
    """A stream of events that is closed, and no longer counted, whatever ends it."""

    def __init__(self, frames: AsyncGenerator[bytes], left: Callable[[], None]) -> None:
        super().__init__(frames, media_type="text/event-stream",
                         headers={"cache-control": "no-store", "x-accel-buffering": "no"})  # fmt: skip
        self._frames, self._left = frames, left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()
            await self._frames.aclose()


async def _frames(agent: Blockable, stream: RunStream) -> AsyncGenerator[bytes]:
    """Yield events as they come, and signs of life between them."""
    yield b"retry: 1000\n\n"
    while (loop := agent.event_loop) is not None and not loop.is_closed():
        asked = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(stream.some(), loop))
        try:
            while not (await asyncio.wait([asked], timeout=HEARTBEAT))[0]:
                if loop.is_closed():
                    return
                yield b": still going on\n\n"
            if asked.cancelled() or not (events := asked.result()):
                return
        finally:
            with suppress(RuntimeError):  # the agent's loop has been closed
                asked.cancel()
        yield b"".join(map(frame, events))


def frame(event: RunEvent) -> bytes:
    """One event as it is sent: JSON has no line ends, so it is one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.stream.encode(), encode(event))
