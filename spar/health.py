"""Is the agent well, and what is done when it is not.

`Health` knows the open alerts of one agent and climbs the ladder: back off → cancel (the deadline of the phase) →
restart the module → degraded mode → pause and alert. The watcher shares no thread with the work: it reads a few
plain attributes of each agent and finds what the loop itself cannot tell, because it does not run: `stuck` past a
deadline, `stalled` between cycles, a `blocked` event loop and the stack that blocks it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Literal, cast

from msgspec import Struct

from spar.clock import Timer
from spar.cycle import Cycle
from spar.events import HealthAlert, HealthRecovered, RecoveryStep
from spar.ids import new_id
from spar.logs import get_logger
from spar.pacing import expected_interval
from spar.policies import Backoff, Intensity
from spar.types import Phase

if TYPE_CHECKING:
    from spar.agent import Agent

log = get_logger("spar.health")

Kind = Literal["stuck", "slow", "failing", "stalled", "blocked"]
#: How much slower than the usual (median of the last cycles) is `slow`, and what is never slow (seconds).
SLOW_FACTOR, NEVER_SLOW = 10.0, 1.0
#: `stalled` is no cycle for this many expected intervals, and never less than so many seconds.
STALL_FACTOR, NEVER_STALLED = 3.0, 5.0
#: How often the watcher looks (seconds).
LOOK_EVERY = 0.25


class Limits(Struct, frozen=True):
    """The settings `[health]`: counts and seconds. `slow_after` and `stalled_after` may be "auto"."""

    failing_after: int = 5
    slow_after: float | Literal["auto"] = "auto"
    blocked_after: float = 1.0
    stalled_after: float | Literal["auto"] = "auto"
    backoff: float = 0.5
    max_restarts: int = 5
    within: float = 60.0


class Alert(Struct, frozen=True):
    """An open alert: `since` in UTC, `began` in monotonic seconds."""

    id: str
    kind: Kind
    severity: Literal["warning", "critical"]
    message: str
    since: datetime
    began: float
    cycle_id: str = ""


class Health:
    """The open alerts of one agent and the ladder of recovery. Used from the event loop's thread."""

    def __init__(self, agent: Agent, limits: Limits) -> None:
        self._agent = agent
        self.limits = limits
        self.alerts: dict[str, Alert] = {}
        self.restarts = Intensity(limits.max_restarts, limits.within)
        self._backoff = Backoff(limits.backoff, 60.0)
        self._usual: deque[float] | None = None
        self._rung = 0
        self._to_restart: Phase | None = None

    @property
    def is_calm(self) -> bool:
        """Nothing is wrong and nothing has been done about it: a good cycle need not be looked at."""
        return not self.alerts and not self._rung

    # -- alerts

    def alert(self, kind: Kind, message: str, *, severity: Literal["warning", "critical"] = "warning", cycle_id: str = "") -> Alert:
        """Open an alert, or return the one that is open already for this kind."""
        if (known := self.alerts.get(kind)) is not None:
            return known
        agent = self._agent
        found = Alert(new_id(), kind, severity, message, agent.clock.now(), agent.clock.monotonic(), cycle_id)
        self.alerts[kind] = found
        log.warning("health alert", agent=agent.name, kind=kind, reason=message, cycle=cycle_id)
        agent.events.publish(HealthAlert(kind=kind, severity=severity, message=message, since=found.since,
                                         cycle_id=cycle_id, alert_id=found.id))  # fmt: skip
        return found

    def recovered(self, kind: Kind) -> None:
        """Close the alert of this kind, if one is open."""
        if (alert := self.alerts.pop(kind, None)) is None:
            return
        duration = self._agent.clock.monotonic() - alert.began
        log.info("health recovered", agent=self._agent.name, kind=kind, seconds=round(duration, 3))
        self._agent.events.publish(HealthRecovered(kind=kind, alert_id=alert.id, duration=duration))

    # -- after each cycle

    def observe(self, cycle: Cycle, duration: float) -> None:
        """Judge a cycle that has ended; costs next to nothing while all is well."""
        if cycle.outcome == "failed":
            failures = self._agent.account.consecutive_failures
            if failures >= self.limits.failing_after:
                fault = cycle.faults[-1]
                self.alert("failing", f"{failures} cycles in a row failed, the last in {fault.phase}: {fault.message}", cycle_id=cycle.id)
            if failures and failures % self.limits.failing_after == 0:
                self._climb(cycle)
        elif self.alerts or self._rung:
            self._all_clear(cycle)
        self._judge_pace(cycle, duration)

    def back_off(self, wait: float | None) -> float | None:
        """The wait before the next cycle (seconds), longer while the agent keeps failing."""
        over = self._agent.account.consecutive_failures - self.limits.failing_after + 1
        if over <= 0 or wait is None:
            return wait
        return max(wait, self._backoff.delay(over))

    def _all_clear(self, cycle: Cycle) -> None:
        if cycle.outcome == "interrupted":
            return
        self.recovered("failing")
        self.recovered("stalled")
        if not any(fault.kind == "timeout" for fault in cycle.faults):
            self.recovered("stuck")
        if self._rung:
            self._rung = 0
            self._agent.restore()

    def _judge_pace(self, cycle: Cycle, duration: float) -> None:
        limit = self.limits.slow_after
        if limit == "auto":
            if duration < NEVER_SLOW:
                if "slow" in self.alerts:
                    self.recovered("slow")
                return
            limit = max(NEVER_SLOW, SLOW_FACTOR * self._agent.account.cycles.quantile(0.5))
        if duration > limit:
            self.alert("slow", f"a cycle took {duration:.3g} s, more than {limit:.3g} s", cycle_id=cycle.id)
        elif "slow" in self.alerts:
            self.recovered("slow")

    # -- the ladder

    def _climb(self, cycle: Cycle) -> None:
        """The next rung, once more failures in a row have shown that the one before did not help."""
        fault = cycle.faults[-1]
        alert = self.alerts.get("failing")
        alert_id = alert.id if alert else ""
        if not self.restarts.allow(self._agent.clock.monotonic()):
            self._step("pause", fault.part, f"{self.limits.max_restarts} restarts within {self.limits.within:g} s did not help", alert_id)
            self._agent.request_pause()
            self.alerts.pop("failing", None)
            self.alert("failing", f"paused, {fault.phase} keeps failing: {fault.message}", severity="critical", cycle_id=cycle.id)
            return
        self._rung += 1
        self._step("restart", fault.part, fault.message, alert_id)
        self._to_restart = cast(Phase, fault.phase)
        if self._rung > 1 and self._agent.degrade(fault.message):
            self._step("degrade", fault.part, fault.message, alert_id)

    async def mend(self) -> None:
        """Restart the module that the last rung asked for, between two cycles."""
        phase, self._to_restart = self._to_restart, None
        if phase is not None:
            await self._agent.restart_module(phase)

    def _step(self, step: str, part: str, reason: str, alert_id: str) -> None:
        log.warning("recovery step", agent=self._agent.name, step=step, part=part, reason=reason)
        self._agent.events.publish(RecoveryStep(step=step, part=part, reason=reason, alert_id=alert_id))


