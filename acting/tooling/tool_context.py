"""The context of one attempt at a call, for tools with a parameter annotated `ToolContext`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from msgspec import Struct, field

from spar.types import Call

#: The header `traceparent` of the call that the current task carries out, for clients that send it on; "" for none.
TRACEPARENT: Final[ContextVar[str]] = ContextVar("traceparent", default="")


class ToolContext(Struct, frozen=True):
    """One attempt at one call; the parameter that takes it is not in the tool's schema.

    `tool` is the tool's schema and `context` the messages that the `_scopes` of the call select (none by default).
    `deadline` is in monotonic seconds (None: none), `attempt` counts from 1. `idempotency_key` is the same for all
    attempts at the same call. `fence` grows with every attempt, and over restarts where there is a journal or the wall
    clock is not set back: a receiver that remembers the highest fence can refuse a late request of an abandoned
    attempt. `progress(value)` publishes progress, from any thread. `binds` is the value of the tool's own `binds` when
    a person approved the call (None: no approval was needed): the tool must not run if that value is another one now.
    `run_id` is the run that the call belongs to, or None.
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
    _is_current: Callable[[], bool] = lambda: True

    @property
    def is_cancelled(self) -> bool:
        """Return whether nobody waits for this attempt any more: it is late, was cancelled, or has ended.

        A thread cannot be cancelled: a blocking tool reads this between two pieces of its work, and returns.
        """
        return not self._is_current()
