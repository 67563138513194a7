"""Alerts of an agent: their kinds, and one open alert."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

from spar.types.values import AlertKind

#: The key of the standing session, which polls the sensors. The keys of its alerts, and of the agent's own, omit the
#: session.
STANDING = "main"
Kind = AlertKind
Severity = Literal["warning", "critical"]
KINDS: tuple[Kind, ...] = get_args(Kind)


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
