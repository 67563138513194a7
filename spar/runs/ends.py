"""Ends of runs by people, and the timers that end runs which take too long or are inactive too long.

While the agent does not run cycles, or a run waits for its provider, no time counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, TypeVar

from spar.bus.bus import Events
from spar.clock import Clock, Timer
from spar.decisions.finish import Limits, too_long
from spar.events import AssistantDelta, CallCompleted, CallFailed, CallProgressed, CallStarted, Event, ReasoningDelta
from spar.records.runs import RunStatus
from spar.state.work import RunState

#: Errors of runs that people have ended.
CALLED_OFF: Final = ("aborted", "superseded", "interrupted by a newer message", "reset")
#: Those of them after which the actor also drops the waiting calls of the run.
FORGOTTEN: Final = ("aborted", "reset")


class EndedRun(RunStatus, frozen=True):
    """Run that has ended, with all messages of its cycles: the value of the hooks at `after_run`."""

    messages: tuple[dict[str, Any], ...] = ()


class TimedRun:
    """Run with its times: when it began, when it was last active, until when it waits for a provider (monotonic
    seconds)."""

    __slots__ = ("started_at", "started_mono", "state", "timer", "touched", "waits_until")

    state: RunState
    started_at: datetime | None
    started_mono: float
    touched: float
    waits_until: float
    timer: Timer | None

    def stop_timer(self) -> None:
        """Cancel its timer, if there is one."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


T = TypeVar("T", bound=TimedRun)

#: Events that count as activity of a run, besides the ends of its cycles.
_SIGNS_OF_LIFE = (CallStarted, CallProgressed, CallCompleted, CallFailed, AssistantDelta, ReasoningDelta)


class RunTimers(Generic[T]):
    """Timers of one agent's runs. `limits` and `inactivity` (seconds, 0: no limit) are taken from the settings.

    Args: runs: the open runs by id; is_late: called with a run to end and the reason.
    """

    __slots__ = ("_clock", "_events", "_inactivity", "_is_late", "_runs", "_suspended_at", "_unsubscribe", "limits")

    def __init__(self, events: Events, clock: Clock, runs: Mapping[str, T], is_late: Callable[[T, str], None]) -> None:
        self._events, self._clock, self._runs, self._is_late = events, clock, runs, is_late
        self._suspended_at: float | None = None
        self._inactivity = 0.0
        self._unsubscribe: tuple[Callable[[], object], ...] = ()
        self.limits = Limits()

    @property
    def inactivity(self) -> float:
        return self._inactivity

    @inactivity.setter
    def inactivity(self, seconds: float) -> None:
        """Set the limit, and subscribe to signs of activity only while there is one."""
        if bool(seconds) != bool(self._unsubscribe):
            for unsubscribe in self._unsubscribe:
                unsubscribe()
            kinds = _SIGNS_OF_LIFE if seconds else ()
            self._unsubscribe = tuple(self._events.subscribe(kind, self._note_activity) for kind in kinds)
        self._inactivity = seconds

    def watch(self, run: T) -> None:
        """Set the timer of a run to its next limit."""
        if self._suspended_at is not None:
            return
        timeout = self.limits.seconds(run.state)
        ends = run.started_mono + run.state.waited + timeout if timeout else float("inf")
        rests = run.touched + self._inactivity if self._inactivity else float("inf")
        if run.timer is not None:
            run.timer.cancel()
        due = min(ends, rests)
        run.timer = self._clock.call_at(due, partial(self._look, run)) if due < float("inf") else None

    def wait_for_provider(self, run: T, seconds: float) -> None:
        """Note that a run waits for its provider from now on, for so many seconds, which do not count towards its
        limits."""
        run.touched = run.waits_until = self._clock.monotonic() + seconds
        self.watch(run)

    def suspend(self) -> None:
        """Stop the time of all runs, because the agent runs no cycles."""
        if self._suspended_at is not None:
            return
        self._suspended_at = self._clock.monotonic()
        for run in self._runs.values():
            run.stop_timer()

    def resume(self) -> None:
        """Let the time of all runs continue."""
        if self._suspended_at is None:
            return
        since, now, self._suspended_at = self._suspended_at, self._clock.monotonic(), None
        for run in self._runs.values():
            if run.started_at is not None and not run.state.into:
                run.started_mono += now - max(since, run.started_mono)
                run.touched += now - since  # also for a run that waits for its provider
                self.watch(run)

    def let_pass(self, run: T, seconds: float) -> None:
        """Count so many seconds that have just passed, in which a run stood still, towards no limit of it."""
        run.started_mono += seconds
        run.touched += seconds
        self.watch(run)

    def _look(self, run: T) -> None:
        now, run.timer, timeout = self._clock.monotonic(), None, self.limits.seconds(run.state)
        if timeout and now >= run.started_mono + run.state.waited + timeout:
            self._is_late(run, too_long(timeout))
        elif self._inactivity and now >= run.touched + self._inactivity:
            self._is_late(run, f"nothing of it went on for {self._inactivity:g} s")
        else:
            self.watch(run)

    def _note_activity(self, event: Event) -> None:
        if isinstance(event, _SIGNS_OF_LIFE) and (run := self._runs.get(event.run_id or "")) is not None:
            run.touched = self._clock.monotonic()
