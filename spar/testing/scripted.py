"""Modules that follow a script and record their arguments, so that a test needs no mocks.

`spar.testing.script` describes scripts; each class describes its additional shorthand. Without `then`, planner, actor,
reflector and model repeat the last item of their script, while sense and sensors return nothing.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from spar.ids import new_id
from spar.protocols import Context, SensorContext
from spar.testing.script import LAST, NOTHING, Script, stream
from spar.types import Action, ActionResult, Call, CallResult, CallStatus, Fault, Perception, Reflection, replace

_STATUSES = get_args(CallStatus)


class ScriptedSense:
    """SENSE by script. Shorthand: a perception, a text, or a list of both; None for nothing."""

    def __init__(self, script: Iterable[Any] = (), *, then: Any = None) -> None:
        self.calls = 0
        self._script = Script(script, then)

    async def sense(self) -> Any:
        self.calls += 1
        return _perceptions(await self._script.play())


class ScriptedSensor:
    """Sensor by script; the shorthand of `ScriptedSense`.

    Args:
        script: the results of the polls.
        pushed: what it pushes once it is open, e.g. `[1.0, "first", 0.5, "second"]`; a failure in it is raised by
            the next poll.
        opening, closing: what happens at each opening and closing, e.g. `[OSError("no device"), None]`.

    `polls`, `opened` and `closed` count, `is_open` is its state, `context` is that of the last opening, and `refused`
    holds the perceptions that the agent's buffer refused. `push(perception)` pushes by hand.
    """

    def __init__(
        self,
        script: Iterable[Any] = (),
        *,
        pushed: Iterable[Any] = (),
        then: Any = None,
        every: float = 0.0,
        opening: Iterable[Any] = (),
        closing: Iterable[Any] = (),
    ) -> None:
        self.every = every
        self.polls = self.opened = self.closed = 0
        self.is_open = False
        self.context: SensorContext | None = None
        self.refused: list[Perception] = []
        self._script, self._pushed = Script(script, then), stream(iter(pushed))
        self._opening, self._closing = Script(opening), Script(closing)
        self._pusher: asyncio.Task[None] | None = None

    async def open(self, ctx: SensorContext) -> None:
        self.opened += 1
        self.context = ctx
        await self._opening.play(ctx)
        self.is_open = True
        self._pusher = asyncio.get_running_loop().create_task(self._push_all(), name=f"pushes of {ctx.name}")

    async def poll(self) -> Any:
        self.polls += 1
        pusher = self._pusher
        if pusher is not None and pusher.done() and not pusher.cancelled() and (error := pusher.exception()):
            self._pusher = None
            raise error
        return _perceptions(await self._script.play())

    async def close(self) -> None:
        self.closed += 1
        self.is_open = False
        pusher, self._pusher = self._pusher, None
        if pusher is not None:
            pusher.cancel()
            await asyncio.wait([pusher], timeout=1.0)
            if pusher.done() and not pusher.cancelled():
                pusher.exception()  # read it, because no poll will raise it any more
        await self._closing.play()

    def push(self, perception: Perception | str) -> bool:
        """Push now; return False if it was refused. Raises: RuntimeError before the first opening."""
        if self.context is None:
            raise RuntimeError("a scripted sensor can push only after it was opened")
        pushed = perception if isinstance(perception, Perception) else Perception(perception)
        if not self.context.push(pushed):
            self.refused.append(pushed)
            return False
        return True

    async def _push_all(self) -> None:
        async for piece in self._pushed.play():
            for perception in _perceptions(piece):
                self.push(perception)


class ScriptedPlanner:
    """PLAN by script. Shorthand: None, an action, a call or a list of calls (an action with just them), `stream([…])`.

    An action that is planned again gets a new id; its calls keep theirs (use a function where they should not). `seen`
    holds the perceptions of each call, `contexts` the contexts.
    """

    def __init__(self, script: Iterable[Any] = (), *, then: Any = LAST) -> None:
        self.seen: list[list[Perception]] = []
        self.contexts: list[Context | None] = []
        self._script = Script(script, then)
        self._ids: set[str] = set()

    async def plan(self, perceptions: Sequence[Perception], context: Context | None = None) -> Any:
        self.seen.append(list(perceptions))
        self.contexts.append(context)
        planned = await self._script.play(perceptions)
        if planned is NOTHING:
            return None
        if isinstance(planned, stream):
            return planned.play()
        if isinstance(planned, Call):
            planned = [planned]
        if isinstance(planned, (list, tuple)) and all(isinstance(item, Call) for item in planned):
            return Action(calls=tuple(planned))
        if isinstance(planned, Action):
            if planned.id in self._ids:  # each plan is another action
                planned = replace(planned, id=new_id())
            self._ids.add(planned.id)
        return planned


class ScriptedActor:
    """ACT by script. Shorthand: None for all calls ok, a status for all of them, a mapping of tool to output (with an
    exception there the call fails), a result.

    `seen` holds the actions of all calls.
    """

    def __init__(self, script: Iterable[Any] = (), *, then: Any = LAST) -> None:
        self.seen: list[Action] = []
        self.contexts: list[Context | None] = []
        self._script = Script(script, then)

    async def act(self, action: Action, context: Context | None = None) -> Any:
        self.seen.append(action)
        self.contexts.append(context)
        done = await self._script.play(action)
        if done is NOTHING or done is None:
            done = "ok"
        if isinstance(done, str) and done in _STATUSES:
            return _result(action, [_as_status(call, done) for call in action.calls])
        if isinstance(done, Mapping):
            return _result(action, [_as_output(call, done.get(call.tool)) for call in action.calls])
        return done


class ScriptedReflector:
    """REFLECT by script. Shorthand: None for a reflection whose score is 1 if the result is ok, else 0.

    `seen` holds the results of all calls.
    """

    def __init__(self, script: Iterable[Any] = (), *, then: Any = LAST) -> None:
        self.seen: list[ActionResult] = []
        self.contexts: list[Context | None] = []
        self._script = Script(script, then)

    async def reflect(self, result: ActionResult, context: Context | None = None) -> Any:
        self.seen.append(result)
        self.contexts.append(context)
        learnt = await self._script.play(result)
        if learnt is NOTHING or learnt is None:
            return Reflection(result=result, score=1.0 if result.status == "ok" else 0.0)
        return learnt


class ScriptedModel:
    """Model by script: `await model(request)` returns the next solution, or an async iterator for a `stream([…])`.

    `requests` holds copies of the requests (`context`, `schema`, `kind` and any other fields). Solutions are copied,
    because the caller may change its copy.
    """

    def __init__(self, script: Iterable[Any] = (), *, then: Any = LAST) -> None:
        self.requests: list[Any] = []
        self._script = Script(script, then)

    async def __call__(self, request: Any) -> Any:
        self.requests.append(copy.deepcopy(request))
        solution = await self._script.play(request)
        if solution is NOTHING:
            return None
        return solution.play() if isinstance(solution, stream) else copy.deepcopy(solution)


def _perceptions(value: Any) -> Any:
    if value is NOTHING or value is None:
        return []
    if isinstance(value, (Perception, str)):
        value = [value]
    if isinstance(value, (list, tuple)):
        return [Perception(item) if isinstance(item, str) else item for item in value]
    return value


def _as_status(call: Call, status: Any) -> CallResult:
    fault = (
        None
        if status in ("ok", "skipped")
        else Fault(status, f"{call.tool} was scripted to be {status}", part=call.tool)
    )
    return CallResult(call, status, fault=fault, attempts=0 if status in ("skipped", "denied") else 1)


def _as_output(call: Call, output: Any) -> CallResult:
    if isinstance(output, BaseException):
        return CallResult(call, "failed", fault=Fault.of(output, part=call.tool, phase="act"), attempts=1)
    return CallResult(call, "ok", output=copy.deepcopy(output), attempts=1)


def _result(action: Action, results: list[CallResult]) -> ActionResult:
    bad = [item for item in results if item.status not in ("ok", "skipped")]
    fine = len(results) - len(bad)
    status: Any = "ok" if not bad else "partial" if fine else "failed"
    errors = tuple(
        {"call": item.call.to_wire(), "error": {"kind": item.fault.kind, "message": item.fault.message}}
        for item in bad
        if item.fault is not None
    )
    return ActionResult(action=action, status=status, results=tuple(results), errors=errors)
