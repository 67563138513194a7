"""Judge of an agent: opens and closes its alerts, by its verdict on each cycle and run that has ended; and the verdict
on memory and disk.

The first trouble makes it. `spar.health.ladder` takes the steps when a phase keeps failing. `spar.health.relief` takes
the readings of memory and disk and acts on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from msgspec import Struct

from spar.backoff import Backoff
from spar.data.reply import why_of
from spar.events import HealthAlert, HealthRecovered
from spar.health.alerts import NEVER_SLOW, SLOW_FACTOR, Alert, Kind, Severity, key_of, usual_duration
from spar.health.ladder import Ladder
from spar.health.streaks import Streak, Streaks
from spar.ids import new_id
from spar.loop.core import Core
from spar.loop.cycle import Cycle, WorkingSession
from spar.loop.setup import Setup
from spar.observe.logs import get_logger
from spar.observe.stats import Stats
from spar.ports.any_part import AgentControl
from spar.types import Fault, Phase, replace

log = get_logger("spar.health")

#: Runs in a row that end in error until people are told of it.
FAILED_RUNS = 10
#: Kinds of alerts about one phase of one session. A success of that phase closes them.
OF_A_PHASE: tuple[Kind, ...] = ("failing", "stuck")


class Judge:
    """Judge of one agent. Used from the event loop's thread.

    Failures, with their alerts and waits, count for their own session and phase. `failed_runs` counts the
    last runs that ended in error.

    Args: agent: can pause, and can restart a module; sessions: the existing sessions by key; alerts: the open alerts.
    """

    __slots__ = ("_core", "_stats", "alerts", "failed_runs", "ladder", "streaks")

    def __init__(self, core: Core, setup: Setup, stats: Stats, agent: AgentControl,
                 sessions: Mapping[str, WorkingSession], alerts: dict[str, Alert]) -> None:  # fmt: skip
        self._core, self._stats, self.alerts = core, stats, alerts
        self.ladder = Ladder(core, setup, agent, sessions, partial(self._alert_of, severity="critical"))
        self.streaks = Streaks()
        self.failed_runs = 0

    # -- alerts

    def alert(self, kind: Kind, message: str, *, severity: Severity = "warning", cycle_id: str = "", stack: str = "",
              session: str = "", phase: str = "", what: str = "") -> Alert:  # fmt: skip
        """Open an alert, or return the open one with the same key; it may become critical.

        Args: stack: added to the alert's message, but not logged with it; session: its session ("": the whole agent);
        phase: the failed phase; what: distinguishes it from others of its kind.
        """
        core, key = self._core, key_of(kind, session, what)
        known = self.alerts.get(key)
        if known is not None and (known.severity == severity or severity == "warning"):
            return known
        write = log.error if severity == "critical" else log.warning
        write("health alert", agent=core.name, kind=kind, session=session, reason=message, cycle=cycle_id)
        message = f"{message} by:\n{stack}" if stack else message
        if known is not None:
            alert = replace(known, severity=severity, message=message, cycle_id=cycle_id)
        else:
            alert = Alert(new_id(), kind, severity, message, core.clock.now(), core.clock.monotonic(), cycle_id,
                          session, phase, what)  # fmt: skip
        self.alerts[key] = alert
        core.events.publish(HealthAlert(kind=kind, severity=severity, message=message, since=alert.since,
                                         cycle_id=cycle_id, alert_id=alert.id, session=session, what=what))  # fmt: skip
        return alert

    def close(self, key: str) -> None:
        """Close the alert of this key if it is open."""
        if (alert := self.alerts.pop(key, None)) is None:
            return
        duration = self._core.clock.monotonic() - alert.began
        log.info("health recovered", agent=self._core.name, kind=alert.kind, session=alert.session,
                 seconds=round(duration, 3))  # fmt: skip
        self._core.events.publish(
            HealthRecovered(kind=alert.kind, alert_id=alert.id, duration=duration, session=alert.session)
        )

    # -- after each run

    def run_failed(self, error: str) -> None:
        """Count a run that ended in error. Open the alert `runs` after `FAILED_RUNS` in a row, also if each of them
        failed by its own fault, which counts for no step of recovery."""
        self.failed_runs += 1
        if self.failed_runs >= FAILED_RUNS:
            self.alert("runs", f"the last {FAILED_RUNS} runs ended in error, the last: {why_of(error)}")

    # -- after each cycle

    def observe(self, cycle: Cycle, duration: float) -> None:
        """Judge a cycle that has ended. This costs very little while the agent is healthy.

        An interrupted cycle proves nothing. In any other cycle each phase counts by itself; a phase that was not
        reached proves nothing about its module.
        """
        if not cycle.is_cut:
            for phase in went_well(cycle):
                self.streaks.succeeded(cycle.session, phase)
                self._close_alerts_of(cycle.session, phase)
            for fault in {fault.phase: fault for fault in cycle.faults}.values():
                if not is_of_work(cycle, fault):
                    self._failed(cycle, fault)
            self.close(key_of("stalled", cycle.session))
            if not cycle.faults:
                self.ladder.restore()
        self._stats.consecutive_failures = self.streaks.worst
        self._judge_pace(cycle, duration)

    def _close_alerts_of(self, session: str, phase: str) -> None:
        """Close the alerts of a phase that works again in a session."""
        for kind in OF_A_PHASE:
            alert = self.alerts.get(key := key_of(kind, session))
            if alert is not None and alert.phase == phase:
                self.close(key)

    def _failed(self, cycle: Cycle, fault: Fault) -> None:
        """Count the failure of a phase, open its alert, and take a step of recovery if it keeps failing."""
        phase, failing_after = cast(Phase, fault.phase), self._core.settings.health.failing_after
        streak, forgotten = self.streaks.failed(cycle.session, phase, fault, cycle.id)
        if forgotten is not None:
            self._close_alerts_of(forgotten.session, forgotten.phase)
        if streak.count >= failing_after:
            message = f"{streak.count} cycles in a row failed, the last in {phase}: {fault.message}"
            self._alert_of(streak, message)
        # Only the standing session polls sensors. A success of another phase in another session shows that its module
        # works.
        is_own = phase != "sense" and self.streaks.has_succeeded_elsewhere(streak)
        if streak.count % failing_after == 0 and not is_own:
            self.ladder.climb(streak, self._alert_id(streak))

    def _alert_of(self, streak: Streak, message: str, severity: Severity = "warning") -> Alert:
        return self.alert("failing", message, severity=severity, cycle_id=streak.cycle_id, session=streak.session,
                          phase=streak.phase)  # fmt: skip

    def back_off(self, wait: float | None, cycle: Cycle) -> float | None:
        """Return the wait before a session's next cycle (seconds): longer while its failed phase keeps failing."""
        limits = self._core.settings.health
        streaks = [self.streaks.get(cycle.session, cast(Phase, fault.phase)) for fault in cycle.faults]
        worst = max((streak for streak in streaks if streak), key=lambda streak: streak.count, default=None)
        excess = worst.count - limits.failing_after + 1 if worst is not None else 0
        if worst is None or excess <= 0 or wait is None:
            return wait
        delay = Backoff(limits.backoff, 60.0).delay(excess)
        if delay <= wait:
            return wait
        reason = f"the next cycle waits {delay:g} s"
        self.ladder.step("back_off", worst.fault.part, reason, self._alert_id(worst), worst.session)
        return delay

    def _alert_id(self, streak: Streak) -> str:
        alert = self.alerts.get(key_of("failing", streak.session))
        return alert.id if alert else ""

    def _judge_pace(self, cycle: Cycle, duration: float) -> None:
        """Open or close the alert `slow` by the duration of a cycle (seconds)."""
        slow_after = self._core.settings.health.slow_after
        if cycle.is_cut or (cycle.faults and slow_after == "auto"):
            return  # the duration of a failing cycle proves nothing
        limit = NEVER_SLOW if slow_after == "auto" else slow_after
        if slow_after == "auto" and duration > NEVER_SLOW:
            limit = max(NEVER_SLOW, SLOW_FACTOR * usual_duration(self._stats, cycle.phases))
        if duration > limit:
            message = f"a cycle took {duration:.3g} s, more than {limit:.3g} s"
            self.alert("slow", message, cycle_id=cycle.id, session=cycle.session)
        else:
            self.close(key_of("slow", cycle.session))


