"""Detached calls: they run on after their batch has ended.

The executor limits their number, and waits for them when it is closed. The session's next batch gets their messages
and errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from acting.calls import fault
from acting.run.call.attempt import Attempt, begin, cut, finish, goes_on, timed_out
from acting.run.call.call_state import Step, wire_of
from acting.run.journal import CallJournalWriter
from acting.run.shared.runtime import Runtime
from acting.tooling.limits import Permit, acquire
from spar.data.blackboard import message_of
from spar.events import CallCompleted, CallFailed
from spar.types import CallResult, Message, replace, without_service_keys


def detach(runtime: Runtime, attempt: Attempt, step: Step, writer: CallJournalWriter | None) -> CallResult:
    """Start a detached call and return its result "detached"; a failed result when too many of them run already."""
    if len(runtime.detached) >= runtime.limits.max_detached:
        message = f"{len(runtime.detached)} detached calls are still running: {runtime.limits.max_detached} are allowed"
        return CallResult(attempt.call, "failed", fault=fault("resources", message, attempt.call.tool))
    is_to_be_safe = False
    if runtime.spending is not None:
        runtime.spending.begin(step, attempt.scope)
    if writer is not None:
        is_to_be_safe = writer.start(step)
        writer.detached(attempt)
    permits = runtime.permits_of(step.entry, step.params, attempt.scope.session)
    work = _run(runtime, attempt, permits, step, writer, is_to_be_safe=is_to_be_safe)
    runtime.detach(work, f"detached {attempt.call.tool}")
    return CallResult(attempt.call, "ok", "detached", attempts=1, started_at=runtime.clock.now())


async def _run(
    runtime: Runtime, attempt: Attempt, permits: tuple[Permit, ...], step: Step, writer: CallJournalWriter | None, *,
    is_to_be_safe: bool,
) -> None:  # fmt: skip
    held: list[Permit] = []
    end = partial(_end, runtime, attempt, writer, held)
    try:
        for permit in permits:
            await acquire(permit)
            held.append(permit)
        if is_to_be_safe and writer is not None and (why := await writer.safe()):
            end(attempt.result(runtime.clock, "failed", why=fault("io", why, attempt.call.tool)))
            return
        ended = begin(runtime, attempt)
        if goes_on(attempt, ended):
            attempt.task = asyncio.current_task()
            ended = await finish(runtime, attempt, ended, partial(_leave, runtime, attempt, end), None)
    except asyncio.CancelledError:
        end(cut(runtime.clock, attempt))
        raise
    if ended is not None:
        end(ended)


def _leave(runtime: Runtime, attempt: Attempt, end: Callable[[CallResult], None], _: object) -> None:
    assert attempt.task is not None
    runtime.detached.discard(attempt.task)
    runtime.leave(attempt.task)
    end(timed_out(runtime.clock, attempt))


def _end(
    runtime: Runtime, attempt: Attempt, writer: CallJournalWriter | None, held: list[Permit], result: CallResult
) -> None:
    for permit in held:
        permit.release()
    why = result.fault
    if writer is not None:
        writer.attached(result)
    if type(result.output) is Message:
        message = result.output
        runtime.late.add(attempt.scope.session, message_of(message.kind, message.data, message.instance))
        result = replace(result, output=message.data)
    kind = CallCompleted if result.status == "ok" else CallFailed
    runtime.tell_of(kind, attempt.call, attempt.scope, result=result)
    if why is not None:
        error = {"kind": why.kind, "message": why.message}
        data = {"call": without_service_keys(wire_of(attempt.call)), "error": error}
        runtime.late.add(attempt.scope.session, data, is_error=True)
