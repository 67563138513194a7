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
from acting.run.holds.hold import Go, Hold
from acting.run.journal import CallJournalWriter
from acting.run.shared.runtime import Runtime
from acting.tooling.limits import acquire
from spar.data.blackboard import message_of
from spar.events import CallCompleted, CallFailed
from spar.types import CallResult, Message, replace, without_service_keys


class Detach(Hold):
    """Hold of a detached call: for its batch the call ends here, and it takes its further holds in a task of its own.

    Args: writer: writes to the journal, None without one; begin: called with a call that begins, returns its attempt.
    """

    __slots__ = ("_begin", "_runtime", "_writer")

    def __init__(self, runtime: Runtime, writer: CallJournalWriter | None, begin: Callable[[Step], Attempt]) -> None:
        self._runtime, self._writer, self._begin = runtime, writer, begin

    def take(self, step: Step, go: Go, /) -> CallResult:
        """Start the call and return its result "detached"; a failed result when too many of them run already."""
        runtime, writer, tool = self._runtime, self._writer, step.call.tool
        if len(runtime.detached) >= runtime.limits.max_detached:
            count, most = len(runtime.detached), runtime.limits.max_detached
            message = f"{count} detached calls are still running: {most} are allowed"
            return step.failed(fault("resources", message, tool))
        attempt, is_to_be_safe = self._begin(step), False
        if runtime.spending is not None:
            runtime.spending.begin(step, attempt.scope)
        if writer is not None:
            is_to_be_safe = writer.start(step)
            writer.detached(attempt)
        holds = step.holds[step.passed + 1 :]
        runtime.detach(_run(runtime, attempt, holds, step, writer if is_to_be_safe else None, partial(
            _end, runtime, attempt, writer, step)), f"detached {tool}")  # fmt: skip
        return CallResult(attempt.call, "ok", "detached", attempts=1, started_at=runtime.clock.now())


async def _run(runtime: Runtime, attempt: Attempt, holds: tuple[Hold, ...], step: Step,
               writer: CallJournalWriter | None, end: Callable[[CallResult], None]) -> None:  # fmt: skip
    """Carry out a detached call. `writer` waits until its start is on disk; None if that is not needed."""
    step.holds, step.passed = holds, 0  # those before it were released with the end of the call for its batch
    try:
        while step.passed < len(step.holds):
            await acquire(step.holds[step.passed], step)
            step.passed += 1
        if writer is not None and (why := await writer.safe()):
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


def _end(runtime: Runtime, attempt: Attempt, writer: CallJournalWriter | None, step: Step, result: CallResult) -> None:
    for hold in step.holds[: step.passed]:
        hold.release(step)
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
