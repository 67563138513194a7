"""Is the agent well, and what is done when it is not.

`Health` knows the open alerts of one agent and climbs the ladder: back off → cancel (the deadline of the phase) →
restart the module → degraded mode → pause and alert. Every step is told, counted, and kept for a while for whoever
looks. What the loop itself cannot tell, because it does not run, is seen from outside (`spar.watcher`); how memory and
disk are doing is `spar.pressure`'s.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct

from spar.cycle import Cycle
from spar.events import ErrorOccurred, HealthAlert, HealthRecovered, RecoveryStep
from spar.ids import new_id
from spar.logs import get_logger
from spar.policies import Backoff, Intensity
from spar.pressure import CALM, Pressure
from spar.types import Fault, Phase, replace
from spar.watcher import LoopWatcher as LoopWatcher
from spar.watcher import watcher as watcher

if TYPE_CHECKING:
    from spar.agent import Agent

log = get_logger("spar.health")

Kind = Literal["stuck", "slow", "failing", "stalled", "blocked", "memory", "disk", "budget"]
Severity = Literal["warning", "critical"]
#: How much slower than the usual (the medians of the phases it went through) is `slow`, and what never is (seconds).
SLOW_FACTOR, NEVER_SLOW = 10.0, 1.0
#: Seconds that closing a module and opening it again may take.
MEND_WITHIN = 30.0
#: Steps of recovery that are kept for whoever looks; older ones are in the log.
STEPS_KEPT = 20
#: What a step can be, as metrics count it.
STEPS = ("back_off", "cancel", "abandon", "restart", "degrade", "restore", "pause", "shed", "drain", "quarantine",
         "other")  # fmt: skip


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
    severity: Severity
    message: str
    since: datetime
    began: float
    cycle_id: str = ""


class Step(Struct, frozen=True):
    """One step of recovery that was taken; `at` in UTC."""

    at: datetime
    step: str
    part: str
    reason: str
    alert_id: str = ""


class Health:
    """The open alerts of one agent and the ladder of recovery. Used from the event loop's thread.

    `restarted` counts the restarts of each child, `counts` the steps taken by name; `pressure` is how the process's
    memory and disk are doing. They and `snapshot` can be read from any thread.
    """

    __slots__ = ("_agent", "_backoff", "_degraded_at", "_fault", "_limits", "_looks_at_all", "_rung", "_steps",
                 "_to_restart", "alerts", "counts", "pressure", "restarted", "restarts")  # fmt: skip

    def __init__(self, agent: Agent, limits: Limits) -> None:
        self._agent = agent
        self.alerts: dict[str, Alert] = {}
        self.pressure: Pressure = CALM
        self.restarted: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self._steps: deque[Step] | None = None  # most agents never need any
        self.restarts = Intensity(limits.max_restarts, limits.within)
        self.limits = limits
        self._rung = 0
        self._fault: Fault | None = None
        self._degraded_at: float | None = None
        self._to_restart: Phase | None = None

    @property
    def limits(self) -> Limits:
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits, self._backoff = limits, Backoff(limits.backoff, 60.0)
        self.restarts.limit, self.restarts.within = limits.max_restarts, limits.within
        self._looks_at_all = limits.slow_after != "auto"

    @property
    def is_calm(self) -> bool:
        """Nothing is wrong and nothing has been done about it: a good cycle need not be looked at."""
        return not (self.alerts or self._rung or self._looks_at_all)

    @property
    def is_degraded(self) -> bool:
        """Whether the planner has been told to make do with less."""
        return self._degraded_at is not None

    def snapshot(self) -> dict[str, Any]:
        """What is wrong and what was done about it lately, JSON-able; safe from any thread."""
        return {
            "degraded": self.is_degraded,
            "restarts": dict(self.restarted),
            "steps": list(self._steps or ()),
            "pressure": self.pressure.snapshot(),
        }

    # -- alerts

    def alert(self, kind: Kind, message: str, *, severity: Severity = "warning", cycle_id: str = "",
              stack: str = "") -> Alert:  # fmt: skip
        """Open an alert, or return the one that is open already for this kind; it may become critical.

        A `stack` is told in the alert after its message, but not logged with it.
        """
        agent, known = self._agent, self.alerts.get(kind)
        if known is not None and (known.severity == severity or severity == "warning"):
            return known
        log.warning("health alert", agent=agent.name, kind=kind, reason=message, cycle=cycle_id)
        message = f"{message} by:\n{stack}" if stack else message
        if known is not None:
            found = replace(known, severity=severity, message=message, cycle_id=cycle_id)
        else:
            found = Alert(new_id(), kind, severity, message, agent.clock.now(), agent.clock.monotonic(), cycle_id)
        self.alerts[kind] = found
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

    def close(self) -> None:
        """The agent has stopped: what is no more is not wrong any more."""
        for kind in list(self.alerts):
            self.recovered(cast(Kind, kind))

    # -- after each cycle

    def observe(self, cycle: Cycle, duration: float) -> None:
        """Judge a cycle that has ended; costs next to nothing while all is well."""
        if cycle.outcome == "failed":
            self._fault = cycle.faults[-1]
            failures = self._agent.account.consecutive_failures
            if failures >= self.limits.failing_after:
                fault = self._fault
                message = f"{failures} cycles in a row failed, the last in {fault.phase}: {fault.message}"
                self.alert("failing", message, cycle_id=cycle.id)
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
        delay = self._backoff.delay(over)
        if delay <= wait:
            return wait
        fault, alert = self._fault, self.alerts.get("failing")
        reason = f"the next cycle waits {delay:g} s"
        self.step("back_off", fault.part if fault else "", reason, alert.id if alert else "")
        return delay

    def _all_clear(self, cycle: Cycle) -> None:
        if cycle.outcome == "interrupted":
            return
        self.recovered("failing")
        self.recovered("stalled")
        if not any(fault.kind == "timeout" for fault in cycle.faults):
            self.recovered("stuck")
        if self._degraded_at is None:
            self._rung = 0
        elif self._agent.clock.monotonic() - self._degraded_at >= self.limits.within:
            # Well for a while without the planner that failed: it may try again.
            self._rung, self._degraded_at = 0, None
            if self._ask_planner("restore"):
                self.step("restore", self._agent.modules["plan"].name, "well again", "")

    def _judge_pace(self, cycle: Cycle, duration: float) -> None:
        given = self.limits.slow_after
        if cycle.is_cut or (cycle.faults and given == "auto"):
            return  # how long a cycle takes to fail is no measure
        if given != "auto":
            limit = given
        elif duration <= NEVER_SLOW:
            limit = NEVER_SLOW
        else:
            limit = max(NEVER_SLOW, SLOW_FACTOR * self._usual(cycle))
        if duration > limit:
            self.alert("slow", f"a cycle took {duration:.3g} s, more than {limit:.3g} s", cycle_id=cycle.id)
        else:
            self.recovered("slow")

    def _usual(self, cycle: Cycle) -> float:
        """Seconds that such a cycle usually takes: an idle one is no measure for one that acts."""
        phases = self._agent.account.phases
        return sum(phases[phase].quantile(0.5) for phase, _ in cycle.durations)

    # -- the ladder

    def _climb(self, cycle: Cycle) -> None:
        """The next rung, once more failures in a row have shown that the one before did not help."""
        fault = cycle.faults[-1]
        alert = self.alerts.get("failing")
        alert_id = alert.id if alert else ""
        if not self.restarts.allow(self._agent.clock.monotonic()):
            reason = f"{self.limits.max_restarts} restarts within {self.limits.within:g} s did not help"
            self.step("pause", fault.part, reason, alert_id)
            self._agent.request_pause()
            message = f"paused, {fault.phase} keeps failing: {fault.message}"
            self.alert("failing", message, severity="critical", cycle_id=cycle.id)
            return
        self._rung += 1
        self.step("restart", fault.part, fault.message, alert_id)
        self._to_restart = cast(Phase, fault.phase)
        if self._rung > 1 and self._degraded_at is None and self._ask_planner("degrade", fault.message):
            self._degraded_at = self._agent.clock.monotonic()
            self.step("degrade", fault.part, fault.message, alert_id)

    def _ask_planner(self, what: str, *args: str) -> bool:
        """Have the planner `degrade` or `restore`, if it can; True if it did."""
        module = self._agent.modules["plan"]
        method = getattr(module.part, what, None)
        try:
            return callable(method) and method(*args) is not False
        except Exception as error:
            self._failed_to(what, module.name, "plan", error)
            return False

    async def mend(self) -> None:
        """Restart the module that the last rung asked for, between two cycles; one that hangs in it is given up."""
        phase, self._to_restart = self._to_restart, None
        if phase is None:
            return
        self.count_restart(phase)
        try:
            async with asyncio.timeout(MEND_WITHIN):
                await self._agent.restart_module(phase)
        except TimeoutError as error:
            self._failed_to("restart", self._agent.modules[phase].name, phase, error)

    def _failed_to(self, what: str, part: str, phase: Phase, error: Exception) -> None:
        fault = Fault.of(error, part=part, phase=phase)
        log.warning("recovery failed", agent=self._agent.name, step=what, part=part, reason=fault.message)
        self._agent.events.publish(ErrorOccurred(cycle_id="", phase=phase, error=fault, policy=what, exception=error))

    def count_restart(self, child: str) -> None:
        """A child (a phase's module, "loop") is begun anew."""
        self.restarted[child] = self.restarted.get(child, 0) + 1

    def step(self, step: str, part: str, reason: str, alert_id: str = "") -> None:
        """Tell of a step of recovery, count it and keep it."""
        agent = self._agent
        log.warning("recovery step", agent=agent.name, step=step, part=part, reason=reason)
        name = step if step in STEPS else "other"
        self.counts[name] = self.counts.get(name, 0) + 1
        if self._steps is None:
            self._steps = deque(maxlen=STEPS_KEPT)
        self._steps.append(Step(agent.clock.now(), step, part, reason, alert_id))
        agent.events.publish(RecoveryStep(step=step, part=part, reason=reason, alert_id=alert_id))
