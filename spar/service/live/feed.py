"""The feed of live events: the newest ones, kept while somebody reads and handed out from any of their numbers.

Nobody listens to the bus until the first reader comes, nor once the last has been gone for `LINGER` seconds: an agent
that nobody watches pays nothing. What is kept is bounded; a reader that is too slow, or was away too long, is told by
a `Gap` how many events it has missed. Nothing here waits for readers.

`seq` grows strictly, also over processes, and fits into a double: it begins at the time of the clock in
units of 2^-21 seconds, which no process outruns. All of it runs in the agent's event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from spar.bus.bus import Events
from spar.bus.subscriptions import Subscription
from spar.clock import Clock, Timer
from spar.data.json_safe import size_of
from spar.events import AssistantDelta, Event, LoopCompleted, LoopStarted
from spar.loop.wake import Signal
from spar.service.live.told import LiveEvent, told

#: What is kept at most, events and about how many bytes of them, and what is left when some are dropped.
EVENTS, BYTES = 10_000, 16 << 20
EVENTS_LEFT, BYTES_LEFT = 9_000, 14 << 20
#: Seconds for which events are kept when nobody reads, for who comes back.
LINGER = 60.0
#: Events that a reader is handed at once; characters of an answer that stand together.
AT_ONCE, TOGETHER = 200, 16_000
#: Bytes of an event beside what it says.
_OVERHEAD = 300
#: Cycles whose session is remembered.
_CYCLES = 20_000


class Feed:
    """The live events of one agent.

    Args: cycles: returns the session of each cycle that goes on, by cycle; session_of: the session of a run, "" for
        one that is not known.
    """

    def __init__(self, events: Events, clock: Clock, cycles: Callable[[], Iterable[tuple[str, str]]],
                 session_of: Callable[[str], str]) -> None:  # fmt: skip
        self._events, self._clock, self._cycles, self._session_of = events, clock, cycles, session_of
        #: The number of the last event, and of the last one that is not kept; nobody knows how many there were up to
        #: `silent_to`, when nobody listened.
        self.seq = self.lost = self.silent_to = int(clock.now().timestamp() * (1 << 21))
        self._kept: list[tuple[type[Event], LiveEvent, int]] = []
        self._size = self._readers = 0
        self._sessions: dict[str, str] = {}  # of the cycles that go on
        self._subscription: Subscription | None = None
        self._ending: Timer | None = None
        self.news = Signal()

    @property
    def is_listening(self) -> bool:
        return self._subscription is not None

    def read(self, after: int | None, kinds: frozenset[type[Event]], session: str | None) -> FeedReader:
        """Return a reader of what comes, after the event of a number (None: from now on); it must be closed.

        Args: kinds: only these classes (none: all); session: only of this one ("": what belongs to none, None: all).
        """
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._subscription is None:
            self._sessions = dict(self._cycles())
            self._subscription = self._events.connect(Event, self._hear, only_keeps=True)
        self._readers += 1
        return FeedReader(self, self.seq if after is None else after, kinds, session)

    def leave(self) -> None:
        """A reader has gone."""
        self._readers -= 1
        if not self._readers:
            self._ending = self._clock.call_at(self._clock.monotonic() + LINGER, self._end)

    def gap(self, after: int) -> LiveEvent | None:
        """Count and return what stands for the events after a number that are not kept, None where all are."""
        if self.lost <= after <= self.seq:
            return None
        missed = self.lost - after if self.silent_to <= after < self.lost else None
        self._events.gaps, self._events.dropped = self._events.gaps + 1, self._events.dropped + (missed or 0)
        return LiveEvent(self.lost, "Gap", self._clock.now(), self._events.agent, "", "", "", {"missed": missed})

    def since(self, after: int) -> Iterator[tuple[type[Event], LiveEvent]]:
        """Yield what is kept after a number that is not lost; nothing may be added meanwhile."""
        for index in range(len(self._kept) - (self.seq - after), len(self._kept)):
            kind, live, _ = self._kept[index]
            yield kind, live

    def _hear(self, event: Any) -> None:
        kind = type(event)
        run_id, cycle_id, session = (_named(event, name) for name in ("run_id", "cycle_id", "session"))
        if kind is LoopStarted and len(self._sessions) < _CYCLES:
            self._sessions[cycle_id] = session
        elif kind is LoopCompleted:
            self._sessions.pop(cycle_id, None)
        elif not session:
            session = (run_id and self._session_of(run_id)) or self._sessions.get(cycle_id, "")
        try:
            data = told(event)
        except Exception as error:  # an event of somebody's own; that it happened is told all the same
            data = {"untold": f"{type(error).__name__}: {error!s:.200}"}
        self.seq += 1
        size = size_of(data) + _OVERHEAD
        live = LiveEvent(self.seq, kind.__name__, event.at, event.agent, session, cycle_id, run_id, data)
        self._kept.append((kind, live, size))
        self._size += size
        if len(self._kept) > EVENTS or self._size > BYTES:
            self._drop()
        self.news.set()

    def _drop(self) -> None:
        """Make room for some time: the oldest go, never the last."""
        number = 0
        for _, _, size in islice(self._kept, len(self._kept) - 1):
            if len(self._kept) - number <= EVENTS_LEFT and self._size <= BYTES_LEFT:
                break
            self._size -= size
            number += 1
        del self._kept[:number]
        self.lost += number

    def _end(self) -> None:
        """Listen no more, and keep nothing."""
        self._ending = None
        if self._subscription is not None and not self._readers:
            self._subscription()
            self._subscription = None
            self._kept, self._size, self._sessions = [], 0, {}
            self.seq += 1  # for what nobody hears from now on
            self.lost = self.silent_to = self.seq


class FeedReader:
    """A reader of live events.

    Attributes: seen: the number up to which its client has been given all that concerns it; from any thread.
    """

    def __init__(self, feed: Feed, after: int, kinds: frozenset[type[Event]], session: str | None) -> None:
        self._feed, self.seen, self._seq, self._kinds, self._session = feed, after, after, kinds, session
        self._is_open = True

    async def some(self) -> list[LiveEvent]:
        """Return the next events, as soon as there are any; none when it is closed. Cancelling it loses nothing."""
        while self._is_open:
            found = [] if (gap := self._feed.gap(self._seq)) is None else [gap]
            if gap is not None:
                self._seq = gap.seq
            for kind, live in self._feed.since(self._seq):
                if self._wants(kind, live):
                    if len(found) >= AT_ONCE:
                        break
                    _add(found, live)
                self._seq = live.seq
            if found:
                return found
            self.seen = self._seq  # it was asked again: what it was given has arrived
            await self._feed.news.wait()
        return []

    def close(self) -> None:
        """Read no more. Idempotent."""
        if self._is_open:
            self._is_open = False
            self._feed.leave()
            self._feed.news.set()

    def _wants(self, kind: type[Event], live: LiveEvent) -> bool:
        return (not self._kinds or kind in self._kinds) and (self._session is None or live.session == self._session)


def _add(found: list[LiveEvent], live: LiveEvent) -> None:
    """Add an event; a piece of an answer goes to the piece before it."""
    last = found[-1] if found else None
    if last is not None and live.type == last.type == AssistantDelta.__name__ and live.run_id == last.run_id:
        before, piece = last.data, live.data
        if not (piece["reset"] or before["ends"]) and len(before["text"]) + len(piece["text"]) <= TOGETHER:
            data = {**before, "text": before["text"] + piece["text"], "ends": piece["ends"]}
            found[-1] = msgspec.structs.replace(last, seq=live.seq, at=live.at, data=data)
            return
    found.append(live)


def _named(event: Any, name: str) -> str:
    """Return a field of an event, "" where it has none or nothing is in it."""
    return getattr(event, name) or "" if name in type(event).__struct_fields__ else ""
