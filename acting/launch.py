"""Carries out one call: attempts with a deadline each, retried where its effect allows it.

A call that is late is cancelled; one that ignores that for `grace` seconds is left behind: its result is
given without it and whatever it still does is of no interest. This file knows nothing of graphs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from datetime import datetime
from functools import partial
from math import inf
from typing import Any

from msgspec import Struct

from acting.catalog import Entry, ToolContext
from acting.outputs import plain
from acting.stage import Scope, Stage, fault, fault_of
from spar.clock import Clock, Timer
from spar.events import CallProgressed, CallStarted
from spar.policies import Backoff
from spar.types import Call, CallResult, CallStatus, Fault

BACKOFF = Backoff()


class Ended(Struct, frozen=True):
    """What the attempts came to; `value` is what the tool returned, as it is."""

    status: CallStatus
    value: Any = None
    fault: Fault | None = None


class Launch(Struct):
    """One call on its way: what is to be done, and how far it got."""

    call: Call
    entry: Entry
    params: dict[str, Any]
    scope: Scope
    context: Context  # copied for each attempt: what a tool sets in it nobody else sees
    attempts: int = 0
    started_at: datetime | None = None
    began: float = 0.0
    is_in_flight: bool = False
    is_late: bool = False
    deadline: float | None = None
    task: asyncio.Task[Any] | None = None

    def result(self, clock: Clock, ended: Ended, output: Any = None) -> CallResult:
        """The result of this call; `output` is what was made of the value."""
        duration = clock.monotonic() - self.began
        return CallResult(self.call, ended.status, "", output, ended.fault, self.attempts, self.started_at, duration)


class _Deadline:
    """Cancels the current task at its time, and calls `leave` when that has not helped after `grace` seconds."""

    __slots__ = ("_clock", "_grace", "_launch", "_leave", "_timer", "is_left")

    def __init__(self, clock: Clock, launch: Launch, grace: float, leave: Callable[[], object]) -> None:
        self._clock, self._launch, self._grace, self._leave = clock, launch, grace, leave
        self.is_left = False
        self._timer: Timer | None = None
        if launch.deadline is not None:
            self._timer = clock.call_at(launch.deadline, self._expire)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        assert self._launch.task is not None
        self._launch.is_late = True
        self._launch.task.cancel()
        self._timer = self._clock.call_at(self._clock.monotonic() + self._grace, self._abandon)

    def _abandon(self) -> None:
        self.is_left = True
        self._leave()


class _Rest:
    """The rest of a coroutine whose first step was made by hand, in `context`, and led to `waits_for`."""

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


async def perform(stage: Stage, launch: Launch, leave: Callable[[Any], object], about: Any) -> Ended | None:
    """Carry out the call in the current task; None when it was left behind, after `leave(about)` was called for it.

    Raises: CancelledError when the task is cancelled from outside, and nothing else but what ends the process.
    """
    clock, terms = stage.clock, launch.entry.terms
    launch.task = asyncio.current_task()
    launch.started_at, launch.began = clock.now(), clock.monotonic()
    tries = 1 if terms.effect == "once" else 1 + terms.retries
    while True:
        launch.attempts += 1
        launch.is_late = False
        if terms.timeout != inf:
            launch.deadline = (launch.began if launch.attempts == 1 else clock.monotonic()) + terms.timeout
        if stage.events is not None:
            stage.tell(CallStarted, call=launch.call, cycle_id=launch.scope.cycle_id, attempt=launch.attempts)
        ended = await _attempt(stage, launch, leave, about)
        if ended is None or ended.fault is None or ended.status == "cancelled":
            return ended
        pause = _pause(ended.fault, launch.attempts) if ended.fault.retryable and launch.attempts < tries else None
        if pause is None:
            return ended
        await clock.sleep(pause)


async def _attempt(stage: Stage, launch: Launch, leave: Callable[[Any], object], about: Any) -> Ended | None:
    params, entry, task = launch.params, launch.entry, launch.task
    assert task is not None
    if entry.parameters.context:
        params = {**params, entry.parameters.context: _context(stage, launch)}
    deadline: _Deadline | None = None
    context = launch.context.copy()
    launch.is_in_flight = True
    try:
        coroutine = entry.invoke(params, stage.clock)
        try:
            # A tool that never waits needs no timer: nothing could cancel it before it is done.
            waits_for = context.run(coroutine.send, None)
        except StopIteration as stop:
            ended = Ended("ok", stop.value)
        else:
            deadline = _Deadline(stage.clock, launch, stage.limits.grace, partial(leave, about))
            ended = Ended("ok", await _Rest(coroutine, waits_for, context))
    except asyncio.CancelledError:
        if not launch.is_late and task.cancelling():
            raise  # the run is being cancelled: it says what becomes of this call
        ended = Ended("cancelled", fault=fault("cancelled", f"tool {entry.name!r} cancelled itself", entry.name))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        ended = Ended("failed", fault=fault_of(error, entry.name))
    finally:
        if deadline is not None:
            deadline.close()
    if deadline is not None and deadline.is_left:
        return None
    launch.is_in_flight = False
    if launch.is_late:
        if task.uncancel():
            raise asyncio.CancelledError  # late and cancelled from outside as well
        return timed_out(launch)
    return ended


def timed_out(launch: Launch) -> Ended:
    """The end of a call that is late, whether it obeyed or was left behind."""
    seconds = launch.entry.terms.timeout
    message = f"tool {launch.entry.name!r} did not end within {seconds:g} s"
    return Ended("timeout", fault=Fault("timeout", message, launch.entry.name, "act"))


def _pause(found: Fault, failures: int) -> float | None:
    """Seconds until the next attempt; None when the other side asks for more than is worth waiting for."""
    asked = found.detail.get("retry_after")
    if not isinstance(asked, (int, float)):
        asked = 0.0
    return None if asked > BACKOFF.cap else max(asked, BACKOFF.delay(failures))


def _context(stage: Stage, launch: Launch) -> ToolContext:
    loop, home, attempt = asyncio.get_running_loop(), threading.get_ident(), launch.attempts

    def publish(value: Any) -> None:
        is_current = launch.is_in_flight and launch.attempts == attempt and not launch.is_late
        if is_current and stage.events is not None:
            progress = plain(value, stage.limits.max_output)
            stage.tell(CallProgressed, call=launch.call, cycle_id=launch.scope.cycle_id, progress=progress)

    def progress(value: Any) -> None:
        if threading.get_ident() == home:
            publish(value)
            return
        try:
            loop.call_soon_threadsafe(publish, value)
        except RuntimeError:  # the loop has closed: nobody is left to hear it
            pass

    key = f"{launch.scope.key}/{launch.call.id}"
    return ToolContext(launch.call, stage.agent, launch.deadline, attempt, key, progress)
