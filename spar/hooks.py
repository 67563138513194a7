"""Hooks: functions of plug-ins that decide at certain points; events only report.

A hook is `async def hook(ctx) -> None | Decision`, awaited at one of the points below in order of priority (highest
first, then in order of registration), with a deadline. A point that *guards* fails closed: a hook that raises, is late
or returns an invalid decision denies. Every other point fails open: the fault is reported and the work continues. A
late hook is cancelled, and left behind when it ignores that. An async hook runs in a task of its own, a plain function
inline: it must not block.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import datetime
from math import inf
from typing import Any, Literal

from msgspec import Struct, structs
from msgspec.structs import replace

from spar.checks import problem_of
from spar.errors import ENDS_PROCESS, SparError, is_closing
from spar.records.transcript import CompactionPlan, Entry
from spar.threads import BoundedCalls
from spar.types import Action, ActionResult, Call, CallResult, Fault, Perception, Trust

#: Subject of each point, and whether the point guards. `value` in the context is what `Decision.rewrite` replaces.
POINTS: dict[str, tuple[str, bool]] = {
    "agent_bootstrap": ("the files that a session's model is told; rewrite replaces them, deny leaves them out", False),
    "service_start": ("the agent, once it runs", False),
    "service_stop": ("the agent, before it closes", False),
    "session_start": ("the session's key, before its first run", False),
    "session_end": ("the session's key; the context's reason says why", False),
    "message_received": ("the perception made from a message; deny refuses it", False),
    "command": ("the command in a message; rewrite answers it, deny refuses it", True),
    "before_run": ("the message that the run is about; deny ends the run", False),
    "after_run": ("the run's status, error and output", False),
    "before_cycle": ("the cycle id; deny skips the cycle", False),
    "before_sense": ("nothing; deny skips the cycle", False),
    "after_sense": ("the perceptions; deny skips the rest of the cycle", False),
    "before_plan": ("the perceptions; rewrite replaces them, deny skips the plan", False),
    "before_request": ("the draft of a request to a model; rewrite replaces it, deny ends the run", False),
    "after_plan": ("the action; rewrite replaces it, deny drops it", False),
    "before_act": ("the action as it is to be carried out; deny leaves it out", False),
    "after_act": ("the action's result; rewrite replaces it, deny leaves its reflection out", False),
    "before_call": ("the call; rewrite replaces it, deny refuses it", True),
    "after_call": ("the call's result", False),
    "result_persist": ("the call's result as it will be kept; rewrite replaces it", False),
    "before_reflect": ("the action's result; deny leaves its reflection out", False),
    "after_reflect": ("the reflection", False),
    "before_compaction": ("the plan of the compaction; rewrite adds to it, deny leaves the transcript as it is", False),
    "after_compaction": ("the compaction's entry; rewrite adds a note", False),
    "message_sending": ("the text that people are to be told; rewrite replaces it, deny keeps it back", False),
    "message_sent": ("the text that people were told", False),
}

#: Points where `Decision.rewrite` is possible, with the test of a valid value. At other points it is a fault of the
#: hook.
REWRITABLE: dict[str, Callable[[Any], bool]] = {
    "message_received": lambda value: isinstance(value, (Perception, str)),
    "agent_bootstrap": lambda value: isinstance(value, (list, tuple)) and all(isinstance(f, PromptFile) for f in value),
    "command": lambda value: isinstance(value, str),
    "before_plan": lambda value: isinstance(value, (list, tuple)) and all(isinstance(p, Perception) for p in value),
    "before_request": lambda value: isinstance(value, RequestDraft),
    "after_plan": lambda value: value is None or isinstance(value, Action),
    "after_act": lambda value: isinstance(value, ActionResult),
    "before_call": lambda value: isinstance(value, Call),
    "result_persist": lambda value: isinstance(value, CallResult),
    "message_sending": lambda value: isinstance(value, str),
    "before_compaction": lambda value: isinstance(value, CompactionPlan),
    "after_compaction": lambda value: isinstance(value, Entry) and value.has_usable_note,
}


class Decision(Struct, frozen=True):
    """Decision of a hook; `None` in its place means no objection. `by` is the person that a hook decided for; no grant
    from before `since` answers for the approval that it requires."""

    verdict: Literal["deny", "rewrite", "require_approval", "stop_run"]
    reason: str = ""
    value: Any = None
    by: str = ""
    since: datetime | None = None

    @classmethod
    def deny(cls, reason: str = "") -> Decision:
        return cls("deny", reason)

    @classmethod
    def rewrite(cls, value: Any, reason: str = "", by: str = "") -> Decision:
        return cls("rewrite", reason, value, by)

    @classmethod
    def require_approval(cls, reason: str = "", since: datetime | None = None) -> Decision:
        return cls("require_approval", reason, since=since)

    @classmethod
    def stop_run(cls, reason: str = "") -> Decision:
        return cls("stop_run", reason)


class HookContext(Struct):
    """Context of a hook: its place (`point`, `agent`, `session`, `run_id`, `cycle_id`) and its `value`.

    `reason` is the kind of a message ("answer", "note", "verbose" or "reasoning"), the reason for the end of a session
    ("stop", "idle" or "forgotten") or for the summary of a conversation ("overflow" or "threshold"), or that no request
    is sent ("preview").
    """

    point: str
    agent: str
    value: Any = None
    session: str = "main"
    run_id: str | None = None
    cycle_id: str | None = None
    reason: str = ""


Hook = Callable[[HookContext], Awaitable[Decision | None] | Decision | None]
#: Function that gets a hook's name, the value before the hook and the hook's own value; returns the value to use.
Accept = Callable[[str, Any, Any], Any]


#: Shared by all agents, since an empty set takes 216 bytes.
_NONE: frozenset[Any] = frozenset()
#: Failures in a row until a hook that does not guard is turned off. A guard that is broken goes on denying.
FAILURES_UNTIL_OFF = 10


class Registered(Struct):
    """Registered hook; call it to remove it. `failures` are those in a row, `errors` all of them."""

    priority: int
    order: int
    hook: Hook
    timeout: float
    most_failures: int
    remove: Callable[[], None]
    failures: int = 0
    errors: int = 0
    is_off: bool = False

    def __call__(self) -> None:
        self.remove()


class Outcome(Struct, frozen=True):
    """Outcome of all hooks of a point: the value (perhaps rewritten), and whether a hook denied or stopped the run.
    `change` is the decision of the last hook that rewrote it, of one that did so for a person before others; `since`
    is the latest one of those that require approval."""

    value: Any
    denied: bool = False
    stop_run: bool = False
    needs_approval: bool = False
    reason: str = ""
    faults: tuple[Fault, ...] = ()
    change: Decision | None = None
    since: datetime | None = None


class Hooks:
    """Hooks of one agent, by point. Registering is synchronous and may be done at any time."""

    __slots__ = ("_calls", "_count", "_hooks", "_timeout", "off", "used")

    def __init__(self, timeout: float = 15.0) -> None:
        self._timeout = timeout
        self._hooks: dict[str, tuple[Registered, ...]] = {}
        #: Hooks that failed too often and are turned off, by name and point.
        self.off: tuple[str, ...] = ()
        self._count = 0
        self._calls = BoundedCalls()
        #: Points with hooks, so that the hot path pays nothing without hooks.
        self.used: frozenset[str] = _NONE

    @property
    def left_behind(self) -> frozenset[asyncio.Future[Any]]:
        """Return the tasks of hooks that ignored their cancellation and still run."""
        return self._calls.left_behind

    def add(self, point: str, hook: Hook, *, priority: int = 0, timeout: float | None = None,
            most_failures: int = FAILURES_UNTIL_OFF) -> Registered:  # fmt: skip
        """Register a hook; return a handle that removes it when called. Raises: ValueError for an unknown point.

        Args: timeout: seconds that it may take, infinity for any; None: those of this agent.
        """
        if point not in POINTS:
            raise ValueError(f"no hook point named {point!r}; known: {', '.join(POINTS)}")
        self._count += 1
        entry = Registered(priority, self._count, hook, self._timeout if timeout is None else timeout, most_failures,
                           lambda: self._drop(point, entry))  # fmt: skip
        self._hooks[point] = tuple(sorted((*self._hooks.get(point, ()), entry), key=lambda h: (-h.priority, h.order)))
        self.used |= {point}
        return entry

    def snapshot(self) -> dict[str, list[str]]:
        """Return the hooks by point in the order of their calls, and those that failed too often under "off"."""
        names_by_point = {
            point: [_name(entry.hook) for entry in entries] for point, entries in list(self._hooks.items()) if entries
        }
        return {**names_by_point, "off": list(self.off)} if self.off else names_by_point

    def _drop(self, point: str, entry: Registered) -> None:
        """Remove this hook from its point."""
        self._hooks[point] = tuple(h for h in self._hooks.get(point, ()) if h is not entry)
        if not self._hooks[point]:
            self.used -= {point}

    async def run(self, ctx: HookContext, accept: Accept | None = None) -> Outcome:
        """Call every hook of `ctx.point` in turn, until one denies or stops the run; never raises an error.

        Args: accept: checks each hook's rewritten value; an exception of it is a fault of that hook.
        """
        guards = POINTS[ctx.point][1]
        value, approval, needs_approval = ctx.value, "", False
        change: Decision | None = None
        since: datetime | None = None
        faults: list[Fault] = []
        task = asyncio.current_task()
        for entry in self._hooks.get(ctx.point, ()):
            name = _name(entry.hook)
            # Changes that a hook makes to its context or to the list in it have no effect.
            ctx.value = list(value) if isinstance(value, (list, tuple)) else value
            try:
                decision = _check(await self._answer(entry, ctx), ctx.point, name)
                if accept is not None and decision is not None and decision.verdict == "rewrite":
                    decision = structs.replace(decision, value=accept(name, value, decision.value))
            except (*ENDS_PROCESS, asyncio.CancelledError):
                raise
            except BaseException as error:
                if is_closing(error, task):
                    raise
                faults.append(Fault.of(error, part=name, phase=ctx.point))
                entry.failures, entry.errors = entry.failures + 1, entry.errors + 1
                if guards:
                    reason = f"hook {name} failed: {faults[-1].message}"
                    return Outcome(value, denied=True, reason=reason, faults=tuple(faults))
                if entry.failures >= entry.most_failures:
                    entry.is_off = True
                    self._drop(ctx.point, entry)
                    self.off += (f"{name} at {ctx.point}",)
                continue
            entry.failures = 0
            if decision is None:
                continue
            if decision.verdict == "rewrite":
                value = decision.value
                change = change if change is not None and change.by else decision
            elif decision.verdict == "require_approval":
                needs_approval, approval = True, decision.reason
                since = max(filter(None, (since, decision.since)), default=None)
            else:
                stops = decision.verdict == "stop_run"
                return Outcome(value, denied=True, stop_run=stops, reason=decision.reason, faults=tuple(faults))
        return Outcome(value, needs_approval=needs_approval, reason=approval, faults=tuple(faults), change=change,
                       since=since)  # fmt: skip

    async def _answer(self, entry: Registered, ctx: HookContext) -> Any:
        """Return the answer of a hook within its time. Raises: what it raised, or TimeoutError."""
        try:
            answer = entry.hook(ctx)
        except asyncio.CancelledError:
            raise SparError("it cancelled itself") from None
        if not inspect.isawaitable(answer):
            return answer
        return await self._calls.make(answer, entry.timeout if entry.timeout < inf else None)


def _name(hook: Hook) -> str:
    return getattr(hook, "__qualname__", None) or repr(hook)


def _check(decision: Any, point: str, name: str) -> Decision | None:
    """Return the decision if it is valid at this point. Raises: TypeError."""
    if decision is None:
        return None
    if not isinstance(decision, Decision):
        raise TypeError(f"hook {name} must return a Decision or None, found {type(decision).__name__}")
    verdict = decision.verdict
    if verdict == "require_approval" and not POINTS[point][1]:
        raise TypeError(f"hook {name} cannot require approval at {point}")
    if verdict == "rewrite":
        if point not in REWRITABLE:
            raise TypeError(f"hook {name} cannot rewrite anything at {point}; possible at: {', '.join(REWRITABLE)}")
        if not REWRITABLE[point](decision.value):
            subject = POINTS[point][0].split(";")[0]
            raise TypeError(f"hook {name} must put {subject} there, found {type(decision.value).__name__}")
        # The other values check themselves when they are made.
        if isinstance(decision.value, (ActionResult, CallResult, Entry)) and (problem := problem_of(decision.value)):
            raise TypeError(f"hook {name} must keep to the fields of {problem}")
    return decision


class PromptFile(Struct, frozen=True):
    """Text that a model reads before each request.

    `origin` says where it comes from (a path, or any text of a hook), `left_out` which part of it is missing in `text`
    ("" for none). An untrusted one stands with the material to judge, never with the instructions, and plans made from
    it are untrusted too.
    """

    name: str
    text: str
    trust: Trust = "untrusted"
    origin: str = ""
    left_out: str = ""


class RequestDraft(Struct, frozen=True):
    """Request before it is composed, as hooks at `before_request` may rewrite it.

    `instructions` may be replaced, or extended (`prepend`, `append`). `context` are texts or wire messages that hooks
    add. `tools` are the names of the offered tools: hooks may remove some and add none. `model` is the model to ask
    first, one of `models`; "" leaves the choice to the configuration. `trust` may be lowered for additions from
    outside, never raised.
    """

    instructions: str = ""
    context: tuple[str | dict[str, Any], ...] = ()
    tools: tuple[str, ...] = ()
    model: str = ""
    models: tuple[str, ...] = ()
    trust: Trust = "trusted"

    def prepend(self, text: str) -> RequestDraft:
        """Return the draft with a text before its instructions."""
        return replace(self, instructions=f"{text}\n\n{self.instructions}")

    def append(self, text: str) -> RequestDraft:
        """Return the draft with a text after its instructions; the providers' caches of the instructions stay valid."""
        return replace(self, instructions=f"{self.instructions}\n\n{text}")

    def add(self, *context: str | dict[str, Any]) -> RequestDraft:
        """Return the draft with more context."""
        return replace(self, context=(*self.context, *context))

    def without(self, *tools: str) -> RequestDraft:
        """Return the draft without these tools."""
        return replace(self, tools=tuple(name for name in self.tools if name not in tools))
