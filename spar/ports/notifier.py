"""Port of a notifier of alerts: the notice that it is given, and its terms.

Any `spar.protocols.Notifier` will do; one that also has `deliver` is given the notice whole.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

#: The kinds of alerts.
AlertKind = Literal[
    "stuck", "slow", "failing", "stalled", "blocked", "memory", "disk", "budget", "provider", "prompt", "sensor",
    "channel", "approval",
]  # fmt: skip


class Notice(Struct, frozen=True):
    """Message to people about an alert. `id` stays the same at each attempt, also after a restart; `alert_id` is the
    same for what belongs to one episode. A `digest` is one for several that waited for the end of quiet hours."""

    id: str
    kind: str
    state: Literal["raised", "recovered", "test", "digest"]
    severity: str
    title: str
    text: str
    at: datetime
    agent: str = ""
    session: str = ""
    alert_id: str = ""


@runtime_checkable
class DeliversNotices(Protocol):
    """A notifier that is given a notice whole."""

    async def deliver(self, notice: Notice) -> None:
        """Tell it; raises when it cannot have arrived. A notice that comes again has the same id."""


class QuietHours(Struct, frozen=True):
    """Hours of each day, in the machine's own zone, in which only what is critical is told; `begin` may be after `end`,
    which is then on the next day."""

    begin: time
    end: time

    @classmethod
    def parse(cls, text: str) -> QuietHours:
        """Read `22:00-07:00`. Raises: ValueError with a sentence."""
        begin, dash, end = text.partition("-")
        try:
            found = cls(time.fromisoformat(begin.strip()), time.fromisoformat(end.strip()))
        except ValueError:
            dash = ""
        if not dash or found.begin == found.end or found.begin.tzinfo or found.end.tzinfo:
            raise ValueError('must be two different times of day, such as "22:00-07:00"')
        return found

    def covers(self, at: datetime) -> bool:
        """Return whether a time lies in them."""
        now = at.astimezone().time()
        if self.begin < self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end

    def end_after(self, at: datetime) -> datetime:
        """Return when they end next after a time."""
        local = at.astimezone().replace(tzinfo=None)
        end = datetime.combine(local, self.end)
        return (end if end > local else end + timedelta(days=1)).astimezone(at.tzinfo)


class NotifierSpec(Struct, frozen=True):
    """A notifier and its terms: which kinds of alerts it is told of (none: all), from which severity on, after how many
    seconds again (0: once), seconds for one attempt, and until a notice is given up; `quiet`: when it is told only of
    what is critical."""

    name: str
    notifier: Any
    kinds: tuple[str, ...] = ()
    min_severity: Literal["warning", "critical"] = "warning"
    repeat: float = 0.0
    timeout: float = 20.0
    give_up_after: float = 86_400.0
    quiet: QuietHours | None = None

    def wants(self, kind: str, severity: str) -> bool:
        """Return whether it is told of such an alert."""
        return (not self.kinds or kind in self.kinds) and (severity == "critical" or self.min_severity == "warning")
