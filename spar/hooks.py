"""Hooks decide, events report.

A hook is `async def hook(ctx) -> None | Decision`, awaited at one of the points below in priority order
(highest first, then as registered), with a deadline. A point that *guards* fails closed: a hook that
raises or is late denies. Every other point fails open: the fault is reported and the work goes on. A late
hook is cancelled.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio
from msgspec import Struct

from spar.types import Fault

#: What is asked at each point, and whether it guards. `value` is what `Decision.rewrite` replaces.
POINTS: dict[str, tuple[str, bool]] = {
    "agent_bootstrap": ("the agent, before its modules are opened", False),
    "service_start": ("the agent, once it runs", False),
    "service_stop": ("the agent, before it closes", False),
    "session_start": ("the session's key", False),
    "session_end": ("the session's key", False),
    "message_received": ("the perception made from a message; deny refuses it", False),
    "before_run": ("the run's goal; deny ends the run", False),
    "after_run": ("the run's status", False),
    "before_cycle": ("the cycle id; deny skips the cycle", False),
    "before_plan": ("the perceptions; rewrite replaces them, deny skips the plan", False),
    "after_plan": ("the action; rewrite replaces it, deny drops it", False),
    "before_call": ("the call; rewrite replaces it, deny refuses it", True),
    "after_call": ("the call's result", False),
    "result_persist": ("the call's result as it will be kept; rewrite replaces it", False),
    "before_reflect": ("the action's result", False),
    "before_compaction": ("the transcript's size", False),
    "after_compaction": ("the transcript's size", False),
    "message_sending": ("the reply; rewrite replaces it, deny keeps it back", False),
    "message_sent": ("the reply", False),
}


class Decision(Struct, frozen=True):
    """What a hook decided; `None` means: nothing against it."""

    verdict: Literal["deny", "rewrite", "require_approval", "stop_run"]
    reason: str = ""
    value: Any = None

    @classmethod
    def deny(cls, reason: str = "") -> Decision:
        return cls("deny", reason)

    @classmethod
    def rewrite(cls, value: Any) -> Decision:
        return cls("rewrite", value=value)

    @classmethod
    def require_approval(cls, reason: str = "") -> Decision:
        return cls("require_approval", reason)

    @classmethod
    def stop_run(cls, reason: str = "") -> Decision:
        return cls("stop_run", reason)


class HookContext(Struct):
    """What a hook is told: where it is (`point`, `agent`, `session`, `run_id`, `cycle_id`) and its `value`."""

    point: str
    agent: str
    value: Any = None
    session: str = "main"
    run_id: str | None = None
    cycle_id: str | None = None


Hook = Callable[[HookContext], Awaitable[Decision | None] | Decision | None]


class _Registered(Struct):
    priority: int
    order: int
    hook: Hook
    timeout: float


class Outcome(Struct, frozen=True):
    """What all hooks of a point came to: the value (perhaps rewritten) and who stopped it, if anyone."""

    value: Any
    denied: bool = False
    stop_run: bool = False
    needs_approval: bool = False
    reason: str = ""
    faults: tuple[Fault, ...] = ()


class Hooks:
    """The hooks of one agent, by point. Registering is synchronous and may be done at any time."""

    def __init__(self, timeout: float = 15.0) -> None:
        self._timeout = timeout
        self._hooks: dict[str, tuple[_Registered, ...]] = {}
        self._count = 0
        #: Whether any hook was ever registered; lets the hot path ask nobody at no cost.
        self.are_used = False

    def add(self, point: str, hook: Hook, *, priority: int = 0, timeout: float | None = None) -> Callable[[], None]:
        """Register a hook; returns a callable that takes it away. Raises: ValueError for an unknown point."""
        if point not in POINTS:
            raise ValueError(f"no hook point named {point!r}; known: {', '.join(POINTS)}")
        self._count += 1
        self.are_used = True
        entry = _Registered(priority, self._count, hook, self._timeout if timeout is None else timeout)
        self._hooks[point] = tuple(sorted((*self._hooks.get(point, ()), entry), key=lambda h: (-h.priority, h.order)))

        def remove() -> None:
            self._hooks[point] = tuple(h for h in self._hooks.get(point, ()) if h is not entry)

        return remove

    def at(self, point: str) -> bool:
        """Whether anybody listens at this point; lets the hot path skip building a context."""
        return bool(self._hooks.get(point))

    async def run(self, ctx: HookContext) -> Outcome:
        """Ask every hook of `ctx.point` in turn, until one denies or stops the run; never raises an error."""
        guards = POINTS[ctx.point][1]
        approval, faults = "", []
        needs_approval = False
        for entry in self._hooks.get(ctx.point, ()):
            name = getattr(entry.hook, "__qualname__", repr(entry.hook))
            try:
                with anyio.fail_after(entry.timeout):
                    decision = entry.hook(ctx)
                    if inspect.isawaitable(decision):
                        decision = await decision
                if decision is not None and not isinstance(decision, Decision):
                    raise TypeError(f"hook {name} must return a Decision or None, found {type(decision).__name__}")
            except Exception as error:
                faults.append(Fault.of(error, part=name, phase=ctx.point))
                if guards:
                    return Outcome(ctx.value, denied=True, reason=f"hook {name} failed: {error}", faults=tuple(faults))
                continue
            if decision is None:
                continue
            if decision.verdict == "rewrite":
                ctx.value = decision.value
            elif decision.verdict == "require_approval":
                needs_approval, approval = True, decision.reason
            else:
                stops = decision.verdict == "stop_run"
                return Outcome(ctx.value, denied=True, stop_run=stops, reason=decision.reason, faults=tuple(faults))
        return Outcome(ctx.value, needs_approval=needs_approval, reason=approval, faults=tuple(faults))
