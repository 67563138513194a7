"""Ladder of recovery: the steps that are taken when a phase keeps failing.

Back off → cancel (the deadline of the phase) → restart the module → degraded mode → pause and alert. Every step is
logged, published, counted, and kept in a short list.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec import Struct

from spar.backoff import Intensity
from spar.events import ErrorOccurred, RecoveryStep
from spar.health.streaks import Streak
from spar.loop.core import Core
from spar.loop.cycle import STANDING, WorkingSession
from spar.loop.setup import Setup
from spar.observe.logs import get_logger
from spar.ports.any_part import AgentControl, has
from spar.ports.planners import OptionalPlanner
from spar.types import Phase

log = get_logger("spar.health")

#: Seconds that a session waits for the restart of a module.
MEND_WITHIN = 30.0
#: The most steps of recovery that are kept; older ones are in the log.
STEPS_KEPT = 20
#: The names of the steps, as metrics count them.
STEPS = ("back_off", "cancel", "abandon", "restart", "degrade", "restore", "pause", "shed", "drain", "quarantine",
         "other")  # fmt: skip
#: Steps that limit what the agent does.
SEVERE = ("degrade", "pause", "drain")


class StepTaken(Struct, frozen=True):
    """Step of recovery that was taken; `at` in UTC."""

    at: datetime
    step: str
    part: str
    reason: str
    alert_id: str = ""
    session: str = ""


class Ladder:
    """Steps of recovery of one agent. Used from the event loop's thread.

    A restart of a module, degraded mode and a pause concern every session. The last two happen only for failures of the
    standing session.

    Args: agent: can pause, and can restart a module; sessions: the existing sessions by key; critical: makes the alert
    of a streak critical, with this message.

    `steps` are the latest ones, `counts` the number of each by name, `restarted` the restarts of each child; they can
    be read from any thread. `degraded_at` is when the planner was degraded (monotonic seconds); None if it is not.
    """

    __slots__ = ("_agent", "_core", "_critical", "_intensities", "_sessions", "_setup", "_to_restart", "counts",
                 "degraded_at", "restarted", "steps")  # fmt: skip

    def __init__(self, core: Core, setup: Setup, agent: AgentControl, sessions: Mapping[str, WorkingSession],
                 critical: Callable[[Streak, str], object]) -> None:  # fmt: skip
        self._core, self._setup, self._agent, self._sessions = core, setup, agent, sessions
        self._critical = critical
        #: The restarts of each phase's module, for the standing session and for the others.
        self._intensities: dict[tuple[str, bool], Intensity] = {}
        #: For each session, the phase whose module is to be restarted.
        self._to_restart: dict[str, Phase] = {}
        self.degraded_at: float | None = None
        self.restarted: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.steps: deque[StepTaken] | tuple[()] = ()  # most agents never take a step

    def climb(self, streak: Streak, alert_id: str) -> None:
        """Take the next step for a streak, because the one before did not help."""
        fault, is_standing = streak.fault, streak.session == STANDING
        if not self._may_restart(streak.phase, is_standing):
            self._give_up(streak, alert_id)
            return
        streak.rung += 1
        self.step("restart", fault.part, fault.message, alert_id, streak.session)
        self._to_restart[streak.session] = streak.phase
        if not is_standing or streak.phase != "plan" or streak.rung < 2 or self.degraded_at is not None:
            return
        if self._ask_planner("degrade", OptionalPlanner.degrade, fault.message):
            self.degraded_at = self._core.clock.monotonic()
            self.step("degrade", fault.part, fault.message, alert_id, streak.session)

    def restore(self) -> None:
        """Restore a degraded planner after the agent was healthy for a while without it."""
        within = self._core.settings.health.within
        if self.degraded_at is None or self._core.clock.monotonic() - self.degraded_at < within:
            return
        self.degraded_at = None
        if self._ask_planner("restore", OptionalPlanner.restore):
            self.step("restore", self._setup.modules["plan"].name, "well again", "")

    def _may_restart(self, phase: Phase, is_standing: bool) -> bool:
        """Count one restart; return False beyond the limit. The standing session has a limit of its own."""
        limits = self._core.settings.health
        intensity = self._intensities.setdefault((phase, is_standing), Intensity(limits.max_restarts, limits.within))
        intensity.limit, intensity.within = limits.max_restarts, limits.within
        return intensity.allow(self._core.clock.monotonic())

    def _give_up(self, streak: Streak, alert_id: str) -> None:
        """Pause the agent if only its standing session has work; otherwise let the session wait longer and longer."""
        fault = streak.fault
        if streak.session != STANDING or any(
            not session.is_standing and session.has_work for session in self._sessions.values()
        ):
            message = f"{streak.phase} keeps failing, restarts did not help: {fault.message}"
            self._critical(streak, message)
            return
        limits = self._core.settings.health
        reason = f"{limits.max_restarts} restarts within {limits.within:g} s did not help"
        self.step("pause", fault.part, reason, alert_id, streak.session)
        self._agent.request_pause()
        self._critical(streak, f"paused, {fault.phase} keeps failing: {fault.message}")

    def _ask_planner(self, what: str, member: Callable[..., object], *args: str) -> bool:
        """Have the planner do it, if it has this member; return whether it did."""
        planner = self._setup.modules["plan"]
        try:
            return has(planner.part, member) and getattr(planner.part, what)(*args) is not False
        except Exception as error:
            self._failed_to(what, planner.name, "plan", error)
            return False

    async def mend(self, session: str) -> None:
        """Restart the module that a session's last step asked for, between two of its cycles; stop waiting for one that
        hangs."""
        phase = self._to_restart.pop(session, None)
        if phase is None:
            return
        self.count_restart(phase)
        try:
            async with asyncio.timeout(MEND_WITHIN):
                await self._agent.restart_module(phase)
        except TimeoutError as error:
            self._failed_to("restart", self._setup.modules[phase].name, phase, error)

    def _failed_to(self, what: str, part: str, phase: Phase, error: Exception) -> None:
        event = ErrorOccurred.of(error, part, phase, what)
        log.warning("recovery failed", agent=self._core.name, step=what, part=part, reason=event.error.message)
        self._core.events.publish(event)

    def count_restart(self, child: str) -> None:
        """Count a restart of a child (a phase's module, or "loop")."""
        self.restarted[child] = self.restarted.get(child, 0) + 1

    def step(self, step: str, part: str, reason: str, alert_id: str = "", session: str = "") -> None:
        """Log, publish, count and keep a step of recovery."""
        core = self._core
        write = log.error if step in SEVERE else log.warning
        write("recovery step", agent=core.name, session=session, step=step, part=part, reason=reason)
        name = step if step in STEPS else "other"
        self.counts[name] = self.counts.get(name, 0) + 1
        if not self.steps:
            self.steps = deque(maxlen=STEPS_KEPT)
        self.steps.append(StepTaken(core.clock.now(), step, part, reason, alert_id, session))
        core.events.publish(RecoveryStep(step=step, part=part, reason=reason, alert_id=alert_id, session=session))
