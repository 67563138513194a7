"""Calls that nobody waits for: they go on when their run has ended, counted, supervised and drained on close."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from acting.launch import Ended, Launch, begin, cut, finish, timed_out
from acting.slots import Gate
from acting.stage import Stage, fault, wire_of
from spar.board import message_of
from spar.events import CallCompleted, CallFailed
from spar.types import CallResult, Message, replace


def detach(stage: Stage, launch: Launch, gates: tuple[Gate, ...]) -> CallResult:
    """Start it and say so; a failed result when too many are on their way already."""
    if len(stage.detached) >= stage.limits.max_detached:
        message = f"{len(stage.detached)} detached calls are still running: {stage.limits.max_detached} are allowed"
        return CallResult(launch.call, "failed", fault=fault("resources", message, launch.call.tool))
    stage.detach(_run(stage, launch, gates), f"detached {launch.call.tool}")
    return CallResult(launch.call, "ok", "detached", attempts=1, started_at=stage.clock.now())


async def _run(stage: Stage, launch: Launch, gates: tuple[Gate, ...]) -> None:
    held: list[Gate] = []
    try:
        for gate in gates:
            await _taken(gate)
            held.append(gate)
        ended = begin(stage, launch) or await finish(stage, launch, partial(_leave, stage, launch, held), None)
    except asyncio.CancelledError:
        _end(stage, launch, held, cut(launch, launch.call.tool))
        raise
    if ended is not None:
        _end(stage, launch, held, ended)


async def _taken(gate: Gate) -> None:
    """Wait for a gate."""
    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def called(_: Any) -> bool:
        if turn.done():
            return False
        turn.set_result(None)
        return True

    if gate.take(called):
        return
    try:
        await turn
    except asyncio.CancelledError:
        if turn.done() and not turn.cancelled():
            gate.release()
        raise


def _leave(stage: Stage, launch: Launch, held: list[Gate], _: object) -> None:
    assert launch.task is not None
    stage.detached.discard(launch.task)
    stage.leave(launch.task)
    _end(stage, launch, held, timed_out(launch))


def _end(stage: Stage, launch: Launch, held: list[Gate], ended: Ended) -> None:
    for gate in held:
        gate.release()
    result = launch.result(stage.clock, ended)
    if type(ended.value) is Message:
        message = ended.value
        stage.late_messages.append(message_of(message.kind, message.data, message.instance))
        result = replace(result, output=message.data)
    stage.tell(
        CallCompleted if ended.status == "ok" else CallFailed,
        call=launch.call,
        cycle_id=launch.scope.cycle_id,
        result=result,
    )
    if ended.fault is not None:
        error = {"kind": ended.fault.kind, "message": ended.fault.message}
        stage.late_errors.append({"call": wire_of(launch.call), "error": error})
