"""Detached calls: they run on after their batch has ended.

The executor limits their number, and waits for them when it is closed. The session's next batch gets their messages
and errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from acting.calls import fault
from acting.run.attempt import finish, goes_on
from acting.run.call.call_state import Step, wire_of
from acting.run.journal import CallJournalWriter
from acting.run.runtime import Runtime
from acting.tooling.limits import Go, Hold, acquire
from spar.data.blackboard import Board, message_of
from spar.events import CallCompleted, CallFailed
from spar.types import CallResult, Message, replace, without_service_keys


class Detach(Hold):
    """Hold of a detached call: for its batch the call ends here, and it takes its further holds in a task of its own.

    Args: writer: writes to the journal, None without one; begin: begins an attempt.
    """

    __slots__ = ("_begin", "_board", "_runtime", "_writer")

    def __init__(self, runtime: Runtime, board: Board, writer: CallJournalWriter | None,
                 begin: Callable[[Step], CallResult | None]) -> None:  # fmt: skip
        self._runtime, self._board, self._writer, self._begin = runtime, board, writer, begin

    def take(self, step: Step, go: Go, /) -> CallResult:
        """Start the call and return its result "detached"; a failed result when too many of them run already."""
        runtime, writer, tool = self._runtime, self._writer, step.call.tool
        if len(runtime.detached) >= runtime.limits.max_detached:
            count, most = len(runtime.detached), runtime.limits.max_detached
            message = f"{count} detached calls are still running: {most} are allowed"
            return step.failed(fault("resources", message, tool))
        step.select_messages(self._board)
        if runtime.spending is not None:
            runtime.spending.take(step)
        is_to_be_safe = writer is not None and writer.start(step)
        if writer is not None:
            writer.detached(step)
        # Those before it are released with the end of the call for its batch.
        holds = step.holds[step.passed + 1 :]
        runtime.detach(self._run(step, holds, is_to_be_safe=is_to_be_safe), f"detached {tool}")
        return CallResult(step.call, "ok", "detached", attempts=1, started_at=runtime.clock.now())

    async def _run(self, step: Step, holds: tuple[Hold, ...], *, is_to_be_safe: bool) -> None:
        """Carry out a detached call, once its start is on disk where that is needed."""
        ended, clock = None, self._runtime.clock
        step.holds, step.passed = holds, 0
        try:
            while step.passed < len(step.holds):  # one for resources adds their slots
                await acquire(step.holds[step.passed], step)
                step.passed += 1
            if is_to_be_safe and self._writer is not None and (why := await self._writer.safe()):
                ended = step.make_result("failed", clock, why=fault("io", why, step.call.tool))
            else:
                ended = self._begin(step)
                if goes_on(step, ended):
                    ended = await finish(self._runtime, step, ended, self._begin, self._leave)
        except asyncio.CancelledError:
            ended = step.cut(clock)
            raise
        finally:
            if ended is not None:
                self._end(step, ended)

    def _leave(self, step: Step) -> None:
        assert step.task is not None
        self._runtime.detached.discard(step.task)
        self._runtime.leave(step.task)
        self._end(step, step.timed_out(self._runtime.clock))

    def _end(self, step: Step, result: CallResult) -> None:
        for hold in step.holds[: step.passed]:
            hold.release(step)
        why, late, session = result.fault, self._runtime.late, step.scope.session
        if self._writer is not None:
            self._writer.attached(result)
        if type(result.output) is Message:
            message = result.output
            late.add(session, message_of(message.kind, message.data, message.instance))
            result = replace(result, output=message.data)
        kind = CallCompleted if result.status == "ok" else CallFailed
        self._runtime.tell_of(kind, step, result=result)
        if why is not None:
            error = {"kind": why.kind, "message": why.message}
            late.add(session, {"call": without_service_keys(wire_of(step.call)), "error": error}, is_error=True)
