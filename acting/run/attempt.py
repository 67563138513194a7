"""Attempts at a call that waits, is late or is repeated, as its effect allows; calls that run on after their batch.

A late call is cancelled; one that ignores this for `grace` seconds is left behind: it gets its result without the tool,
whose later outcome is ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from msgspec import Struct

from acting.run.call_state import IDLE, LATE, LEFT, RUNNING, Step, wire_of
from acting.run.order import CallJournalWriter
from acting.run.runtime import Runtime
from acting.tooling.context import fault
from acting.tooling.limits import Go, Hold, acquire
from spar.backoff import Backoff
from spar.data.blackboard import Board, message_of
from spar.events import CallCompleted, CallFailed
from spar.types import CallResult, Message, replace, without_service_keys

BACKOFF = Backoff()


async def finish(runtime: Runtime, step: Step, ended: CallResult | None, begin: Callable[[Step], CallResult | None],
                 leave: Callable[[Step], object]) -> CallResult | None:  # fmt: skip
    """Finish a call in the current task, after its first attempt has begun.

    Args: begin: begins a further attempt; leave: called when the call is left behind. Then None is returned.
    Raises: CancelledError when the task is cancelled from outside, and besides only exceptions that end the process.
    """
    step.task = asyncio.current_task()
    while True:
        if ended is None:
            ended = await (copied_result(runtime, step) if step.copying else _wait(runtime, step, leave))
            if ended is None:
                return None
        pause = pause_after(step, ended)
        if pause is None:
            return ended
        await runtime.clock.sleep(pause)
        if step.entry.terms.rate:
            await acquire(runtime.rate_of(step.entry))
        if runtime.spending is not None and not runtime.spending.again(step):
            return ended
        ended = begin(step)


async def copied_result(runtime: Runtime, step: Step) -> CallResult:
    """Return the result for a large value. Others have their turn after each slice of its copy."""
    assert step.copying is not None
    ended = None
    while ended is None:
        ended = await runtime.in_turn(step.copying.__next__)
    step.copying = None
    return ended


async def _wait(runtime: Runtime, step: Step, leave: Callable[[Step], object]) -> CallResult | None:
    """Wait for the end of an attempt, or for its deadline. Return None when it was left behind."""
    assert step.task is not None
    assert step.started is not None
    task, started, clock, deadlines = step.task, step.started, runtime.clock, runtime.deadlines
    step.started, timeout, grace = None, step.entry.terms.timeout, runtime.limits.grace

    def late() -> None:
        step.flight = LATE
        task.cancel()
        deadlines.add(step, grace, clock.monotonic() + grace, abandon)

    def abandon() -> None:
        step.flight = LEFT
        runtime.outside.leave(task)
        leave(step)

    if step.deadline < inf:
        deadlines.add(step, timeout, step.deadline, late)
    ended: CallResult | None
    try:
        ended = step.returned(await started, clock, runtime.limits.largest_result)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and step.flight == RUNNING and task.cancelling():
            step.flight = LATE  # a thread that still works for it can read that
            raise  # the batch is being cancelled: it sets the result of this call
        ended = step.broke(error, clock)
    finally:
        deadlines.drop(step, timeout)
        deadlines.drop(step, grace)
    if step.flight == LEFT:
        return None
    is_late, step.flight = step.flight == LATE, IDLE
    if not is_late:
        return ended or await copied_result(runtime, step)
    step.copying = None
    if task.uncancel():
        raise asyncio.CancelledError  # late and cancelled from outside as well
    return step.timed_out(clock)


def pause_after(step: Step, ended: CallResult) -> float | None:
    """Return the seconds until the next attempt; None when there is none.

    There is none after the last retry, for a call whose effect allows no repetition, for a fault that would come again,
    and where the other side asks for a longer pause than the back-off's cap.
    """
    why = ended.fault
    if why is None or not why.retryable or ended.status not in ("failed", "timeout"):
        return None
    if step.number > step.entry.terms.retries or step.effect == "once":
        return None
    requested_pause = why.detail.get("retry_after")
    if not isinstance(requested_pause, (int, float)):
        requested_pause = 0.0
    return None if requested_pause > BACKOFF.cap else max(requested_pause, BACKOFF.delay(step.number))


class Detach(Struct, Hold, eq=False):
    """Hold of a detached call: for its batch the call ends here, and it takes its further holds in a task of its own.

    The executor limits the number of such calls, and waits for them when it is closed. The session's next batch gets
    their messages and errors.

    Args: writer: writes to the journal, None without one; begin: begins an attempt.
    """

    _runtime: Runtime
    _board: Board
    _writer: CallJournalWriter | None
    _begin: Callable[[Step], CallResult | None]

    def take(self, step: Step, go: Go, /) -> CallResult:
        """Start the call and return its result "detached"; a failed result when too many of them run already."""
        runtime, tool = self._runtime, step.call.tool
        count, most = len(runtime.detached), runtime.limits.max_detached
        if count >= most:
            message = f"{count} detached calls are still running: {most} are allowed"
            return step.failed(fault("resources", message, tool))
        step.select_messages(self._board)
        if self._writer is not None:
            self._writer.detached(step)
        # Those before it are released with the end of the call for its batch.
        runtime.detached.start(self._run(step, step.holds[step.passed + 1 :]), f"detached {tool}")
        return CallResult(step.call, "ok", "detached", attempts=1, started_at=runtime.clock.now())

    async def _run(self, step: Step, holds: tuple[Hold, ...]) -> None:
        """Carry out a detached call."""
        ended, clock = None, self._runtime.clock
        step.holds, step.passed = holds, 0
        try:
            while step.passed < len(step.holds):
                if (ended := await acquire(step.holds[step.passed], step)) is not None:
                    return
                step.passed += 1
            ended = await finish(self._runtime, step, self._begin(step), self._begin, self._leave)
        except asyncio.CancelledError:
            ended = step.cut(clock)
            raise
        finally:
            if ended is not None:
                self._end(step, ended)

    def _leave(self, step: Step) -> None:
        assert step.task is not None
        self._runtime.detached.discard(step.task)
        self._end(step, step.timed_out(self._runtime.clock))

    def _end(self, step: Step, result: CallResult) -> None:
        for hold in step.holds[: step.passed]:
            hold.release(step)
        why, late, session, step.task = result.fault, self._runtime.late, step.scope.session, None
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
