"""Changes of durable state that wait until a cycle has taken the perceptions before them.

A cursor, the row of a sensor, a series of the pipeline may be written only with the cycle that holds the perceptions
behind the change: after a crash the same perceptions come again, or never. This is the one account of such changes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from spar.records.journal import RowChange

_Changes = dict[tuple[str, str], RowChange]


class Unconfirmed:
    """Changes of the state of one part, of each row the last one. It may be used from any thread.

    `next` is the number of the next perception. `hold` keeps a change until `confirm` says that all perceptions before
    that number were taken or dropped; a change amid a poll waits for the perceptions that the poll returns. `take`
    returns the confirmed changes to the caller that writes them.
    """

    __slots__ = ("_confirmed", "_held", "_lock", "_of_poll", "next")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: deque[tuple[int, _Changes]] = deque()
        self._of_poll: _Changes | None = None
        self._confirmed: _Changes = {}
        self.next = 0

    @property
    def has_any(self) -> bool:
        """Return whether a change waits to be confirmed or written."""
        return bool(self._held or self._confirmed or self._of_poll)

    @property
    def steps(self) -> int:
        """Return the number of confirmations that the held changes wait for."""
        return len(self._held)

    def add(self, *changes: RowChange) -> None:
        """Add changes that need no confirmation."""
        with self._lock:
            _merge(self._confirmed, {(change.owner, change.key): change for change in changes})

    def hold(self, change: RowChange) -> None:
        """Add a change that belongs to the perceptions so far, or to those of the current poll."""
        with self._lock:
            changes = {(change.owner, change.key): change}
            if self._of_poll is None:
                self._hold(changes)
            else:
                _merge(self._of_poll, changes)

    def begin_poll(self) -> None:
        """Note that the following changes belong to the perceptions that the poll will return."""
        with self._lock:
            if self._of_poll is None:
                self._of_poll = {}

    def end_poll(self) -> None:
        """Note that the perceptions of the poll have their numbers."""
        with self._lock:
            if of_poll := self._of_poll:
                self._hold(of_poll)
            self._of_poll = None

    def confirm(self, oldest: int) -> None:
        """Note that all perceptions before this number were taken or dropped."""
        if not self._held:  # the usual case, in each cycle
            return
        with self._lock:
            while self._held and self._held[0][0] <= oldest:
                _merge(self._confirmed, self._held.popleft()[1])

    def join(self, waiting: Iterable[int]) -> None:
        """Join the changes between which no perception waits, since they are confirmed together.

        Args: waiting: the numbers of the waiting perceptions, ascending.
        """
        with self._lock:
            numbers, joined, number = iter(waiting), deque[tuple[int, _Changes]](), -1
            for at, changes in self._held:
                while number < at:
                    number = next(numbers, self.next)
                if joined and joined[-1][0] == number:
                    _merge(joined[-1][1], changes)
                else:
                    joined.append((number, changes))
            self._held = joined

    def take(self, owner: str) -> list[RowChange]:
        """Return the confirmed changes of an owner's rows in their order, and forget them: the caller must write
        them."""
        if not self._confirmed:
            return []
        with self._lock:
            changes = [change for change in self._confirmed.values() if change.owner == owner]
            for change in changes:
                del self._confirmed[owner, change.key]
        return changes

    def put_back(self, changes: Iterable[RowChange]) -> None:
        """Put changes back that could not be written, before those that came since."""
        with self._lock:
            newer = self._confirmed
            self._confirmed = {(change.owner, change.key): change for change in changes}
            _merge(self._confirmed, newer)

    def pending(self, owner: str) -> list[RowChange]:
        """Return the changes of an owner's rows that were not taken, in their order."""
        with self._lock:
            groups = [self._confirmed, *(changes for _, changes in self._held), self._of_poll or {}]
        return [change for changes in groups for change in list(changes.values()) if change.owner == owner]

    def _hold(self, changes: _Changes) -> None:
        if self._held and self._held[-1][0] == self.next:
            _merge(self._held[-1][1], changes)
        else:
            self._held.append((self.next, changes))


def _merge(changes: _Changes, newer: _Changes) -> None:
    """Add newer changes; one of the same row takes the place of the older one, behind all others."""
    for key, change in newer.items():
        changes.pop(key, None)
        changes[key] = change
