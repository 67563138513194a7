"""Port of a notifier of alerts: the notice that it delivers, and its settings.

Any `spar.protocols.Notifier` is enough; one with `deliver` gets the whole notice.
"""

from __future__ import annotations

from datetime import datetime, time
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from spar.errors import ContractError


class Notice(Struct, frozen=True):
    """Message to people about an alert.

    `id` stays the same at each attempt, also after a restart; `alert_id` is the same for all notices of one episode. A
    `digest` stands for several notices that waited for the end of quiet hours.
    """

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
    """Notifier that gets the whole notice."""

    async def deliver(self, notice: Notice) -> None:
        """Deliver the notice; raise when it cannot have arrived. A repeated notice has the same id."""


class QuietHours(Struct, frozen=True):
    """Hours of each day, in the machine's own time zone, in which only critical alerts are sent.

    `begin` may be after `end`, which is then on the next day.
    """

    begin: time
    end: time

    @classmethod
    def parse(cls, text: str) -> QuietHours:
        """Return the hours that a text such as `22:00-07:00` states. Raises: ValueError with a sentence."""
        begin, dash, end = text.partition("-")
        try:
            hours = cls(time.fromisoformat(begin.strip()), time.fromisoformat(end.strip()))
        except ValueError:
            dash = ""
        if not dash or hours.begin == hours.end or hours.begin.tzinfo or hours.end.tzinfo:
            raise ValueError('must be two different times of day, such as "22:00-07:00"')
        return hours

    def covers(self, at: datetime) -> bool:
        """Return whether a time lies in these hours."""
        now = at.astimezone().time()
        if self.begin < self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end


class NotifierSpec(Struct, frozen=True):
    """Notifier and its settings.

    `kinds` are the kinds of alerts that it gets (none: all), `min_severity` the least severity. `repeat` is after how
    many seconds an alert is sent again (0: only once), `timeout` the seconds of one attempt, `give_up_after` the
    seconds after which a notice is given up. In `quiet` hours it gets only critical alerts. The last three are those of
    a channel.
    """

    name: str
    notifier: Any
    kinds: tuple[str, ...] = ()
    min_severity: Literal["warning", "critical"] = "warning"
    repeat: float = 0.0
    timeout: float = 20.0
    give_up_after: float = 86_400.0
    quiet: QuietHours | None = None
    max_failures: int = 5
    within: float = 60.0
    probe_after: float = 600.0

    @classmethod
    def checked(cls, name: str, notifier: Any, quiet: str = "", **terms: Any) -> NotifierSpec:
        """Return a notifier with its settings as they are written. Raises: ContractError if it cannot work."""
        from spar.ports.optional.any_part import offers  # the tables of settings load this module
        from spar.protocols import Notifier, Warns

        if not offers(notifier, Notifier):
            raise ContractError(f"{name!r} makes {notifier!r:.100}, which has no method 'notify'")
        if offers(notifier, Warns) and (warnings := list(notifier.warnings())):
            raise ContractError(f"{name!r} cannot work: {warnings[0]}")
        return cls(name, notifier, quiet=QuietHours.parse(quiet) if quiet else None, **terms)

    def wants(self, kind: str, severity: str) -> bool:
        """Return whether it gets alerts of this kind and severity."""
        return (not self.kinds or kind in self.kinds) and (severity == "critical" or self.min_severity == "warning")
