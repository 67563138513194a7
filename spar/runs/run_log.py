"""The log of each run, a stream that can be read again: `agent.events.run(run_id, after=seq)`.

Of a run the newest events are kept in memory, numbered, until they are too many; of runs that have ended, the last
thousand. Whoever reads gets what is kept and then what comes, up to the terminal event, which every run has once and
last; a reader is told by a `gap` what is not kept any more, and pieces of an answer that it was too slow for come as
one. Nothing here waits for readers. While no run is open nobody is asked to say anything.

`seq` grows strictly within a run, also over processes: the number of the process (the memory's epoch) stands in its
upper bits, so that a reader who went on from an earlier one misses nothing of this one. What a run did in an earlier
process is not kept: the transcript and the tape are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from spar.bus.bus import Events
from spar.bus.subscriptions import Subscription
from spar.clock import Clock
from spar.data.json_safe import plain, size_of
from spar.events import AssistantDelta, CallEvent, CompactionCompleted, CompactionStarted, ReasoningDelta
from spar.loop.wake import Signal
from spar.runs.run_events import ANSWER, TOLD, RunEvent, Stream, terminal

if TYPE_CHECKING:
    from spar.runs.run import RunStatus

#: What is kept of one run at most, events and about how many bytes of them, and what is left when some are dropped.
EVENTS, BYTES = 2_000, 1 << 20
EVENTS_LEFT, BYTES_LEFT = 1_900, 1_000_000
#: Runs that have ended, and the bytes of all of theirs.
ENDED, ENDED_BYTES = 1_000, 32 << 20
#: Pieces and characters of an answer that stand together.
PIECES, TOGETHER = 200, 4_000
#: Events that a reader is handed at once.
AT_ONCE = 100
_LAST: Final = (1 << 32) - 1
_OVERHEAD, _PIECE_OVERHEAD = 100, 60  # bytes of an event beside what it says, and of a piece of an answer
#: What the bus tells of a run; of the rest the run itself tells its log.
_HEARD = (AssistantDelta, ReasoningDelta, CompactionStarted, CompactionCompleted, CallEvent)


class _Kept(Struct):
    """An event as it is kept, or pieces of an answer that follow one another, each with a number of its own."""

    last: int
    stream: Stream
    at: datetime
    data: dict[str, Any]
    size: int
    pieces: list[str] | None = None

    def shown(self, run_id: str, after: int) -> RunEvent:
        """Return what of it a reader has not seen who has seen all up to `after`."""
        data = self.data
        if self.pieces is not None:
            seen = max(0, after - (self.last - len(self.pieces)))
            text = "".join(self.pieces[seen:] if seen else self.pieces)
            data = {**data, "text": text, "reset": not seen and data["reset"]}
        return RunEvent(run_id, self.last, self.stream, self.at, data)


_last = attrgetter("last")


class RunLog:
    """The log of one run. `lost` is the last number up to which something is missing, None where nothing is.

    What an earlier process wrote of its answer is void: it is written anew.
    """

    __slots__ = ("_base", "_is_resumed", "_is_whole", "_kept", "_news", "is_ended", "lost", "run_id", "seq", "size")

    def __init__(self, run_id: str, base: int, *, is_whole: bool) -> None:
        self.run_id, self.seq, self._base, self._is_whole = run_id, base, base, is_whole
        self._is_resumed = not is_whole  # and nothing has been written in this process
        self.lost: int | None = None if is_whole else base
        self._kept: list[_Kept] = []
        self.size, self.is_ended = 0, False
        self._news: Signal | None = None  # most runs are read by nobody

    def add(self, stream: Stream, at: datetime, data: dict[str, Any], size: int = 0) -> None:
        """Add an event. Args: size: about how many bytes it says."""
        self.seq += 1
        self._keep(_Kept(self.seq, stream, at, data, size + _OVERHEAD))

    def add_text(self, at: datetime, piece: str, *, reset: bool) -> None:
        """Add a piece of the answer."""
        reset, self._is_resumed = reset or self._is_resumed, False
        self._add_piece("assistant", at, piece, {"reset": reset})

    def add_thought(self, at: datetime, piece: str, request: int, *, reset: bool) -> None:
        """Add a piece of what the model thinks in one request of the run."""
        self._add_piece("reasoning", at, piece, {"reset": reset, "request": request})

    def _add_piece(self, stream: Stream, at: datetime, piece: str, data: dict[str, Any]) -> None:
        """Add a piece: to those before it, if they are few and it does not begin anew."""
        self.seq += 1
        size = len(piece) + _PIECE_OVERHEAD
        last = self._kept[-1] if self._kept else None
        if last is not None and (pieces := last.pieces) is not None and not data["reset"] and (
            last.stream == stream and last.data.get("request") == data.get("request")
            and len(pieces) < PIECES and last.size < TOGETHER + len(pieces) * _PIECE_OVERHEAD
        ):  # fmt: skip
            pieces.append(piece)
            last.last, last.size = self.seq, last.size + size
            self.size += size
            self.wake()
        else:
            self._keep(_Kept(self.seq, stream, at, data, size + _OVERHEAD, [piece]))

    def _keep(self, kept: _Kept) -> None:
        self._kept.append(kept)
        self.size += kept.size
        if len(self._kept) > EVENTS or self.size > BYTES:
            self._drop()
        self.wake()

    def wake(self) -> None:
        """Have all readers look: something was added, or the reading is to end."""
        if self._news is not None:
            self._news.set()

    async def news(self) -> None:
        """Return when something was added, or the reading is to end."""
        if self._news is None:
            self._news = Signal()
        await self._news.wait()

    def _drop(self) -> None:
        """Make room for some time: the oldest go, never the last."""
        number = 0
        for kept in self._kept[:-1]:
            if len(self._kept) - number <= EVENTS_LEFT and self.size <= BYTES_LEFT:
                break
            self.size -= kept.size
            self.lost = kept.last
            number += 1
        del self._kept[:number]

    def since(self, after: int) -> list[RunEvent]:
        """The next events for a reader who has seen all up to `after`."""
        found: list[RunEvent] = []
        if self.lost is not None and after < self.lost:
            is_counted = self._is_whole or after >= self._base
            missed = self.lost - max(after, self._base) if is_counted else None
            at = self._kept[0].at if self._kept else None
            if at is None:
                return found  # it is told with the first event that comes
            found.append(RunEvent(self.run_id, self.lost, "gap", at, {"missed": missed}))
            after = self.lost
        first = bisect_right(self._kept, after, key=_last)
        found += [kept.shown(self.run_id, after) for kept in islice(self._kept, first, first + AT_ONCE)]
        return found


class RunStream:
    """An async iterator over the events of one run; ends after the terminal one, or when the agent stops."""

    __slots__ = ("_is_over", "_log", "_logs", "_ready", "_turn", "run_id", "seq")

    def __init__(self, logs: RunLogs, run_id: str, after: int) -> None:
        if isinstance(after, bool) or not isinstance(after, int) or after < 0:
            raise ValueError(f"after must be the seq of an event, or 0 for all, found {after!r}")
        #: `seq` is that of the last event that was handed out.
        self.run_id, self.seq = run_id, after
        self._logs, self._turn = logs, logs.turn
        self._log: RunLog | None = None
        self._ready: deque[RunEvent] = deque()
        self._is_over = False

    def __aiter__(self) -> RunStream:
        return self

    async def __anext__(self) -> RunEvent:
        """Raises: LookupError for a run that is not known."""
        if not self._ready:
            self._ready.extend(await self.some())
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def some(self) -> list[RunEvent]:
        """The next events, as soon as there are any; none when it has ended. Cancelling it loses nothing.

        Raises: LookupError for a run that is not known.
        """
        if self._log is None and not self._is_over:
            found = await self._logs.find(self.run_id)
            if isinstance(found, RunEvent):
                self._is_over = True
                return [found] if found.seq > self.seq else []
            self._log = found
        while not self._is_over and (log := self._log) is not None:
            if events := log.since(self.seq):
                self.seq = events[-1].seq
                self._is_over = log.is_ended and self.seq == log.seq
                return events
            self._is_over = log.is_ended or self._turn != self._logs.turn
            if not self._is_over:
                await log.news()
        return []


class KnownRuns(Protocol):
    """The runs of an agent, as they are asked what became of one."""

    async def wait(self, run_id: str, timeout: float | None) -> RunStatus:
        """Return the status of a run, after so many seconds at most. Raises: LookupError for one that is not known."""
        ...


class RunLogs:
    """The logs of one agent's runs, which are read by `events.run`.

    Args: runs: know what became of a run of which nothing is kept here.
    """

    __slots__ = ("_base", "_clock", "_ended", "_ended_size", "_events", "_open", "_runs", "_subscriptions",
                 "turn")  # fmt: skip

    def __init__(self, events: Events, clock: Clock, runs: KnownRuns) -> None:
        self._events, self._clock, self._runs = events, clock, runs
        self._open: dict[str, RunLog] = {}
        self._ended: dict[str, RunLog] = {}
        self._ended_size = self._base = 0  # where numbers begin
        self._subscriptions: tuple[Subscription, ...] = ()
        self.turn = 0  # how often reading was ended

    def follow(self, run_id: str, after: int = 0) -> RunStream:
        """The events of a run whose `seq` is above `after`. Raises: ValueError for one that is no number."""
        return RunStream(self, run_id, after)

    def count_process(self, number: int) -> None:
        """Number from now on what this process adds, which is that many-th to open the memory."""
        self._base = max(self._base, number << 32)

    def begin(self, run_id: str, session: str, *, is_new: bool = True) -> RunLog:
        """A run was accepted, here or by an earlier process: from now on its events are kept."""
        if (log := self._open.get(run_id)) is not None:  # somebody read it before it was handed out again
            return log
        log = self._open[run_id] = RunLog(run_id, self._base, is_whole=is_new)
        if not self._subscriptions:
            self._subscriptions = tuple(self._events.connect(kind, self._hear, only_keeps=True) for kind in _HEARD)
        if is_new:
            log.add("lifecycle", self._clock.now(), {"phase": "accepted", "session": session})
        return log

    def end(self, status: RunStatus, at: datetime) -> None:
        """A run has ended: its terminal event is the last one."""
        log = self._ended[status.run_id] = self._open.pop(status.run_id)
        data = terminal(status)
        log.is_ended = True
        log.add("lifecycle", at, data, size_of(data["output"]) + len(data["error"]) + len(data["reply"] or ""))
        self._ended_size += log.size
        while len(self._ended) > ENDED or (self._ended_size > ENDED_BYTES and len(self._ended) > 1):
            self._ended_size -= self._ended.pop(next(iter(self._ended))).size

    def forget(self, run_id: str) -> None:
        """Keep nothing of a run that has ended."""
        if (log := self._ended.pop(run_id, None)) is not None:
            self._ended_size -= log.size

    def close(self) -> None:
        """End all reading; the runs may go on at the next start."""
        self.turn += 1
        for log in self._open.values():
            log.wake()

    async def find(self, run_id: str) -> RunLog | RunEvent:
        """Return what is kept of a run; of one that ended before, or in an earlier process, its terminal event.

        Raises: LookupError for a run that is not known.
        """
        if (log := self._known(run_id)) is not None:
            return log
        status = await self._runs.wait(run_id, 0.0)
        if (log := self._known(run_id)) is not None:  # time has passed
            return log
        if status.status == "timeout":  # an earlier process accepted it
            return self.begin(run_id, "", is_new=False)
        at = status.ended_at or self._clock.now()
        return RunEvent(run_id, self._base + _LAST, "lifecycle", at, terminal(status))

    def _known(self, run_id: str) -> RunLog | None:
        return self._open.get(run_id) or self._ended.get(run_id)

    def _hear(self, event: Any) -> None:
        log = self._open.get(event.run_id)
        if log is None:
            if not self._open:  # listening begins with the next run; there is often one at once
                for unsubscribe in self._subscriptions:
                    unsubscribe()
                self._subscriptions = ()
            return
        kind = type(event)
        if kind is AssistantDelta:
            if event.text or event.reset:
                log.add_text(event.at, str(plain(event.text, ANSWER)), reset=bool(event.reset))
        elif kind is ReasoningDelta:
            log.add_thought(event.at, str(plain(event.text, ANSWER)), event.request, reset=bool(event.reset))
        elif (told := TOLD.get(kind)) is not None:
            stream, tell = told
            data = tell(event)
            log.add(stream, event.at, data, size_of(data))