def went_well(cycle: Cycle) -> list[Phase]:
    """Return the phases of a cycle whose modules succeeded."""
    is_known = cycle.resumed is not None and cycle.resumed.action is not None  # then the planner was not called
    return [phase for phase in cycle.phases if not (is_known and phase == "plan")]


def is_of_work(cycle: Cycle, fault: Fault) -> bool:
    """Return whether a fault belongs to the current work, which it ends, and proves nothing about the module.

    A permanent failure with one message or plan may not occur with the next; a missing file was named by the work. An
    invalid setting concerns all work.
    """
    has_work = cycle.run is not None or bool(cycle.perceptions)
    is_lasting = not fault.retryable or fault.kind == "not_found"
    return has_work and is_lasting and fault.phase != "sense" and fault.kind != "config"


# -- memory and disk


MIB = 1024 * 1024
#: The least free space: so many bytes or that share of the disk, whichever is less, since small disks exist.
LEAST_FREE, LEAST_SHARE = 512 * MIB, 0.05
#: The share of a limit by which a reading must be below (memory) or above (disk) the limit before the alarm ends, so
#: that it does not flutter.
CLEARLY = 0.1
#: Readings in a row above the hard limit until the process ends. One big answer passes, and caches are cleared first.
HARD_READINGS = 3


