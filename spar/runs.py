"""Runs: what a message sets going, and who waits for it.

A run is the pursuit of one goal over as many cycles as it takes. Here it is only accounted for: accepted at once,
started when its session's lane takes it, ended exactly once, asked after at any time. The lane decides when it
is over (`verdict`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from spar.bus import Events
from spar.clock import Clock, Timer
from spar.cycle import Cycle
from spar.events import MessageOutcome, RunAccepted, RunEnded, RunStarted
from spar.ids import new_id
from spar.journal import Item
from spar.protocols import RunContext
from spar.types import Action, ActionResult, Perception

#: Ended runs that can still be asked after.
KEPT = 10_000
#: A plan that fails this often in a row ends its run.
MOST_FAILURES = 3
#: Faults of an act phase that end the run: a hook said so, or it only repeats itself.
ENDING = ("denied", "no_progress")


class Receipt(Struct, frozen=True):
    """The answer to `submit`: the run's id and when it was accepted (UTC)."""

    run_id: str
    accepted_at: datetime


class RunStatus(Struct, frozen=True):
    """The answer to `wait`. `status` is `timeout` while the run goes on; `outcome` is what became of the message."""

    run_id: str
    status: Literal["ok", "error", "timeout"]
    outcome: str = "queued"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str = ""
    output: Any = None
    errors: tuple[dict[str, Any], ...] = ()

    @classmethod
    def read(cls, plain: Any) -> RunStatus:
        """The answer as it was kept. Raises: msgspec.ValidationError."""
        return msgspec.convert(plain, cls, strict=False)


class Run:
    """One run on its way."""

    __slots__ = ("accepted_at", "ended_at", "error", "errors", "failures", "id", "is_planned", "is_to_verify",
                 "message", "number", "outcome", "output", "results", "session", "started_at", "started_mono",
                 "status", "timer", "waiters")  # fmt: skip

    def __init__(self, message: Perception, accepted_at: datetime, *, is_to_verify: bool = True) -> None:
        self.id, self.is_to_verify = new_id(), is_to_verify
        self.message, self.session, self.accepted_at = message, message.session, accepted_at
        self.outcome: str = "queued"
        self.status: Literal["ok", "error"] | None = None
        self.started_at: datetime | None = None
        self.started_mono = 0.0
        self.ended_at: datetime | None = None
        self.error, self.output = "", None
        self.errors: tuple[dict[str, Any], ...] = ()
        self.results: list[ActionResult] = []
        self.number, self.failures, self.is_planned = 1, 0, False
        self.timer: Timer | None = None
        self.waiters: tuple[asyncio.Future[None], ...] = ()

    def status_at(self, end: End | None, now: datetime) -> RunStatus:
        """What is answered who asks: how it ended, or with this end would have now; else that it goes on."""
        if self.status is None and end is not None:
            return RunStatus(self.id, end.status, self.outcome, self.started_at, now, end.error, end.output,
                             self.errors)  # fmt: skip
        return RunStatus(self.id, self.status or "timeout", self.outcome, self.started_at, self.ended_at, self.error,
                         self.output, self.errors)  # fmt: skip

    def context(self) -> RunContext:
        messages = tuple(message for result in self.results for message in result.messages)
        return RunContext(self.id, self.message.text, self.number, messages, tuple(self.results))


class End(Struct, frozen=True):
    """How a run is over."""

    status: Literal["ok", "error"]
    error: str = ""
    output: Any = None


def verdict(run: Run, cycle: Cycle, *, elapsed: float, timeout: float) -> End | None:
    """Whether a run is over after this cycle (it keeps what the cycle did); None: it goes on with the next one.

    Args: elapsed, timeout: seconds since it started and at most (0: no limit).
    """
    if cycle.result is not None:  # also of a cycle that was cut or whose plan broke off: nothing done is forgotten
        run.results.append(cycle.result)
        if cycle.result.results:  # an answer without calls leaves the errors that it may be about
            run.errors = cycle.result.errors
    if cycle.is_cut:
        return None
    if cycle.result is not None and (why := cycle.result.fault) is not None and why.kind in ENDING:
        return End("error", why.message, run.output)
    failed = {fault.phase: fault for fault in cycle.faults}
    if (fault := failed.get("plan")) is not None:
        run.failures += 1
        if not fault.retryable or run.failures >= MOST_FAILURES:
            return End("error", fault.message)
    elif cycle.is_skipped:
        return End("error", "a hook refused it")
    elif "sense" not in failed:
        run.failures, run.is_planned = 0, True
        action = cycle.action
        if not isinstance(action, Action) or action.output is not None or not action.calls:
            if isinstance(action, Action) and action.output is not None:
                run.output = action.output
            if not (run.is_to_verify and _has_failed(cycle.result)):
                return End("ok", output=run.output)  # the last that was given, if the planner had nothing to add
            run.is_to_verify = False
        run.number += 1
    if timeout and elapsed >= timeout:
        return End("error", too_long(timeout))
    return None


