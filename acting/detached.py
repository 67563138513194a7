"""Calls that nobody waits for: they go on when their run has ended, counted, supervised and drained on close."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from acting.launch import Ended, Launch, perform, timed_out
from acting.outputs import plain
from acting.stage import Stage, fault, wire_of
from spar.events import CallCompleted, CallFailed
from spar.types import CallResult


def detach(stage: Stage, launch: Launch) -> CallResult:
    """Start it and say so; a failed result when too many are on their way already."""
    if len(stage.detached) >= stage.limits.max_detached:
        message = f"{len(stage.detached)} detached calls are still running: {stage.limits.max_detached} are allowed"
        return CallResult(launch.call, "failed", fault=fault("resources", message, launch.call.tool))
    stage.detach(_run(stage, launch), f"detached {launch.call.tool}")
    return CallResult(launch.call, "ok", "detached", attempts=1, started_at=stage.clock.now())


async def _run(stage: Stage, launch: Launch) -> None:
    slots = launch.entry.slots
    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def called(_: object) -> bool:
        if turn.done():
            return False
        turn.set_result(None)
        return True

    try:
        if not slots.take(called):
            await turn
    except asyncio.CancelledError:
        if turn.done() and not turn.cancelled():
            slots.release()
        _end(
            stage,
            launch,
            Ended("cancelled", fault=fault("cancelled", "it was cancelled before it began", launch.call.tool)),
        )
        raise
    try:
        ended = await perform(stage, launch, partial(_leave, stage, launch), None)
    except asyncio.CancelledError:
        slots.release()
        _end(stage, launch, cut(launch))
        raise
    if ended is not None:
        slots.release()
        _end(stage, launch, ended)


def cut(launch: Launch | None, tool: str = "") -> Ended:
    """The end of a call that was cancelled: in doubt if it may have had an effect that must not be repeated."""
    if launch is not None and launch.is_in_flight and launch.entry.terms.effect == "once":
        message = f"tool {launch.entry.name!r} was cut off and may have had its effect: find out before repeating it"
        return Ended("in_doubt", fault=fault("in_doubt", message, launch.entry.name))
    return Ended("cancelled", fault=fault("cancelled", "the run was cancelled", tool))


def _leave(stage: Stage, launch: Launch) -> None:
    assert launch.task is not None
    stage.detached.discard(launch.task)
    stage.leave(launch.task)
    launch.entry.slots.release()
    _end(stage, launch, timed_out(launch))


def _end(stage: Stage, launch: Launch, ended: Ended) -> None:
    value: Any = plain(ended.value, stage.limits.max_output)
    result = launch.result(stage.clock, ended, value)
    if stage.events is not None:
        kind = CallCompleted if ended.status == "ok" else CallFailed
        stage.tell(kind, call=launch.call, cycle_id=launch.scope.cycle_id, result=result)
    if ended.fault is not None:
        error = {"kind": ended.fault.kind, "message": ended.fault.message}
        stage.late_errors.append({"call": wire_of(launch.call), "error": error})
