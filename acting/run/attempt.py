"""Attempts at one call, each with a deadline, repeated where the call's effect allows it.

`begin` runs the tool's coroutine up to its first wait without a task: most calls of a cheap tool end there, and cost no
task and no timer. A coroutine that waits goes on in `finish`. A late call is cancelled; one that ignores this for
`grace` seconds is left behind: it gets its result without the tool, whose later outcome is ignored. The tool's value is
made fit to be stored, and compared with the schema that the tool promised and the value that the call expects.
"""

from __future__ import annotations

import asyncio
import threading
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextvars import Context
from functools import partial
from math import inf
from typing import Any

from acting.calls import fault, fault_of
from acting.graph.nodes import HELD
from acting.run.call.call_state import IDLE, LATE, LEFT, RUNNING, Step
from acting.run.call.normalize import fit, fit_in_slices, judged, unfit
from acting.run.runtime import Runtime
from acting.tooling.limits import acquire
from acting.tooling.tool_context import ToolContext
from spar.backoff import Backoff
from spar.clock import Timer
from spar.data.json_safe import NotJsonError, plain
from spar.data.json_safe.slices import copied_in_slices, is_large
from spar.data.paths import ValueTooLargeError
from spar.errors import InDoubtError
from spar.events import CallProgressed, CallStarted
from spar.facts import AttemptStarted
from spar.types import CallResult, CallStatus, Fault, Message

BACKOFF = Backoff()
_MAY_HAVE = " and may have had its effect: find out before repeating it"
_LARGEST_PROGRESS = 1 << 16  # bytes of a progress report as JSON; it is only shown
_UNFIT = (ValueTooLargeError, NotJsonError)


