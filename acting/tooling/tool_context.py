"""The context of one attempt, for a tool with a parameter annotated `ToolContext`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from msgspec import Struct, field

from spar.types import Call

#: The session whose calls are carried out here: for what a tool is asked beside its attempts, which names none.
SESSION: Final[ContextVar[str]] = ContextVar("session", default="main")
#: The header `traceparent` of the call that is carried out here, for who sends it on; "" for none.
TRACEPARENT: Final[ContextVar[str]] = ContextVar("traceparent", default="")


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
