"""Health of an agent: its open alerts and the limits of its settings, and what an agent without trouble asks of them.

`spar.health.judge` opens alerts, once something is wrong. `spar.health.watchdog` notices from outside what a loop
cannot report because it does not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spar.health.alerts import Alert, Kind, key_of
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.observe.stats import Stats
from spar.ports.any_part import AgentControl

if TYPE_CHECKING:
    from spar.config.tables.agent import HealthSettings
    from spar.health.judge import Judge, Pressure
    from spar.health.models import Models
    from spar.loop.cycle import WorkingSession


class Health:
    """Open alerts of one agent. Used from the event loop's thread.

    Args: agent: can pause, and can restart a module; sessions: the existing sessions by key.

    `pressure` is the state of the process's memory and disk. `pressure` and `snapshot` can be read from any thread.
    """

    __slots__ = ("__dict__", "_agent", "_core", "_sessions", "_setup", "alerts", "stats")

    def __init__(self, core: Core, setup: Setup, stats: Stats, agent: AgentControl,
                 sessions: Mapping[str, WorkingSession]) -> None:  # fmt: skip
        self._core, self._setup, self.stats, self._agent, self._sessions = core, setup, stats, agent, sessions
        self.alerts: dict[str, Alert] = {}

    @cached_property
    def judge(self) -> Judge:
        """Judge of its cycles and runs, which the first trouble makes."""
        from spar.health.judge import Judge

        return Judge(self._core, self._setup, self.stats, self._agent, self._sessions, self.alerts)

    @cached_property
    def models(self) -> Models:
        """Models of the planner, which the first report makes."""
        from spar.health.models import Models

        return Models(self._core, self.judge.alert, self.recovered)

    @cached_property
    def pressure(self) -> Pressure:
        """State of the process's memory and disk: calm where nobody watches them."""
        from spar.health.judge import CALM

        return CALM

    @property
    def limits(self) -> HealthSettings:
        """Return the present settings `[health]`; may be called from any thread."""
        return self._core.settings.health

    def is_calm(self) -> bool:
        """Return whether nothing is wrong and no remedy is in force, so that a good cycle need not be judged."""
        if (judge := self.__dict__.get("judge")) is not None and (
            self.alerts or judge.streaks.worst or judge.ladder.degraded_at is not None
        ):
            return False
        return self.limits.slow_after == "auto"

    @property
    def is_degraded(self) -> bool:
        """Return whether the planner works in degraded mode."""
        return "judge" in self.__dict__ and self.judge.ladder.degraded_at is not None

    @property
    def kinds(self) -> set[str]:
        """Return the kinds of the open alerts of all sessions; may be called from any thread."""
        return {alert.kind for alert in list(self.alerts.values())}

    @property
    def makes_do(self) -> bool:
        """Return whether the agent works without its full planner, or without one of its models."""
        return self.is_degraded or ("models" in self.__dict__ and self.models.is_any_open)

    def snapshot(self) -> dict[str, Any]:
        """Return the state of health and the latest steps of recovery, JSON-able; may be called from any thread."""
        has_judge = "judge" in self.__dict__
        return {
            "degraded": self.is_degraded,
            "restarts": dict(self.judge.ladder.restarted) if has_judge else {},
            "steps": list(self.judge.ladder.steps) if has_judge else [],
            "pressure": self.pressure.snapshot(),
        }

    def worst_of(self, session: str) -> int:
        """Return the most failures in a row of a phase of a session; 0 without any."""
        return self.judge.streaks.worst_of(session) if "judge" in self.__dict__ else 0

    # -- ends of troubles

    def recovered(self, kind: Kind, *, session: str = "", what: str = "") -> None:
        """Close this alert if it is open."""
        if self.alerts:
            self.judge.close(key_of(kind, session, what))

    def close(self) -> None:
        """Close all alerts, because the agent has stopped."""
        for key in list(self.alerts):
            self.judge.close(key)

    def run_went_well(self) -> None:
        """Count no failed runs any more, and close the alert about them."""
        if "judge" in self.__dict__:
            self.judge.failed_runs = 0
            self.recovered("runs")
