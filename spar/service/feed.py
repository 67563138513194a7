"""Feed of live events: a bounded buffer of the newest ones, which readers read from any sequence number on.

The feed subscribes to the bus when the first reader comes, and unsubscribes `LINGER` seconds after the last has gone:
an agent without readers has no costs. A reader that was too slow or away too long gets a `Gap` event with the number of
events that it missed. The feed never waits for readers.

`seq` grows strictly, also over restarts of the process, and fits into a double: it begins at the wall time in units of
2^-21 seconds, and no process publishes events faster. All code here runs in the agent's event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from spar import events
from spar.bus.bus import Events
from spar.bus.subscriptions import Subscription
from spar.clock import Clock, Timer
from spar.data.json_safe import size_of
from spar.events import AssistantDelta, Event, LoopCompleted, LoopStarted
from spar.events.table import LiveEvent, data_of

#: Bounds of the buffer (events, bytes), and what remains of it after the oldest events were dropped.
EVENTS, BYTES = 10_000, 16 << 20
EVENTS_LEFT, BYTES_LEFT = 9_000, 14 << 20
#: Seconds for which events are buffered without readers, for clients that reconnect.
LINGER = 60.0
#: Events that one read returns at most; characters up to which pieces of an answer are merged.
AT_ONCE, TOGETHER = 200, 16_000
#: Readers that an event wakes at once, and the seconds after which it wakes as many more: a cycle in which it happens
#: is not held up by all of them.
WOKEN, THEN = 4, 0.002
#: Bytes of an event beside its data.
_OVERHEAD = 300
#: Running cycles whose session is remembered.
_CYCLES = 20_000


class Feed:
    """The live events of one agent.

    Args:
        cycles: Returns the id and the session of each running cycle.
        session_of: Returns the session of a run, "" for an unknown run.
    """

    def __init__(self, events: Events, clock: Clock, cycles: Callable[[], Iterable[tuple[str, str]]],
                 session_of: Callable[[str], str]) -> None:  # fmt: skip
        self._events, self._clock, self._cycles, self._session_of = events, clock, cycles, session_of
        #: The number of the last event, of the last one that is no longer buffered, and of the last one before the
        #: feed subscribed: how many events there were up to `silent_to` is unknown.
        self.seq = self.lost = self.silent_to = int(clock.now().timestamp() * (1 << 21))
        self._entries: list[tuple[type[Event], LiveEvent, int]] = []
        self._size = self._readers = 0
        self._sessions: dict[str, str] = {}  # by running cycle
        self._subscription: Subscription | None = None
        self._ending: Timer | None = None
        self._waiting = deque[asyncio.Future[None]]()
        self._waking: Timer | None = None

    def read(self, after: int | None, kinds: frozenset[type[Event]], session: str | None) -> FeedReader:
        """Return a reader of events, which must be closed.

        Args:
            after: The number of the last event that the client has; None: only new events.
            kinds: Only events of these classes; empty: all.
            session: Only events of this session; "": only those of no session; None: all.
        """
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._subscription is None:
            self._sessions = dict(self._cycles())
            self._subscription = self._events.connect(Event, self._on_event, only_keeps=True)
        self._readers += 1
        return FeedReader(self, self.seq if after is None else after, kinds, session)

    def leave(self) -> None:
        """Note that a reader has gone; after the last one the feed ends in `LINGER` seconds."""
        self._readers -= 1
        if not self._readers:
            self._ending = self._clock.call_at(self._clock.monotonic() + LINGER, self._end)

    def gap(self, after: int) -> LiveEvent | None:
        """Count the events after a number that are no longer buffered, and return the `Gap` event for them.

        Returns: None if all of them are buffered.
        """
        if self.lost <= after <= self.seq:
            return None
        missed = self.lost - after if self.silent_to <= after < self.lost else None
        self._events.gaps, self._events.dropped = self._events.gaps + 1, self._events.dropped + (missed or 0)
        return LiveEvent(self.lost, "Gap", self._clock.now(), self._events.agent, "", "", "", {"missed": missed})

    def since(self, after: int) -> Iterator[tuple[type[Event], LiveEvent]]:
        """Yield the buffered events after a number, which must not be lost; no event may be added meanwhile."""
        for index in range(len(self._entries) - (self.seq - after), len(self._entries)):
            kind, live, _ = self._entries[index]
            yield kind, live

    def _on_event(self, event: Any) -> None:
        """Buffer an event of the bus, with the session that it belongs to."""
        kind = type(event)
        run_id, cycle_id, session = (_text_field(event, name) for name in ("run_id", "cycle_id", "session"))
        if kind is LoopStarted and len(self._sessions) < _CYCLES:
            self._sessions[cycle_id] = session
        elif kind is LoopCompleted:
            self._sessions.pop(cycle_id, None)
        elif not session:
            session = (run_id and self._session_of(run_id)) or self._sessions.get(cycle_id, "")
        try:
            data = data_of(event)
        except Exception as error:  # an event class of a user; the event is reported without its data
            data = {"untold": f"{type(error).__name__}: {error!s:.200}"}
        self.seq += 1
        size = size_of(data) + _OVERHEAD
        live = LiveEvent(self.seq, kind.__name__, event.at, event.agent, session, cycle_id, run_id, data)
        self._entries.append((kind, live, size))
        self._size += size
        if len(self._entries) > EVENTS or self._size > BYTES:
            self._drop()
        if self._waiting and self._waking is None:
            self._wake()

    async def news(self, reader: FeedReader) -> None:
        """Wait until there is an event after those that a reader has seen, or it is closed."""
        reader.waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(reader.waiter)
        await reader.waiter

    def _wake(self) -> None:
        """Wake the readers that have waited longest; more of them later."""
        self._waking, woken = None, 0
        while self._waiting and woken < WOKEN:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                woken += 1
        if self._waiting:
            self._waking = self._clock.call_at(self._clock.monotonic() + THEN, self._wake)

    def _drop(self) -> None:
        """Drop the oldest events until the buffer is well below its bounds; the last event always stays."""
        number = 0
        for _, _, size in islice(self._entries, len(self._entries) - 1):
            if len(self._entries) - number <= EVENTS_LEFT and self._size <= BYTES_LEFT:
                break
            self._size -= size
            number += 1
        del self._entries[:number]
        self.lost += number

    def _end(self) -> None:
        """Unsubscribe from the bus and empty the buffer."""
        self._ending = None
        if self._subscription is not None and not self._readers:
            self._subscription()
            self._subscription = None
            self._entries, self._size, self._sessions = [], 0, {}
            self.seq += 1  # stands for the events that are published from now on without being buffered
            self.lost = self.silent_to = self.seq


class FeedReader:
    """Reader of live events.

    Attributes:
        seen: The number up to which its client has received all events that it wants. Readable from any thread.
    """

    def __init__(self, feed: Feed, after: int, kinds: frozenset[type[Event]], session: str | None) -> None:
        self._feed, self.seen, self._seq, self._kinds, self._session = feed, after, after, kinds, session
        self._is_open = True
        #: Is done when it is to look again.
        self.waiter: asyncio.Future[None] | None = None

    async def some(self) -> list[LiveEvent]:
        """Wait for the next events and return them; an empty list once the reader is closed.

        Cancelling it loses no events.
        """
        while self._is_open:
            batch = [] if (gap := self._feed.gap(self._seq)) is None else [gap]
            if gap is not None:
                self._seq = gap.seq
            for kind, live in self._feed.since(self._seq):
                if self._wants(kind, live):
                    if len(batch) >= AT_ONCE:
                        break
                    _add(batch, live)
                self._seq = live.seq
            if batch:
                return batch
            self.seen = self._seq  # this call follows the delivery of all events up to here
            await self._feed.news(self)
        return []

    def close(self) -> None:
        """End the reader. Idempotent."""
        if self._is_open:
            self._is_open = False
            self._feed.leave()
            if self.waiter is not None and not self.waiter.done():
                self.waiter.set_result(None)

    def _wants(self, kind: type[Event], live: LiveEvent) -> bool:
        return (not self._kinds or kind in self._kinds) and (self._session is None or live.session == self._session)


def kinds_of(names: frozenset[str]) -> frozenset[type[Event]]:
    """Return the event classes of these names and all their subclasses. Raises: ValueError for an unknown name."""
    classes = [getattr(events, name) for name in events.__all__]
    known = {kind.__name__: kind for kind in classes if kind is not Event}
    for name in sorted(names):
        if name not in known:
            raise ValueError(f"type = {name[:40]!r}: no event has this name; known: {', '.join(sorted(known))}")
    bases = tuple(known[name] for name in names)
    return frozenset(kind for kind in known.values() if issubclass(kind, bases))


def _add(batch: list[LiveEvent], live: LiveEvent) -> None:
    """Add an event to a batch; a piece of an answer is merged into the piece before it."""
    last = batch[-1] if batch else None
    if last is not None and live.type == last.type == AssistantDelta.__name__ and live.run_id == last.run_id:
        before, piece = last.data, live.data
        if not (piece["reset"] or before["ends"]) and len(before["text"]) + len(piece["text"]) <= TOGETHER:
            data = {**before, "text": before["text"] + piece["text"], "ends": piece["ends"]}
            batch[-1] = msgspec.structs.replace(last, seq=live.seq, at=live.at, data=data)
            return
    batch.append(live)


def _text_field(event: Any, name: str) -> str:
    """Return a text field of an event, "" if the event has no such field or it is None."""
    return getattr(event, name) or "" if name in type(event).__struct_fields__ else ""