class Attempts:
    """Attempts at the calls of one batch.

    Args: context: copied for each attempt, so that variables that a tool sets there stay its own; first: called before
        the first attempt at a call that its batch waits for.
    """

    __slots__ = ("_context", "_first", "_runtime")

    def __init__(self, runtime: Runtime, context: Context, first: Callable[[Step], object] = lambda step: None) -> None:
        self._runtime, self._context, self._first = runtime, context, first

    def begin(self, step: Step) -> CallResult | None:
        """Run an attempt up to its first wait in the current task. Return None if it waits (`step.started`), or has
        returned a large value (`step.copying`).

        Raises: only exceptions that end the process.
        """
        runtime, scope, entry, call = self._runtime, step.scope, step.entry, step.call
        now = runtime.clock.monotonic()
        step.number += 1
        if step.number == 1:
            step.began, step.started_at = now, runtime.wall.at(now)
            if step.state == HELD:
                self._first(step)
        elif runtime.journal is not None:
            runtime.journal.append(AttemptStarted(
                session=scope.session, cycle=scope.work, call=call.id, attempt=step.number, effect=step.effect,
                allowed="retry",
            ))  # fmt: skip
        if entry.terms.timeout != inf:
            step.deadline = now + entry.terms.timeout
        if runtime.wanted[CallStarted]:
            run_id = runtime.run_of(call, scope)
            runtime.publish(CallStarted(call=call, cycle_id=scope.cycle_id, run_id=run_id, attempt=step.number))
        arguments = step.arguments
        if entry.context:
            arguments = {**arguments, entry.context: self._tool_context(step)}
        context = self._context.copy()
        step.flight = RUNNING
        try:
            if entry.function is not None:
                coroutine = entry.function(**arguments)
            else:
                coroutine = entry.invoke(arguments, runtime.clock, call, step.messages)
            # A tool that never waits needs no timer: nothing could cancel it before its end.
            waits_for = context.run(coroutine.send, None)
        except StopIteration as stop:
            ended = self._returned(step, stop.value)
        except asyncio.CancelledError:
            ended = self._cancelled_itself(step)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            ended = self._failed(step, error)
        else:
            step.started = _go_on(coroutine, waits_for, context)
            return None
        step.flight = IDLE
        return ended

    async def finish(self, step: Step, ended: CallResult | None, leave: Callable[[Step], object]) -> CallResult | None:
        """Finish a call that `begin` began, in the current task, if `goes_on` says so. Return None when it was left
        behind: then `leave(step)` was called.

        Raises: CancelledError when the task is cancelled from outside, and besides only exceptions that end the
            process.
        """
        runtime = self._runtime
        step.task = asyncio.current_task()
        while True:
            if ended is None:
                ended = await (self.in_slices(step) if step.copying else self._wait(step, leave))
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
            ended = self.begin(step)

    async def in_slices(self, step: Step) -> CallResult:
        """Return the result for a large value. Others have their turn after each slice of its copy."""
        assert step.copying is not None
        ended = None
        while ended is None:
            ended = await self._runtime.in_turn(step.copying.__next__)
        step.copying = None
        return ended

    def cut(self, step: Step) -> CallResult:
        """Return the result of a cancelled call: its draft if there is one, else cancelled or in doubt.

        Where the tool has returned a large value, the rest of it is copied at once.
        """
        if step.draft is not None:
            return step.draft
        if step.copying is not None:
            return next(filter(None, step.copying))
        return self._broken_off(step, "was cut off", "the run was cancelled")

    def timed_out(self, step: Step) -> CallResult:
        """Return the result of a late call, whether its task has ended or was left behind."""
        name, limit = step.entry.name, step.entry.terms.timeout
        message = f"tool {name!r} did not end within {limit:g} s"
        if step.effect != "once":
            return self.result(step, "timeout", why=Fault("timeout", message, name, "act"))
        return self.result(step, "timeout", why=Fault("timeout", message + _MAY_HAVE, name, "act", False,
                                                      {"in_doubt": True}))  # fmt: skip

    def result(
        self, step: Step, status: CallStatus, value: Any = None, why: Fault | None = None, met: bool | None = None
    ) -> CallResult:
        """Return the result of a call, now.

        Args: met: whether the value is as the call expects; None: the call expects nothing.
        """
        duration = self._runtime.clock.monotonic() - step.began if step.number else 0.0
        return CallResult(step.call, status, "", value, why, step.number, step.started_at, duration, met)

    async def _wait(self, step: Step, leave: Callable[[Step], object]) -> CallResult | None:
        """Wait for the end of an attempt, or for its deadline. Return None when it was left behind."""
        task, started, deadlines = step.task, step.started, self._runtime.deadlines
        assert task is not None
        assert started is not None
        step.started, grace = None, list[Timer]()
        if step.deadline is not None:
            deadlines.add(step, step.entry.terms.timeout, step.deadline, partial(self._late, step, leave, grace))
        ended: CallResult | None
        try:
            ended = self._returned(step, await started)
        except asyncio.CancelledError:
            if step.flight == RUNNING and task.cancelling():
                step.flight = LATE  # a thread that still works for it can read that
                raise  # the batch is being cancelled: it sets the result of this call
            ended = self._cancelled_itself(step)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            ended = self._failed(step, error)
        finally:
            deadlines.drop(step, step.entry.terms.timeout)
            for timer in grace:
                timer.cancel()
        if step.flight == LEFT:
            return None
        is_late, step.flight = step.flight == LATE, IDLE
        if not is_late:
            return ended or await self.in_slices(step)
        step.copying = None
        if task.uncancel():
            raise asyncio.CancelledError  # late and cancelled from outside as well
        return self.timed_out(step)

    def _late(self, step: Step, leave: Callable[[Step], object], grace: list[Timer]) -> None:
        """Cancel a call at its deadline, and leave it behind if it has not ended after the grace."""
        assert step.task is not None
        step.flight = LATE
        step.task.cancel()
        clock = self._runtime.clock
        grace.append(clock.call_at(clock.monotonic() + self._runtime.limits.grace, partial(_abandon, step, leave)))

    # -- results

    def _returned(self, step: Step, value: Any) -> CallResult | None:
        """Return the result for a value that the tool returned: failed if it cannot be stored, or is not as promised
        by the tool or expected by the call. None if it is large: then `in_slices` returns it."""
        if value is not None:
            if is_large(value.data if type(value) is Message else value):
                step.copying = self._copied(step, value)
                return None
            try:
                value = fit(value, self._runtime.limits.largest_result)
            except _UNFIT as error:
                return self._unfit(step, error, value)
        return self._judged(step, value)

    def _copied(self, step: Step, value: Any) -> Iterator[CallResult | None]:
        """Copy a large value, once more for the board; yield None after each slice, and last the result."""
        try:
            copy = yield from fit_in_slices(value, self._runtime.limits.largest_result)
        except _UNFIT as error:
            yield self._unfit(step, error, value)
        else:
            if step.call.output_path is not None and type(copy) is not Message:
                step.for_board = copy, (yield from copied_in_slices(copy))
            yield self._judged(step, copy)

    def _judged(self, step: Step, value: Any) -> CallResult:
        if step.entry.output is None and not step.call.meta:
            return self.result(step, "ok", value)
        why, met = judged(value, step.call, step.entry)
        return self.result(step, "ok" if why is None else "failed", value if why is None else None, why, met)

    def _unfit(self, step: Step, error: Exception, value: Any) -> CallResult:
        why = unfit(error, value, step.entry.name, self._runtime.limits.largest_result)
        return self.result(step, "failed", why=why)

    def _failed(self, step: Step, error: BaseException) -> CallResult:
        """Return the result for an error that the tool raised."""
        status: CallStatus = "in_doubt" if isinstance(error, InDoubtError) else "failed"
        return self.result(step, status, why=fault_of(error, step.entry.name))

    def _cancelled_itself(self, step: Step) -> CallResult:
        return self._broken_off(step, "cancelled itself", f"tool {step.entry.name!r} cancelled itself")

    def _broken_off(self, step: Step, what: str, otherwise: str) -> CallResult:
        """Return the result of a cancelled call: in doubt where it may have had an effect that must not be repeated.

        Args: what: what happened to the tool; otherwise: the sentence where there is no doubt.
        """
        name = step.entry.name if step.number else step.call.tool
        if step.flight != IDLE and step.effect == "once":
            return self.result(step, "in_doubt", why=fault("in_doubt", f"tool {name!r} {what}{_MAY_HAVE}", name))
        return self.result(step, "cancelled", why=fault("cancelled", otherwise, name))

    def _tool_context(self, step: Step) -> ToolContext:
        """Return the context of the attempt that is about to begin."""
        runtime, scope = self._runtime, step.scope
        loop, home, number = asyncio.get_running_loop(), threading.get_ident(), step.number

        def is_current() -> bool:
            return step.flight == RUNNING and step.number == number

        def publish(value: Any) -> None:
            if is_current() and runtime.wanted[CallProgressed]:
                runtime.tell_of(CallProgressed, step.call, scope, progress=plain(value, _LARGEST_PROGRESS))

        def progress(value: Any) -> None:
            if threading.get_ident() == home:
                publish(value)
                return
            try:
                loop.call_soon_threadsafe(publish, value)
            except RuntimeError:  # the event loop has closed
                pass

        return ToolContext(
            step.call, runtime.agent, step.deadline, number, f"{scope.key}/{step.call.id}", progress,
            step.entry.schema, step.messages, runtime.next_fence(), scope.session, step.question.binds,
            runtime.run_of(step.call, scope), is_current,
        )  # fmt: skip


def _abandon(step: Step, leave: Callable[[Step], object]) -> None:
    step.flight = LEFT
    leave(step)


def goes_on(step: Step, ended: CallResult | None) -> bool:
    """Return whether a call has to go on after `begin` returned `ended`: it has not ended, or is to be repeated."""
    return ended is None or (ended.fault is not None and _pause(step, ended) is not None)


@types.coroutine
def _go_on(coroutine: Coroutine[Any, Any, Any], waits_for: Any, context: Context) -> Generator[Any, Any, Any]:
    """Run a coroutine that waits for the future `waits_for` to its end in `context`."""
    run = context.run
    try:
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                run(coroutine.close)
                raise
            except BaseException as error:
                waits_for = run(coroutine.throw, error)
            else:
                waits_for = run(coroutine.send, sent)
    except StopIteration as stop:
        return stop.value


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
