"""Rates of senders: a sender that writes too often gets one answer, and is then not heard until it has been quiet.

So two agents that answer each other stop, even if neither marks its mails as automatic.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Final, Literal

from spar.data.bounded import BoundedDict
from spar.protocols import ModuleRows

#: Time in which mails are counted, and for which a stopped sender has to be quiet.
WINDOW: Final = timedelta(hours=1)
#: Bound of the senders whose mails are counted.
MOST_SENDERS: Final = 1000
_PREFIX: Final = "stop/"


class SenderRates:
    """Counts of the mails of each sender within an hour. Args: most: bound of a sender's mails; rows: where stops are
    stored."""

    def __init__(self, most: int, rows: ModuleRows | None) -> None:
        self._most, self._rows = most, rows
        #: The mails of each sender: their ids, and when each came.
        self._mails: BoundedDict[str, deque[tuple[str, datetime]]] = BoundedDict(MOST_SENDERS)
        #: The mail of each stopped sender for which it is told of the stop.
        self._told_of: dict[str, str] = {}
        self._until: dict[str, datetime] = {}

    async def open(self) -> None:
        """Load the stops of an earlier process. Raises: the errors of the store."""
        rows = {} if self._rows is None else await self._rows.list()
        self._until = {
            key.removeprefix(_PREFIX): datetime.fromisoformat(value)
            for key, value in rows.items() if key.startswith(_PREFIX)
        }  # fmt: skip

    @property
    def stopped(self) -> tuple[str, ...]:
        """Return the senders that are stopped now."""
        return tuple(self._until)

    def count(self, sender: str, mail: str, now: datetime) -> Literal["heard", "tell", "stopped"]:
        """Count a mail; return whether it is heard, its sender is to be told of the stop, or is stopped already.

        A mail that is offered again counts once, and gets the same answer. Args: mail: its id.
        """
        self._forget(now)
        if sender in self._until:
            if self._told_of.get(sender) == mail:
                return "tell"
            self._stop(sender, now)
            return "stopped"
        mails = self._mails.get(sender)
        if mails is None:
            mails = self._mails[sender] = deque(maxlen=self._most)
        if any(known == mail for known, _ in mails):
            return "heard"
        if len(mails) == self._most and now - mails[0][1] < WINDOW:
            self._told_of[sender] = mail
            self._stop(sender, now)
            return "tell"
        mails.append((mail, now))
        return "heard"

    def _stop(self, sender: str, now: datetime) -> None:
        self._until[sender] = now + WINDOW
        self._mails.pop(sender, None)
        if self._rows is not None:
            self._rows.keep(_PREFIX + sender, self._until[sender].isoformat())

    def _forget(self, now: datetime) -> None:
        for sender in [sender for sender, until in self._until.items() if until <= now]:
            del self._until[sender]
            self._told_of.pop(sender, None)
            if self._rows is not None:
                self._rows.drop(_PREFIX + sender)
