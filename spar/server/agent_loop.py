"""Work in the event loop of the agent, from the thread of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from spar.agent.measured import Blockable
from spar.errors import NotReadyError

R = TypeVar("R")


async def on_loop(agent: Blockable, work: Coroutine[Any, Any, R], patience: float) -> R:
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


def _ended(agent: Blockable) -> str:
    """Return the sentence for an agent that ended."""
    return f"agent {agent.name!r} ended before it could answer"