class Finding(Struct, frozen=True):
    """Something the watcher saw."""

    kind: Kind
    message: str
    cycle_id: str = ""


def look(agent: Agent, now: float) -> list[Finding]:
    """What is wrong with an agent at `now` (monotonic), from the outside; reads only, from any thread."""
    found: list[Finding] = []
    if agent.state not in ("running", "pausing", "stopping"):
        return found
    interval = expected_interval(agent.pace)
    limit = agent.health.limits.stalled_after
    if limit == "auto":
        limit = None if interval is None else max(NEVER_STALLED, STALL_FACTOR * interval)
    for lane in list(agent.lanes.values()):
        cycle, deadline = lane.cycle, lane.strand.deadline
        if cycle is not None and now > deadline + agent.steps[cycle.phase].grace + LOOK_EVERY:
            found.append(Finding("stuck", f"{cycle.phase} is {now - deadline:.1f} s past its deadline", cycle.id))
        elif agent.state == "running" and lane.is_standing and limit is not None and cycle is None:
            due = max(lane.last_completed, lane.rests_until or lane.last_completed)
            if now - due > limit:
                found.append(Finding("stalled", f"no cycle for {now - lane.last_completed:.1f} s, expected every {interval:.3g} s"))
    return found


class Watcher:
    """Looks at every running agent of the process from a thread of its own; one thread for all of them."""

    def __init__(self) -> None:
        self._agents: weakref.WeakSet[Agent] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._beats: dict[asyncio.AbstractEventLoop, _Beat] = {}

    def add(self, agent: Agent) -> None:
        with self._lock:
            self._agents.add(agent)
            loop = asyncio.get_running_loop()
            if loop not in self._beats:
                self._beats[loop] = _Beat(loop, threading.get_ident())
            if self._thread is None or not self._thread.is_alive():
                self._wake.clear()
                self._thread = threading.Thread(target=self._watch, name="spar watcher", daemon=True)
                self._thread.start()

    def remove(self, agent: Agent) -> None:
        with self._lock:
            self._agents.discard(agent)
            used = {other.event_loop for other in self._agents}
            self._beats = {loop: beat for loop, beat in self._beats.items() if loop in used}
            if not self._agents:
                self._wake.set()

    def _watch(self) -> None:
        while True:
            if self._wake.wait(LOOK_EVERY):
                with self._lock:
                    if not self._agents:
                        self._thread = None
                        return
                    self._wake.clear()
            with self._lock:
                agents, beats = list(self._agents), list(self._beats.values())
            for beat in beats:
                self._listen(beat, [agent for agent in agents if agent.event_loop is beat.loop])
            now = time.monotonic()
            for agent in agents:
                for finding in look(agent, now):
                    if finding.kind not in agent.health.alerts:
                        _call(agent, lambda a=agent, f=finding: a.health.alert(f.kind, f.message, cycle_id=f.cycle_id))

    def _listen(self, beat: _Beat, agents: list[Agent]) -> None:
        """Has the loop answered? If not, its thread's stack is what blocks it."""
        late = beat.late()
        if not agents:
            return
        limit = min(agent.health.limits.blocked_after for agent in agents)
        if late > limit:
            if not beat.is_blocked:
                beat.is_blocked, beat.stack = True, stack_of(beat.thread_id)
                for agent in agents:
                    agent.blocked_by, agent.blocked_since = beat.stack, time.monotonic() - late
                    message = f"the event loop has been blocked for {late:.1f} s by:\n{beat.stack}"
                    log.error("event loop blocked", agent=agent.name, seconds=round(late, 2), stack=beat.stack)
                    _call(agent, lambda a=agent, m=message: a.health.alert("blocked", m, severity="critical"))
        elif beat.is_blocked and late < limit / 2:
            beat.is_blocked = False
            for agent in agents:
                agent.blocked_by, agent.blocked_since = "", None
                _call(agent, lambda a=agent: a.health.recovered("blocked"))


