"""Rates of senders: whoever writes too often is told so once, and not listened to until it has been quiet.

So two agents that answer each other come to an end, also where neither says of its mails that they are automatic.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Final, Literal

from spar.data.bounded import BoundedDict
from spar.protocols import ModuleRows

#: The time in which mails are counted, and for which a sender has to be quiet.
WINDOW: Final = timedelta(hours=1)
#: Senders that are known at once.
MOST_SENDERS: Final = 1000
_PREFIX: Final = "stop/"


class SenderRates:
    """Counts of the mails of each sender within an hour. Args: most: how many are heard; rows: where a stop is kept."""

    def __init__(self, most: int, rows: ModuleRows | None) -> None:
        self._most, self._rows = most, rows
        self._times: BoundedDict[str, deque[datetime]] = BoundedDict(MOST_SENDERS)
        self._until: dict[str, datetime] = {}

    async def open(self) -> None:
        """Read the stops that an earlier process has made. Raises: what the store raises."""
        kept = {} if self._rows is None else await self._rows.list()
        self._until = {
            key.removeprefix(_PREFIX): datetime.fromisoformat(value)
            for key, value in kept.items() if key.startswith(_PREFIX)
        }  # fmt: skip

    @property
    def stopped(self) -> tuple[str, ...]:
        """Return the senders that are not listened to now, as far as is known."""
        return tuple(self._until)

    def count(self, sender: str, now: datetime) -> Literal["heard", "tell", "stopped"]:
        """Count a mail: it is heard, its sender is told that it is stopped, or it is stopped already."""
        self._forget(now)
        if sender in self._until:
            self._stop(sender, now)
            return "stopped"
        times = self._times.get(sender)
        if times is None:
            times = self._times[sender] = deque(maxlen=self._most)
        if len(times) == self._most and now - times[0] < WINDOW:
            self._stop(sender, now)
            return "tell"
        times.append(now)
        return "heard"

    def _stop(self, sender: str, now: datetime) -> None:
        self._until[sender] = now + WINDOW
        self._times.pop(sender, None)
        if self._rows is not None:
            self._rows.keep(_PREFIX + sender, self._until[sender].isoformat())

    def _forget(self, now: datetime) -> None:
        for sender in [sender for sender, until in self._until.items() if until <= now]:
            del self._until[sender]
            if self._rows is not None:
                self._rows.drop(_PREFIX + sender)
