"""Changes of durable state that wait until a cycle has taken the perceptions before them, and their way to the store.

A cursor, the row of a sensor, a series of the pipeline may be written only with the cycle that holds the perceptions
behind the change: after a crash the same perceptions come again, or never. This is the one account of such changes.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

from spar.clock import Clock, ended
from spar.errors import PhaseTimeoutError, TooLargeError
from spar.ports.rows import changed, rows_of
from spar.protocols import Store
from spar.records.journal import RowChange

T = TypeVar("T")
#: The keys of single values among the changes of a part: the cursor and the missed ticks of a sensor.
CURSOR: Final = "cursor"
MISSED: Final = "missed"
#: Bound of a row with its key.
MOST_BYTES = 1 << 16
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


class _Passing:
    """Store of a part without one: what it holds lasts as long as the process."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    async def load(self, key: str) -> Any:
        return self._values.get(key)

    async def save(self, key: str, value: Any) -> None:
        self._values[key] = value


class Ledger(Unconfirmed):
    """Changes of one part, and the store of its rows and single values. Implements `spar.protocols.SensorRows`.

    Args: owner: the owner of the rows in the store, with the name of its part: `sensor:AGENT:NAME`; store: None: the
    state lasts as long as the process; timeout: seconds that the store may take; tell: publishes an error of the
    store, with what follows.
    """

    __slots__ = ("_clock", "_owner", "_rows", "_store", "_tell", "_timeout")

    def __init__(self, owner: str, store: Store | None, clock: Clock, timeout: float,
                 tell: Callable[[Exception, str], None]) -> None:  # fmt: skip
        super().__init__()
        self._owner, self._clock, self._timeout, self._tell = owner, clock, timeout, tell
        self._store: Any = _Passing() if store is None else store
        self._rows: Any = rows_of(self._store)

    def keep(self, key: str, value: Any) -> None:
        """Write a row. It may be called from any thread.

        Raises: TooLargeError for a row of more than 64 KiB; TypeError, ValueError for a value that is not JSON-able.
        """
        if len(key) + len(json.dumps(value)) > MOST_BYTES:
            sentence = f"row {key!r:.100} of {self._owner!r} is larger than {MOST_BYTES} bytes; keep less of it"
            raise TooLargeError(sentence)
        self.hold(RowChange(self._owner, key, value))

    def drop(self, key: str) -> None:
        """Delete a row. It may be called from any thread."""
        self.hold(RowChange(self._owner, key, is_dropped=True))

    async def list(self) -> Mapping[str, Any]:
        """Return all rows by key, with the changes that are not written yet. Raises: the errors of the store."""
        pending = self.pending(self._owner)
        return changed(dict(await self._rows.rows(self._owner)), pending)

    async def load(self, name: str) -> Any:
        """Return a single value, None for one that was never saved. Raises: the errors of the store."""
        return await self._store.load(self._key_of(name))

    def row_changes(self) -> Sequence[RowChange]:
        """Return the changes of rows to write now, in order, and forget them: the caller must write them."""
        return self.take(self._owner)

    def values(self) -> dict[str, Any]:
        """Return the single values to save now, by key, and forget them: the caller must save them."""
        return {self._key_of(change.key): change.value for change in self.take("")}

    async def save(self) -> None:
        """Save what cycles have confirmed: the missed ticks, the rows, and then the cursor, since a later cursor alone
        would lose them.

        A failure is published, and the next call tries again.
        """
        values = {change.key: [change] for change in self.take("")}
        left = [part for part in (values.get(MISSED), self.row_changes(), values.get(CURSOR)) if part]
        try:
            while left:
                if not await self.in_time(self._write(left[0]), f"saving {self._key_of(left[0][0].key)!r}"):
                    break
                del left[0]
        finally:
            self.put_back(chain.from_iterable(left))

    async def _write(self, part: Sequence[RowChange]) -> bool:
        if part[0].owner:
            await self._rows.change(part)
        else:
            await self._store.save(self._key_of(part[0].key), part[0].value)
        return True

    async def in_time(self, work: Coroutine[Any, Any, T], doing: str) -> T | None:
        """Return the result of the store; None after a failure, which is published."""
        task = asyncio.ensure_future(work)
        try:
            if not await ended(task, self._timeout, self._clock):
                task.cancel()
                raise PhaseTimeoutError(f"{doing} took longer than {self._timeout:g} s")
            return task.result()
        except Exception as error:
            self._tell(error, "retry")
            return None

    def _key_of(self, name: str) -> str:
        return f"{name}:{self._owner.partition(':')[2]}" if name in (CURSOR, MISSED) else self._owner


def _merge(changes: _Changes, newer: _Changes) -> None:
    """Add newer changes; one of the same row takes the place of the older one, behind all others."""
    for key, change in newer.items():
        changes.pop(key, None)
        changes[key] = change
