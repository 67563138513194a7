"""Attempts at a call that waits, is late or is repeated, as its effect allows.

A late call is cancelled; one that ignores this for `grace` seconds is left behind: it gets its result without the tool,
whose later outcome is ignored.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from acting.run.call.call_state import IDLE, LATE, LEFT, RUNNING, Step
from acting.run.runtime import Runtime
from acting.tooling.limits import acquire
from acting.tooling.tool_context import ToolContext
from spar.backoff import Backoff
from spar.clock import Timer
from spar.data.json_safe import plain
from spar.events import CallProgressed
from spar.types import CallResult

BACKOFF = Backoff()
_LARGEST_PROGRESS = 1 << 16  # bytes of a progress report as JSON; it is only shown


async def finish(runtime: Runtime, step: Step, ended: CallResult | None, begin: Callable[[Step], CallResult | None],
                 leave: Callable[[Step], object]) -> CallResult | None:  # fmt: skip
    """Finish a call in the current task, if `goes_on` says so of what its first attempt has returned.

    Args: begin: begins a further attempt; leave: called when the call is left behind. Then None is returned.
    Raises: CancelledError when the task is cancelled from outside, and besides only exceptions that end the process.
    """
    step.task = asyncio.current_task()
    while True:
        if ended is None:
            ended = await (copied_result(runtime, step) if step.copying else _wait(runtime, step, leave))
            if ended is None:
                return None
        pause = _pause(step, ended)
        if pause is None:
            return ended
        await runtime.clock.sleep(pause)
        if rate := runtime.rate_of(step.entry):
            await acquire(rate)
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
    task, started, clock, graces = step.task, step.started, runtime.clock, list[Timer]()
    step.started, timeout = None, step.entry.terms.timeout

    def late() -> None:
        step.flight = LATE
        task.cancel()
        graces.append(clock.call_at(clock.monotonic() + runtime.limits.grace, abandon))

    def abandon() -> None:
        step.flight = LEFT
        leave(step)

    if step.deadline is not None:
        runtime.deadlines.add(step, timeout, step.deadline, late)
    ended: CallResult | None
    try:
        ended = step.returned(await started, clock, runtime.limits.largest_result)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and step.flight == RUNNING and task.cancelling():
            step.flight = LATE  # a thread that still works for it can read that
            raise  # the batch is being cancelled: it sets the result of this call
        ended = step.broke(error, clock)
    finally:
        runtime.deadlines.drop(step, timeout)
        for grace in graces:
            grace.cancel()
    if step.flight == LEFT:
        return None
    is_late, step.flight = step.flight == LATE, IDLE
    if not is_late:
        return ended or await copied_result(runtime, step)
    step.copying = None
    if task.uncancel():
        raise asyncio.CancelledError  # late and cancelled from outside as well
    return step.timed_out(clock)


def tool_context(runtime: Runtime, step: Step) -> ToolContext:
    """Return the context of the attempt that is about to begin."""
    loop, home, number = asyncio.get_running_loop(), threading.get_ident(), step.number

    def is_current() -> bool:
        return step.flight == RUNNING and step.number == number

    def publish(value: Any) -> None:
        if is_current() and runtime.wanted[CallProgressed]:
            runtime.tell_of(CallProgressed, step, progress=plain(value, _LARGEST_PROGRESS))

    def progress(value: Any) -> None:
        if threading.get_ident() == home:
            publish(value)
            return
        try:
            loop.call_soon_threadsafe(publish, value)
        except RuntimeError:  # the event loop has closed
            pass

    return ToolContext(
        step.call, runtime.agent, step.deadline, number, f"{step.scope.key}/{step.call.id}", progress,
        step.entry.schema, step.messages, runtime.next_fence(), step.scope.session, step.question.binds,
        step.run_id, is_current,
    )  # fmt: skip


def goes_on(step: Step, ended: CallResult | None) -> bool:
    """Return whether a call has to go on after an attempt has begun: it has not ended, or is to be repeated."""
    return ended is None or (ended.fault is not None and _pause(step, ended) is not None)


def _pause(step: Step, ended: CallResult) -> float | None:
    """Return the seconds until the next attempt; None when there is none.

    There is none after the last retry, for a call whose effect allows no repetition, for a fault that would come again,
    and where the other side asks for a longer pause than the back-off's cap.
    """
    why = ended.fault
    if (
        why is None
        or step.number > step.entry.terms.retries
        or not why.retryable
        or ended.status not in ("failed", "timeout")
        or step.effect == "once"
    ):
        return None
    requested_pause = why.detail.get("retry_after")
    if not isinstance(requested_pause, (int, float)):
        requested_pause = 0.0
    return None if requested_pause > BACKOFF.cap else max(requested_pause, BACKOFF.delay(step.number))