def too_long(timeout: float) -> str:
    """Why a run that took more than `timeout` seconds was ended."""
    return f"took longer than {timeout:g} s"


def _has_failed(result: ActionResult | None) -> bool:
    return result is not None and result.status in ("partial", "failed")


class Runs:
    """The account of an agent's runs; ended ones are forgotten when there are more than `KEPT`.

    `timeout` (seconds, 0: none) and `verify_output` are taken from the settings; `late(run)` is called once a run
    has been under way for `timeout`, `ended(run)` once it has its answer. `open` counts the runs that have not ended.
    """

    __slots__ = ("_clock", "_ended", "_events", "_keys", "_late", "_runs", "open", "timeout", "verify_output")

    def __init__(
        self,
        events: Events,
        clock: Clock,
        late: Callable[[Run], object] = lambda run: None,
        ended: Callable[[Run], object] = lambda run: None,
    ) -> None:
        self._events, self._clock, self._late, self._ended = events, clock, late, ended
        self._runs: dict[str, Run] = {}
        self._keys: dict[str, str] = {}
        self.timeout, self.verify_output, self.open = 0.0, True, 0

    def known(self, key: str | None) -> Receipt | None:
        """The receipt that was given for this idempotency key before."""
        run = self._runs.get(self._keys.get(key, "")) if key else None
        return Receipt(run.id, run.accepted_at) if run else None

    def made(self, message: Perception) -> Run:
        """The run of a message that is not accepted yet."""
        return Run(message, self._clock.now(), is_to_verify=self.verify_output)

    def restore(self, item: Item, results: list[ActionResult], *, is_begun: bool) -> Run:
        """The run that an earlier process accepted, with what its cycles have brought so far."""
        run = self._runs.get(item.id)
        if run is not None and run.status is None:
            return run
        run = Run(item.perception, item.at, is_to_verify=self.verify_output)
        run.id, run.results, run.is_planned, run.number = item.id, results, bool(results), len(results) + 1
        run.errors = results[-1].errors if results else ()
        self._runs[run.id] = run
        self.open += 1
        if item.key:
            self._keys[item.key] = run.id
        if is_begun:
            self.start(run)
        return run

    def accept(self, run: Run, key: str | None) -> Run:
        self._runs[run.id] = run
        self.open += 1
        if key:
            self._keys[key] = run.id
        if len(self._runs) > KEPT:
            self._forget_oldest()
        if self._events.wanted[RunAccepted]:
            self._events.publish(RunAccepted(run_id=run.id, session=run.session))
        return run

    def knows(self, run_id: str) -> bool:
        return run_id in self._runs

    def get(self, run_id: str) -> Run:
        """Raises: LookupError for a run that is not known."""
        try:
            return self._runs[run_id]
        except KeyError:
            raise LookupError(f"no run {run_id!r}; runs are known by the run_id of their receipt") from None

    def start(self, run: Run) -> None:
        run.started_at, run.started_mono, run.outcome = self._clock.now(), self._clock.monotonic(), "started"
        if self.timeout:
            run.timer = self._clock.call_at(run.started_mono + self.timeout, lambda: self._late(run))
        self._events.publish(MessageOutcome(run_id=run.id, outcome="started"))
        self._events.publish(RunStarted(run_id=run.id, session=run.session))

    def end(self, run: Run, end: End) -> None:
        """End a run, once: what comes later changes nothing."""
        if run.status is not None:
            return
        run.status, run.error, run.output, run.ended_at = end.status, end.error, end.output, self._clock.now()
        run.results.clear()  # what the answer needs is said; ten thousand runs are kept
        self.open -= 1
        if run.timer is not None:
            run.timer.cancel()
            run.timer = None
        self._ended(run)
        self._events.publish(RunEnded(run_id=run.id, status=end.status, error=end.error, output=end.output))
        for waiter in run.waiters:
            _wake(waiter)

    async def wait(self, run_id: str, timeout: float | None) -> RunStatus:
        """The run's end, or `timeout` after so many seconds (None: as long as it takes); never stops the run."""
        run = self.get(run_id)
        if run.status is None and (timeout is None or timeout > 0):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            run.waiters = (*run.waiters, waiter)
            timer = None
            if timeout is not None:
                timer = self._clock.call_at(self._clock.monotonic() + timeout, lambda: _wake(waiter))
            try:
                await waiter
            finally:
                run.waiters = tuple(other for other in run.waiters if other is not waiter)
                if timer is not None:
                    timer.cancel()
        return run.status_at(None, self._clock.now())

    def shed(self) -> int:
        """Forget most of the runs that have ended, for want of memory; how many those were."""
        before = len(self._runs)
        self._forget_oldest(KEPT // 10)
        return before - len(self._runs)

    def _forget_oldest(self, most: int = KEPT) -> None:
        while len(self._runs) > most:
            ended = next((run_id for run_id, run in self._runs.items() if run.status is not None), None)
            if ended is None:
                break
            del self._runs[ended]
        while len(self._keys) > most:
            del self._keys[next(iter(self._keys))]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