class _Beat:
    """A question put to an event loop again and again; how long it has gone unanswered."""

    __slots__ = ("asked", "is_blocked", "loop", "stack", "thread_id")

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        self.loop, self.thread_id = loop, thread_id
        self.asked: float | None = None
        self.is_blocked, self.stack = False, ""

    def late(self) -> float:
        """Seconds since the unanswered question was put; asks again when it was answered."""
        now = time.monotonic()
        if self.asked is None:
            self.asked = now
            try:
                self.loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop is closed: nothing to watch
                self.asked = None
            return 0.0
        return now - self.asked

    def _answer(self) -> None:
        self.asked = None


class LoopWatcher:
    """The same look on a virtual clock, where no thread can tell the time: called back by the loop itself."""

    def __init__(self, agent: Agent) -> None:
        self._agent, self._timer = agent, None
        self._arm()

    def _arm(self) -> None:
        clock = self._agent.clock
        self._timer: Timer | None = clock.call_at(clock.monotonic() + LOOK_EVERY * 4, self._look)

    def _look(self) -> None:
        for finding in look(self._agent, self._agent.clock.monotonic()):
            self._agent.health.alert(finding.kind, finding.message, cycle_id=finding.cycle_id)
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def stack_of(thread_id: int) -> str:
    """The stack of a thread as text, innermost last; empty if it is gone."""
    frame = sys._current_frames().get(thread_id)
    return "".join(traceback.format_stack(frame)[-12:]).rstrip() if frame is not None else ""


def _call(agent: Agent, function: object) -> None:
    loop = agent.event_loop
    if loop is not None:
        try:
            loop.call_soon_threadsafe(function)  # type: ignore[arg-type]
        except RuntimeError:
            pass  # closed meanwhile


watcher = Watcher()
