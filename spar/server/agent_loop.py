"""Work for a request, from the thread of the server: in the event loop of the agent, and until its client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from spar.agent.parts import AgentParts
from spar.errors import NotReadyError

R = TypeVar("R")


async def on_loop(agent: AgentParts, work: Coroutine[Any, Any, R], patience: float) -> R:
    """Run work in the agent's event loop and return its result.

    Args: patience: seconds to wait.
    Raises: TimeoutError that says what blocks the loop; NotReadyError if the loop does not run or ends meanwhile; any
        error of the work.
    """
    loop = agent.requests.loop
    if loop is None or loop.is_closed():
        work.close()
        raise NotReadyError(f"agent {agent.name!r} has not been started yet" if loop is None else _ended(agent))
    try:
        future = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:  # the loop was closed just now
        work.close()
        raise NotReadyError(_ended(agent)) from None
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), patience)
    except TimeoutError:
        blocked = f"; its event loop is blocked by:\n{agent.watched.blocked_by}" if agent.watched.blocked_by else ""
        raise TimeoutError(f"agent {agent.name!r} did not answer within {patience:g} s{blocked}") from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise NotReadyError(_ended(agent)) from None  # the agent's loop ended and cancelled the work


def _ended(agent: AgentParts) -> str:
    """Return the sentence for an agent that ended."""
    return f"agent {agent.name!r} ended before it could answer"


async def while_connected(request: Request, work: Awaitable[R]) -> R:
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
