"""Alerts of an agent: their kinds, and an alert that is open."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

from spar.ports.notifier import AlertKind

#: The key of the session that senses; its alerts and the agent's own go by their kind alone.
STANDING = "main"
Kind = AlertKind
Severity = Literal["warning", "critical"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Alert(Struct, frozen=True):
    """An open alert: `since` in UTC, `began` in monotonic seconds.

    `session` is whose it is ("": the whole agent's), `phase` the one whose success closes it, `what` tells alerts of
    one kind and session apart.
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
        """Return whether it is the whole agent's or its standing session's; another session's is its own affair."""
        return self.session in ("", STANDING)


def key_of(kind: Kind, session: str = "", what: str = "") -> str:
    """The key of an alert in `Health.alerts`: its kind, and what tells it apart from others of that kind."""
    own = "" if session == STANDING else session
    return ":".join(part for part in (kind, own, what) if part)
