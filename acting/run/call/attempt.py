"""Attempts at one call, each with a deadline, repeated where the call's effect allows it.

`begin` runs the tool's coroutine up to its first wait without a task: most calls of a cheap tool end there, and cost no
task and no timer. A coroutine that waits goes on in `finish`. A late call is cancelled; one that ignores this for
`grace` seconds is left behind: it gets its result without the tool, whose later outcome is ignored. The tool's value is
made fit to be stored, and compared with the schema that the tool promised and the value that the call expects.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from contextvars import Context
from datetime import datetime
from math import inf
from typing import Any

from msgspec import Struct

from acting.calls import Scope, fault, fault_of
from acting.run.call.normalize import fit, fit_in_slices, judged, unfit
from acting.run.shared.deadlines import Deadline
from acting.run.shared.runtime import Runtime
from acting.tooling.bound_tool import BoundTool
from acting.tooling.limits import acquire
from acting.tooling.tool_context import ToolContext
from spar.backoff import Backoff
from spar.clock import Clock, Timer
from spar.data.json_safe import NotJsonError, copied, plain, whole
from spar.data.json_safe.slices import copied_in_slices, is_large
from spar.data.paths import ValueTooLargeError
from spar.errors import InDoubtError
from spar.events import CallProgressed, CallStarted
from spar.facts import AttemptStarted
from spar.types import Call, CallResult, CallStatus, Fault, Message

BACKOFF = Backoff()
_MAY_HAVE = " and may have had its effect: find out before repeating it"
_LARGEST_PROGRESS = 1 << 16  # bytes of a progress report as JSON; it is only shown


class Attempt(Struct):
    """One call that is carried out: the tool with its parameters, and the state of its current attempt."""

    call: Call
    entry: BoundTool
    params: dict[str, Any]
    scope: Scope
    context: Context  # copied for each attempt: variables that a tool sets there stay its own
    messages: tuple[dict[str, Any], ...] = ()  # the messages that its `_scopes` select for the tool
    binds: Mapping[str, Any] | None = None  # the facts that an approval was bound to, for the tool to check
    number: int = 0  # count of the attempts that have begun
    started_at: datetime | None = None
    began: float = 0.0  # of the first attempt, in monotonic seconds
    is_in_flight: bool = False
    is_late: bool = False
    deadline: float | None = None  # monotonic seconds
    task: asyncio.Task[Any] | None = None
    started: _StartedCoroutine | None = None  # the tool, while it waits
    copying: Iterator[CallResult | None] | None = None  # the copy of the large value that it returned, in slices
    for_board: tuple[Any, Any] | None = None  # the large value that it returned, and a copy to be written

    @property
    def effect(self) -> str:
        """Return the effect of this call; the tool may derive it from the parameters."""
        return self.entry.effect_of(self.params)  # the values, where the call itself holds references

    def result(
        self, clock: Clock, status: CallStatus, value: Any = None, why: Fault | None = None, met: bool | None = None
    ) -> CallResult:
        """Return the result of this call, now.

        Args: met: whether the value is as the call expects; None: the call expects nothing.
        """
        duration = clock.monotonic() - self.began if self.number else 0.0
        return CallResult(self.call, status, "", value, why, self.number, self.started_at, duration, met)

    def returned(self, runtime: Runtime, value: Any) -> CallResult | None:
        """Return the result for a value that the tool returned: failed if it cannot be stored, or is not as promised
        by the tool or expected by the call. None if it is large: then `in_slices` returns it."""
        if value is not None:
            if is_large(value.data if type(value) is Message else value):
                self.copying = self._copied(runtime, value)
                return None
            limit = runtime.limits.largest_result
            try:
                value = fit(value, limit) if type(value) is Message else whole(value, limit)
            except (ValueTooLargeError, NotJsonError) as error:
                return self.result(runtime.clock, "failed", why=unfit(error, value, self.entry.name, limit))
        return self._judged(runtime, value)

    async def in_slices(self, runtime: Runtime) -> CallResult:
        """Return the result for a large value. Others have their turn after each slice of its copy."""
        assert self.copying is not None
        ended = None
        while ended is None:
            ended = await runtime.in_turn(self.copying.__next__)
        self.copying = None
        return ended

    def _copied(self, runtime: Runtime, value: Any) -> Iterator[CallResult | None]:
        """Copy a large value, once more for the board; yield None after each slice, and last the result."""
        limit = runtime.limits.largest_result
        try:
            copy = yield from fit_in_slices(value, limit)
        except (ValueTooLargeError, NotJsonError) as error:
            yield self.result(runtime.clock, "failed", why=unfit(error, value, self.entry.name, limit))
        else:
            if self.call.output_path is not None and type(copy) is not Message:
                self.for_board = copy, (yield from copied_in_slices(copy))
            yield self._judged(runtime, copy)

    def copy_for_board(self, value: Any) -> Any:
        """Return a copy of the value that the call returned, which the board will change: that made in slices if there
        is one."""
        large, self.for_board = self.for_board, None
        return large[1] if large is not None and large[0] is value else copied(value)

    def _judged(self, runtime: Runtime, value: Any) -> CallResult:
        call, entry, clock = self.call, self.entry, runtime.clock
        if entry.output is None and not call.meta:
            duration = clock.monotonic() - self.began
            return CallResult(call, "ok", "", value, None, self.number, self.started_at, duration)
        why, met = judged(value, call, entry)
        return self.result(clock, "ok", value, met=met) if why is None else self.result(clock, "failed", None, why, met)

    def failed(self, clock: Clock, error: BaseException) -> CallResult:
        """Return the result for an error that the tool raised."""
        status: CallStatus = "in_doubt" if isinstance(error, InDoubtError) else "failed"
        return self.result(clock, status, why=fault_of(error, self.entry.name))


class _AttemptDeadline(Deadline):
    """Deadline of one attempt: cancels its task, and calls `leave(about)` if the task has not ended after the grace.

    `about` is any value that `leave` needs, such as the step.
    """

    __slots__ = ("_about", "_attempt", "_grace", "_leave", "_runtime", "is_left")

    def __init__(self, runtime: Runtime, attempt: Attempt, leave: Callable[[Any], object], about: Any) -> None:
        self._runtime, self._attempt, self._leave, self._about = runtime, attempt, leave, about
        self.is_left = False
        self._grace: Timer | None = None
        self.row = None
        if attempt.deadline is not None:
            runtime.deadlines.add(attempt.entry.terms.timeout, attempt.deadline, self)

    def close(self) -> None:
        super().close()
        if self._grace is not None:
            self._grace.cancel()

    def due(self) -> None:
        assert self._attempt.task is not None
        self._attempt.is_late = True
        self._attempt.task.cancel()
        clock = self._runtime.clock
        self._grace = clock.call_at(clock.monotonic() + self._runtime.limits.grace, self._abandon)

    def _abandon(self) -> None:
        self.is_left = True
        self._leave(self._about)


class _StartedCoroutine:
    """A coroutine that `begin` has run to its first wait, for the future `waits_for`; awaiting this object runs it to
    its end in `context`."""

    __slots__ = ("_context", "_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: Any, context: Context) -> None:
        self._coroutine, self._waits_for, self._context = coroutine, waits_for, context

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, waits_for, run = self._coroutine, self._waits_for, self._context.run
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


async def finish(
    runtime: Runtime, attempt: Attempt, ended: CallResult | None, leave: Callable[[Any], object], about: Any
) -> CallResult | None:
    """Finish a call that `begin` began, in `attempt.task`, if `goes_on` says so. Return None when it was left behind.

    `leave(about)` is called when it is left behind. Raises: CancelledError when the task is cancelled from outside, and
    besides only exceptions that end the process.
    """
    while True:
        if ended is None:
            ended = await (attempt.in_slices(runtime) if attempt.copying else _wait(runtime, attempt, leave, about))
            if ended is None:
                return None
        pause = _pause(attempt, ended)
        if pause is None:
            return ended
        await runtime.clock.sleep(pause)
        if rate := runtime.rate_of(attempt.entry):
            await acquire(rate)
        if runtime.spending is not None and not runtime.spending.again(attempt.entry, attempt.params, attempt.scope):
            return ended
        ended = begin(runtime, attempt)


def goes_on(attempt: Attempt, ended: CallResult | None) -> bool:
    """Return whether a call has to go on after `begin` returned `ended`: it has not ended, or is to be repeated."""
    return ended is None or (ended.fault is not None and _pause(attempt, ended) is not None)


def begin(runtime: Runtime, attempt: Attempt) -> CallResult | None:
    """Run an attempt up to its first wait in the current task. Return None if it waits (`attempt.started`), or has
    returned a large value (`attempt.copying`).

    Raises: only exceptions that end the process.
    """
    entry, call, now = attempt.entry, attempt.call, runtime.clock.monotonic()
    attempt.number += 1
    if attempt.number == 1:
        attempt.began, attempt.started_at = now, runtime.wall.at(now)
    elif runtime.journal is not None:
        scope = attempt.scope
        runtime.journal.append(AttemptStarted(
            session=scope.session, cycle=scope.cycle_id or scope.key, call=call.id, attempt=attempt.number,
            effect=attempt.effect, allowed="retry",
        ))  # fmt: skip
    if entry.terms.timeout != inf:
        attempt.deadline = now + entry.terms.timeout
    if runtime.wanted[CallStarted]:
        scope, run_id = attempt.scope, runtime.run_of(call, attempt.scope)
        runtime.publish(CallStarted(call=call, cycle_id=scope.cycle_id, run_id=run_id, attempt=attempt.number))
    params = attempt.params
    if entry.context:
        params = {**params, entry.context: _tool_context(runtime, attempt)}
    context = attempt.context.copy()
    attempt.is_in_flight = True
    try:
        if entry.function is not None:
            coroutine = entry.function(**params)
        else:
            coroutine = entry.invoke(params, runtime.clock, call, attempt.messages)
        # A tool that never waits needs no timer: nothing could cancel it before its end.
        waits_for = context.run(coroutine.send, None)
    except StopIteration as stop:
        ended = attempt.returned(runtime, stop.value)
    except asyncio.CancelledError:
        ended = _cancelled_itself(runtime.clock, attempt)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        ended = attempt.failed(runtime.clock, error)
    else:
        attempt.started = _StartedCoroutine(coroutine, waits_for, context)
        return None
    attempt.is_in_flight = False
    return ended


def _tool_context(runtime: Runtime, attempt: Attempt) -> ToolContext:
    """Return the context of the attempt that is about to begin."""
    loop, home, number = asyncio.get_running_loop(), threading.get_ident(), attempt.number

    def is_current() -> bool:
        return attempt.is_in_flight and attempt.number == number and not attempt.is_late

    def publish(value: Any) -> None:
        if is_current() and runtime.wanted[CallProgressed]:
            progress = plain(value, _LARGEST_PROGRESS)
            runtime.tell_of(CallProgressed, attempt.call, attempt.scope, progress=progress)

    def progress(value: Any) -> None:
        if threading.get_ident() == home:
            publish(value)
            return
        try:
            loop.call_soon_threadsafe(publish, value)
        except RuntimeError:  # the event loop has closed
            pass

    return ToolContext(
        attempt.call,
        runtime.agent,
        attempt.deadline,
        number,
        f"{attempt.scope.key}/{attempt.call.id}",
        progress,
        attempt.entry.schema,
        attempt.messages,
        runtime.next_fence(),
        attempt.scope.session,
        attempt.binds,
        runtime.run_of(attempt.call, attempt.scope),
        is_current,
    )


async def _wait(runtime: Runtime, attempt: Attempt, leave: Callable[[Any], object], about: Any) -> CallResult | None:
    """Wait for the end of an attempt, or for its deadline. Return None when it was left behind."""
    coroutine, attempt.started = attempt.started, None
    task = attempt.task
    assert task is not None
    assert coroutine is not None
    limit = _AttemptDeadline(runtime, attempt, leave, about)
    ended: CallResult | None
    try:
        ended = attempt.returned(runtime, await coroutine)
    except asyncio.CancelledError:
        if not attempt.is_late and task.cancelling():
            attempt.is_late = True  # a thread that still works for it can read that
            raise  # the batch is being cancelled: it sets the result of this call
        ended = _cancelled_itself(runtime.clock, attempt)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        ended = attempt.failed(runtime.clock, error)
    finally:
        limit.close()
    if limit.is_left:
        return None
    attempt.is_in_flight = False
    if not attempt.is_late:
        return ended or await attempt.in_slices(runtime)
    attempt.is_late, attempt.copying = False, None
    if task.uncancel():
        raise asyncio.CancelledError  # late and cancelled from outside as well
    return timed_out(runtime.clock, attempt)


def _broken_off(clock: Clock, attempt: Attempt, what: str, otherwise: str) -> CallResult:
    """Return the result of a cancelled attempt: in doubt where it may have had an effect that must not be repeated.

    Args: what: what happened to the tool; otherwise: the sentence where there is no doubt.
    """
    name = attempt.entry.name
    if attempt.is_in_flight and attempt.effect == "once":
        return attempt.result(clock, "in_doubt", why=fault("in_doubt", f"tool {name!r} {what}{_MAY_HAVE}", name))
    return attempt.result(clock, "cancelled", why=fault("cancelled", otherwise, name))


def _cancelled_itself(clock: Clock, attempt: Attempt) -> CallResult:
    return _broken_off(clock, attempt, "cancelled itself", f"tool {attempt.entry.name!r} cancelled itself")


def cut(clock: Clock, attempt: Attempt) -> CallResult:
    """Return the result of a call whose batch was cancelled. Where the tool has returned a large value, the rest of it
    is copied at once."""
    if attempt.copying is not None:
        return next(filter(None, attempt.copying))
    return _broken_off(clock, attempt, "was cut off", "the run was cancelled")


def timed_out(clock: Clock, attempt: Attempt) -> CallResult:
    """Return the result of a late call, whether its task has ended or was left behind."""
    name, limit = attempt.entry.name, attempt.entry.terms.timeout
    message = f"tool {name!r} did not end within {limit:g} s"
    if attempt.effect != "once":
        return attempt.result(clock, "timeout", why=Fault("timeout", message, name, "act"))
    why = Fault("timeout", message + _MAY_HAVE, name, "act", False, {"in_doubt": True})
    return attempt.result(clock, "timeout", why=why)


def _pause(attempt: Attempt, ended: CallResult) -> float | None:
    """Return the seconds until the next attempt; None when there is none.

    There is none after the last retry, for a call whose effect allows no repetition, for a fault that would come again,
    and where the other side asks for a longer pause than the back-off's cap.
    """
    fault_found, retries = ended.fault, attempt.entry.terms.retries
    if (
        fault_found is None
        or attempt.number > retries
        or not fault_found.retryable
        or ended.status not in ("failed", "timeout")
    ):
        return None
    if attempt.effect == "once":
        return None
    requested_pause = fault_found.detail.get("retry_after")
    if not isinstance(requested_pause, (int, float)):
        requested_pause = 0.0
    return None if requested_pause > BACKOFF.cap else max(requested_pause, BACKOFF.delay(attempt.number))
