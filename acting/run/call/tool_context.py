"""What a tool is told that asks for it, by a parameter annotated `ToolContext`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from spar.data.json_safe import plain
from spar.events import CallProgressed
from spar.types import Call

if TYPE_CHECKING:
    from acting.run.call.attempt import Launch
    from acting.run.runtime import Stage


_LARGEST_PROGRESS = 1 << 16  # bytes of what a tool tells of its progress, which is shown and computed from by nobody


class ToolContext(Struct, frozen=True):
    """One attempt at one call; the parameter that takes it is no part of the tool's schema.

    `tool` is the tool's schema and `context` the messages that the call's `_scopes` let it see (none by default).
    `deadline` is in monotonic seconds (None: none), `attempt` counts from 1. `idempotency_key` is the same for every
    attempt at the same call. `fence` grows with every attempt and, where there is a journal or the wall clock is not
    set back, over restarts: who keeps the highest one that he saw can refuse what comes late from a left behind one.
    `progress(value)` publishes how far it is, from any thread. `binds` is what the tool's own `binds` said when
    the call was let run by a person (None: nobody had to): what is not that any more must not run. `run_id` is the run
    that the call belongs to, if to any.
    """

    call: Call
    agent: str = ""
    deadline: float | None = None
    attempt: int = 1
    idempotency_key: str = ""
    progress: Callable[[Any], None] = lambda value: None
    tool: Mapping[str, Any] = field(default_factory=dict)
    context: tuple[dict[str, Any], ...] = ()
    fence: int = 0
    session: str = "main"
    binds: Mapping[str, Any] | None = None
    run_id: str | None = None


def tool_context(stage: Stage, launch: Launch) -> ToolContext:
    """The context of the attempt that is about to begin."""
    loop, home, attempt = asyncio.get_running_loop(), threading.get_ident(), launch.attempts

    def publish(value: Any) -> None:
        is_current = launch.is_in_flight and launch.attempts == attempt and not launch.is_late
        if is_current and stage.wanted[CallProgressed]:
            progress = plain(value, _LARGEST_PROGRESS)
            call, scope = launch.call, launch.scope
            run_id = stage.run_of(call, scope)
            stage.publish(CallProgressed(call=call, cycle_id=scope.cycle_id, run_id=run_id, progress=progress))

    def progress(value: Any) -> None:
        if threading.get_ident() == home:
            publish(value)
            return
        try:
            loop.call_soon_threadsafe(publish, value)
        except RuntimeError:  # the loop has closed: nobody is left to hear it
            pass

    return ToolContext(
        launch.call,
        stage.agent,
        launch.deadline,
        attempt,
        f"{launch.scope.key}/{launch.call.id}",
        progress,
        launch.entry.schema,
        launch.messages,
        stage.next_fence(),
        launch.scope.session,
        launch.binds,
        stage.run_of(launch.call, launch.scope),
    )
