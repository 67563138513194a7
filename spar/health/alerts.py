"""Alerts of an agent: their kinds, one open alert, and the duration beyond which a cycle is slow."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Literal, get_args

from msgspec import Struct

from spar.loop.cycle import Cycle
from spar.observe.stats import Stats
from spar.types import Phase
from spar.types.values import AlertKind

if TYPE_CHECKING:
    from spar.config.tables.agent import HealthSettings

#: The key of the standing session, which polls the sensors. The keys of its alerts, and of the agent's own, omit the
#: session.
STANDING = "main"
Kind = AlertKind
Severity = Literal["warning", "critical"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: A cycle is `slow` that takes this many times its usual duration (the sum of the medians of its phases), but never
#: below so many seconds.
SLOW_FACTOR, NEVER_SLOW = 10.0, 1.0
#: A current cycle is never slow before so many seconds, unless `slow_after` says otherwise.
NEVER_SLOW_CURRENT = 60.0


class Alert(Struct, frozen=True):
    """Open alert: `since` is in UTC, `began` in monotonic seconds.

    `session` is its session ("": the whole agent), `phase` is the phase whose success closes it, `what` distinguishes
    alerts of one kind and session.
    """

    id: str
    kind: Kind
    severity: Severity
    message: str
    since: datetime
    began: float
    cycle_id: str = ""
    session: str = ""
    phase: str = ""
    what: str = ""

    @property
    def concerns_all(self) -> bool:
        """Return whether it concerns the whole agent or its standing session."""
        return self.session in ("", STANDING)


def key_of(kind: Kind, session: str = "", what: str = "") -> str:
    """Return the key of an alert in `Health.alerts`: its kind, its session and its `what`."""
    session_part = "" if session == STANDING else session
    return ":".join(part for part in (kind, session_part, what) if part)


def usual_duration(stats: Stats, phases: Iterable[Phase]) -> float:
    """Return the seconds that a cycle of these phases usually takes. Idle and acting cycles go through different
    phases."""
    return sum(stats.phases[phase].quantile(0.5) for phase in phases)


def slow_limit(limits: HealthSettings, stats: Stats, cycle: Cycle) -> float:
    """Return the seconds after which a current cycle is slow; infinite without a known duration of its phase.

    The first plan has a limit although its duration is unknown. May be called from any thread.
    """
    if limits.slow_after != "auto":
        return limits.slow_after
    series = stats.phases[cycle.phase]
    if not (series.count or series.pending or cycle.phase == "plan"):
        return float("inf")
    return max(NEVER_SLOW_CURRENT, SLOW_FACTOR * usual_duration(stats, (*cycle.phases, cycle.phase)))
