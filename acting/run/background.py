"""Calls that nobody waits for: they go on when their run has ended, counted, supervised and drained on close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from acting.calls import fault, wire_of
from acting.run.call.attempt import Ended, Launch, begin, cut, finish, timed_out
from acting.run.call.call_state import Step
from acting.run.journal import Minutes
from acting.run.runtime import Stage
from acting.tooling.limits import Gate, passed
from spar.data.blackboard import message_of
from spar.events import CallCompleted, CallFailed
from spar.types import CallResult, Message, replace, without_service_keys


def detach(stage: Stage, launch: Launch, step: Step, minutes: Minutes | None) -> CallResult:
    """Start it and say so; a failed result when too many are on their way already."""
    if len(stage.detached) >= stage.limits.max_detached:
        message = f"{len(stage.detached)} detached calls are still running: {stage.limits.max_detached} are allowed"
        return CallResult(launch.call, "failed", fault=fault("resources", message, launch.call.tool))
    is_to_be_safe = False
    if stage.spending is not None:
        stage.spending.begin(step, launch.scope)
    if minutes is not None:
        is_to_be_safe = minutes.start(step)
        minutes.detached(launch)
    work = _run(stage, launch, stage.gates_of(step.entry, step.params), step, minutes, is_to_be_safe=is_to_be_safe)
    stage.detach(work, f"detached {launch.call.tool}")
    return CallResult(launch.call, "ok", "detached", attempts=1, started_at=stage.clock.now())


async def _run(stage: Stage, launch: Launch, gates: tuple[Gate, ...], step: Step, minutes: Minutes | None, *,
               is_to_be_safe: bool) -> None:  # fmt: skip
    held: list[Gate] = []
    end = partial(_end, stage, launch, minutes, held)
    try:
        for gate in gates:
            await passed(gate)
            held.append(gate)
        if is_to_be_safe and minutes is not None and (against := await minutes.safe(step)) is not None:
            end(Ended("failed", fault=against.fault))
            return
        ended = begin(stage, launch) or await finish(stage, launch, partial(_leave, stage, launch, end), None)
    except asyncio.CancelledError:
        end(cut(launch, launch.call.tool))
        raise
    if ended is not None:
        end(ended)


def _leave(stage: Stage, launch: Launch, end: Callable[[Ended], None], _: object) -> None:
    assert launch.task is not None
    stage.detached.discard(launch.task)
    stage.leave(launch.task)
    end(timed_out(launch))


def _end(stage: Stage, launch: Launch, minutes: Minutes | None, held: list[Gate], ended: Ended) -> None:
    for gate in held:
        gate.release()
    result = launch.result(stage.clock, ended)
    if minutes is not None:
        minutes.attached(result)
    if type(ended.value) is Message:
        message = ended.value
        stage.late.add(launch.scope.session, message_of(message.kind, message.data, message.instance))
        result = replace(result, output=message.data)
    stage.tell(
        CallCompleted if ended.status == "ok" else CallFailed,
        call=launch.call,
        cycle_id=launch.scope.cycle_id,
        run_id=stage.run_of(launch.call, launch.scope),
        result=result,
    )
    if ended.fault is not None:
        error = {"kind": ended.fault.kind, "message": ended.fault.message}
        data = {"call": without_service_keys(wire_of(launch.call)), "error": error}
        stage.late.add(launch.scope.session, data, is_error=True)