class ResourceBounds(Struct, frozen=True):
    """Limits in bytes; 0: none. Without `min_free_disk` the lesser of `LEAST_FREE` and `LEAST_SHARE` of the disk."""

    memory_soft: int = 512 * MIB
    memory_hard: int = 1024 * MIB
    min_free_disk: int | None = None


class Pressure:
    """Verdict on the last reading. Written by the reader of memory and disk, read from any thread.

    Attributes: resident: bytes of memory that the process uses; free, total: bytes of the disk; shed: cache entries
    that were dropped so far; store: the memory's own report (`snapshot`); refusal: why nothing new can be accepted now,
    "" if it can.
    """

    __slots__ = ("_above_hard", "bounds", "free", "is_high", "refusal", "resident", "shed", "store", "total")

    def __init__(self, bounds: ResourceBounds) -> None:
        self.bounds = bounds
        self.resident = self.free = self.total = self.shed = 0
        self.store: Mapping[str, Any] = {}
        self.is_high = False
        self._above_hard = 0
        self.refusal = ""

    @property
    def is_too_high(self) -> bool:
        """Return whether memory has been above the hard limit for too long."""
        return self._above_hard >= HARD_READINGS

    @property
    def least_free(self) -> int:
        """Return the bytes that must be free on the disk."""
        least = self.bounds.min_free_disk
        return min(LEAST_FREE, int(self.total * LEAST_SHARE)) if least is None else least

    def take_memory(self, resident: int) -> None:
        """Judge a reading of the memory, in bytes."""
        self.resident, bounds = resident, self.bounds
        soft = bounds.memory_soft or bounds.memory_hard
        if soft and resident > soft:
            self.is_high = True
        elif resident <= soft * (1 - CLEARLY):
            self.is_high = False
        self._above_hard = self._above_hard + 1 if bounds.memory_hard and resident > bounds.memory_hard else 0

    def take_disk(self, free: int, total: int) -> None:
        """Judge a reading of the disk, in bytes."""
        self.free, self.total = free, total
        least = self.least_free
        if free < least:
            self.refusal = (
                f"the disk of the state directory has {mib(free)} free, less than {mib(least)} (service.min_free_disk);"
                " nothing new is accepted until there is room"
            )
        elif free >= least * (1 + CLEARLY):
            self.refusal = ""

    def snapshot(self) -> dict[str, Any]:
        """Return the readings in bytes, JSON-able; may be called from any thread."""
        return {
            "memory_bytes": self.resident,
            "memory_is_high": self.is_high,
            "disk_free_bytes": self.free,
            "disk_least_free_bytes": self.least_free,
            "refusal": self.refusal,
            "shed": self.shed,
        }


#: The pressure of an agent whose process is not watched: never any.
CALM = Pressure(ResourceBounds(0, 0, 0))


def mib(number: int) -> str:
    """Return a number of bytes as text for people."""
    return f"{number / MIB:.1f} MiB"
