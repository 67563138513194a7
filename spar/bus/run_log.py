"""Logs of runs: each is an event stream that can be read again: `agent.events.run(run_id, after=seq)`.

The newest events of each open run are kept in memory, numbered; so are those of the last thousand ended runs. A reader
gets the kept events and then new ones, up to the terminal event, which every run has exactly once, as its last. A `gap`
event tells a reader which numbers are not kept any more. Pieces of an answer that a slow reader has not read yet come
joined. Nothing waits for readers. While no run is open, nothing is subscribed to on the bus.

`seq` grows strictly within a run, also over processes: its upper bits are the number of the process (the memory's
epoch), so that a reader who continues from an earlier process misses no event of this one. The events of earlier
processes are not kept; the transcript and the cycle records are.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from spar.bus.subscriptions import Subscription
from spar.checks import shorten
from spar.clock import Signal
from spar.data.json_safe import plain, shortened, size_of
from spar.events import CallEvent
from spar.events.table import ANSWER, ROWS, Stream, data_of

if TYPE_CHECKING:
    from spar.bus.bus import Events
    from spar.records.runs import RunStatus

#: The most events of one run, and about how many bytes; and the numbers that are left after older events are dropped.
EVENTS, BYTES = 2_000, 1 << 20
EVENTS_LEFT, BYTES_LEFT = 1_900, 1_000_000
#: The most ended runs, and the most bytes of all their logs.
ENDED, ENDED_BYTES = 1_000, 32 << 20
#: The most pieces, and characters, of an answer in one entry.
PIECES, TOGETHER = 200, 4_000
#: The most events that a reader gets at once.
AT_ONCE = 100
_LAST: Final = (1 << 32) - 1
_OVERHEAD, _PIECE_OVERHEAD = 100, 60  # bytes of an event besides its data, and of a piece of an answer
#: The bus events that a stream has; all those of calls come by their base. The run writes all other events itself.
_STREAMED = {CallEvent if issubclass(kind, CallEvent) else kind for kind, row in ROWS.items() if row.stream}


class RunEvent(Struct, frozen=True):
    """Event of a run. `data` is JSON-able; its keys depend on `stream`:

    `lifecycle`: {phase: "accepted" | "outcome" | "start"}, at the start with the `options` of the run if there are any;
    at last {phase: "end" | "error", status, error, output, …};
    `assistant`: {text, reset}, a piece of the answer (`reset`: earlier pieces are void), or {sent, route, is_answer,
    kind, part}; `reasoning`: {text, reset, request}, a piece of the model's thoughts in one of the run's requests;
    `verbose`: {line, call, tool}, a line about a call that has ended, if the run's options ask for it; `tool`: {phase,
    call, tool, …} with phase "proposed", "start", "progress", "result", "error", "skipped", "approval" or "in_doubt";
    `compaction`: {phase: "start" | "end", …}; `gap`: {missed}, how many events up to this `seq` are not kept (None:
    unknown). An output that is shortened has `truncated: true` beside it; of a call also `whole`, the reference of the
    full value, or else `cycle/call`.
    """

    run_id: str
    seq: int
    stream: Stream
    at: datetime
    data: dict[str, Any]

    @property
    def is_terminal(self) -> bool:
        """Return whether it is the last event of the run."""
        return self.stream == "lifecycle" and self.data["phase"] in ("end", "error")


def terminal(end: RunStatus) -> dict[str, Any]:
    """Return the data of a run's terminal event."""
    output, is_cut = shortened(end.output, ANSWER)
    data = {
        "phase": "end" if end.status == "ok" else "error",
        "status": end.status,
        "error": plain(end.error, ANSWER),
        "output": output,
        "reply": plain(end.reply, ANSWER),
        "silent": end.silent,
        "usage": asdict(end.usage),
    }
    if is_cut:
        data["truncated"] = True
    return data


class _Entry(Struct, gc=False):  # JSON-able: no cycle of references goes through it
    """Entry of a log: one event, or consecutive pieces of an answer, each with its own number."""

    last: int
    stream: Stream
    at: datetime
    data: dict[str, Any]
    size: int
    pieces: list[str] | None = None

    def shown(self, run_id: str, after: int) -> RunEvent:
        """Return the part of it that a reader has not seen who has seen all numbers up to `after`."""
        data = self.data
        if self.pieces is not None:
            seen_pieces = max(0, after - (self.last - len(self.pieces)))
            text = "".join(self.pieces[seen_pieces:] if seen_pieces else self.pieces)
            data = {**data, "text": text, "reset": not seen_pieces and data["reset"]}
        return RunEvent(run_id, self.last, self.stream, self.at, data)


_last = attrgetter("last")


class RunLog:
    """Log of one run. `lost` is the highest number of a missing event; None if none is missing. `has_moved` says that
    another process goes on with the run.

    Pieces of the answer from an earlier process are void, because the answer is written again.
    """

    __slots__ = ("_base", "_entries", "_is_resumed", "_is_whole", "_news", "has_moved", "is_ended", "lost", "run_id",
                 "seq", "size")  # fmt: skip

    def __init__(self, run_id: str, base: int, *, is_whole: bool) -> None:
        self.run_id, self.seq, self._base, self._is_whole = run_id, base, base, is_whole
        self._is_resumed = not is_whole  # and no text has been added in this process
        self.lost: int | None = None if is_whole else base
        self._entries: list[_Entry] = []
        self.size, self.is_ended, self.has_moved = 0, False, False
        self._news: Signal | None = None  # created by the first reader

    def add(self, stream: Stream, at: datetime, data: dict[str, Any], size: int = 0) -> None:
        """Add an event. Args: size: about how many bytes its data has."""
        self.seq += 1
        self._append(_Entry(self.seq, stream, at, data, size + _OVERHEAD))

    def add_text(self, at: datetime, piece: str, *, reset: bool) -> None:
        """Add a piece of the answer."""
        reset, self._is_resumed = reset or self._is_resumed, False
        self._add_piece("assistant", at, piece, {"reset": reset})

    def add_thought(self, at: datetime, piece: str, request: int, *, reset: bool) -> None:
        """Add a piece of the model's thoughts in one request of the run."""
        self._add_piece("reasoning", at, piece, {"reset": reset, "request": request})

    def _add_piece(self, stream: Stream, at: datetime, piece: str, data: dict[str, Any]) -> None:
        """Add a piece: to the entry before it, if that is small and the piece does not start anew."""
        self.seq += 1
        size = len(piece) + _PIECE_OVERHEAD
        last = self._entries[-1] if self._entries else None
        if last is not None and (pieces := last.pieces) is not None and not data["reset"] and (
            last.stream == stream and last.data.get("request") == data.get("request")
            and len(pieces) < PIECES and last.size < TOGETHER + len(pieces) * _PIECE_OVERHEAD
        ):  # fmt: skip
            pieces.append(piece)
            last.last, last.size = self.seq, last.size + size
            self.size += size
            self.wake()
        else:
            self._append(_Entry(self.seq, stream, at, data, size + _OVERHEAD, [piece]))

    def _append(self, entry: _Entry) -> None:
        entries = self._entries
        entries.append(entry)
        self.size += entry.size
        if self.size > BYTES or len(entries) > EVENTS:
            self._drop()
        self.wake()

    def wake(self) -> None:
        """Wake all readers, because an event was added or reading ends."""
        if self._news is not None:
            self._news.set()

    async def news(self) -> None:
        """Wait until an event is added or reading ends."""
        if self._news is None:
            self._news = Signal()
        await self._news.wait()

    def _drop(self) -> None:
        """Drop the oldest events until there is room, but never the last one."""
        number = 0
        for entry in self._entries[:-1]:
            if len(self._entries) - number <= EVENTS_LEFT and self.size <= BYTES_LEFT:
                break
            self.size -= entry.size
            self.lost = entry.last
            number += 1
        del self._entries[:number]

    def since(self, after: int) -> list[RunEvent]:
        """Return the next events for a reader who has seen all numbers up to `after`."""
        events: list[RunEvent] = []
        if self.lost is not None and after < self.lost:
            is_counted = self._is_whole or after >= self._base
            missed = self.lost - max(after, self._base) if is_counted else None
            at = self._entries[0].at if self._entries else None
            if at is None:
                return events  # the gap is reported with the next event
            events.append(RunEvent(self.run_id, self.lost, "gap", at, {"missed": missed}))
            after = self.lost
        first = bisect_right(self._entries, after, key=_last)
        events += [entry.shown(self.run_id, after) for entry in islice(self._entries, first, first + AT_ONCE)]
        return events


class RunStream:
    """Async iterator over the events of one run. It ends after the terminal event, or when the agent stops."""

    __slots__ = ("_is_over", "_log", "_logs", "_ready", "_turn", "run_id", "seq")

    def __init__(self, logs: RunLogs, run_id: str, after: int) -> None:
        if isinstance(after, bool) or not isinstance(after, int) or after < 0:
            raise ValueError(f"after must be the seq of an event, or 0 for all, found {shorten(after)}")
        #: `seq` is the number of the last returned event.
        self.run_id, self.seq = run_id, after
        self._logs, self._turn = logs, logs.turn
        self._log: RunLog | None = None
        self._ready: deque[RunEvent] = deque()
        self._is_over = False

    def __aiter__(self) -> RunStream:
        return self

    async def __anext__(self) -> RunEvent:
        """Return the next event. Raises: LookupError for an unknown run."""
        if not self._ready:
            self._ready.extend(await self.some())
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def some(self) -> list[RunEvent]:
        """Return the next events as soon as there are any; none after the end. Cancelling it loses no event.

        Raises: LookupError for an unknown run.
        """
        while not self._is_over:
            if (log := self._log) is None:
                events = await self._logs.elsewhere(self.run_id, self.seq)
                if events is None:
                    source = await self._logs.find(self.run_id)
                    if isinstance(source, RunEvent):
                        self._is_over = True
                        return [source] if source.seq > self.seq else []
                    self._log = source
                    continue
                self._is_over = bool(events) and events[-1].is_terminal
            else:
                events = log.since(self.seq)
                self._is_over = log.is_ended and (not events or events[-1].seq == log.seq)
            if events:
                self.seq = events[-1].seq
                return events
            self._is_over |= self._turn != self._logs.turn
            if log is not None and not self._is_over:
                if log.has_moved:
                    self._log = None
                else:
                    await log.news()
        return []


class RunLogs:
    """Logs of one agent's runs, read through `events.run`.

    Args: wait: returns the status of a run after at most so many seconds. Raises: LookupError for an unknown run.
    """

    __slots__ = ("_asking", "_clock", "_ended", "_ended_size", "_events", "_open", "_subscriptions", "_wait", "turn")

    def __init__(self, events: Events, wait: Callable[[str, float], Awaitable[RunStatus]]) -> None:
        self._events, self._clock, self._wait = events, events.clock, wait
        self._open: dict[str, RunLog] = {}
        self._ended: dict[str, RunLog] = {}
        self._ended_size = 0
        self._subscriptions: tuple[Subscription, ...] = ()
        self.turn = 0  # how often all reading was ended
        self._asking = set[asyncio.Task[Any]]()  # tasks that wait for events of other processes

    def follow(self, run_id: str, after: int = 0) -> RunStream:
        """Return a stream of a run's events with numbers above `after`. Raises: ValueError if `after` is no number of
        an event."""
        return RunStream(self, run_id, after)

    def begin(self, run_id: str, session: str, *, is_new: bool = True) -> RunLog:
        """Open and return the log of a run that was accepted, here or by an earlier process."""
        if (log := self._open.get(run_id)) is not None:  # a reader opened it before recovery did
            return log
        log = self._open[run_id] = RunLog(run_id, self._base_of(session), is_whole=is_new)
        if not self._subscriptions:
            connect = self._events.connect
            self._subscriptions = tuple(connect(kind, self._add_event, only_keeps=True) for kind in _STREAMED)
        if is_new:
            log.add("lifecycle", self._clock.now(), {"phase": "accepted", "session": session})
        return log

    def end(self, status: RunStatus, at: datetime) -> None:
        """Add the terminal event of a run that has ended."""
        log = self._ended[status.run_id] = self._open.pop(status.run_id)
        data = terminal(status)
        log.is_ended = True
        log.add("lifecycle", at, data, size_of(data["output"]) + len(data["error"]) + len(data["reply"] or ""))
        self._ended_size += log.size
        while len(self._ended) > ENDED or (self._ended_size > ENDED_BYTES and len(self._ended) > 1):
            self._ended_size -= self._ended.pop(next(iter(self._ended))).size

    def let_go(self, run_id: str) -> None:
        """Drop the log of a run that another process goes on with; its readers read on there."""
        if (log := self._open.pop(run_id, None)) is not None:
            log.has_moved = True
            log.wake()

    def forget(self, run_id: str) -> None:
        """Drop the log of a run that has ended."""
        if (log := self._ended.pop(run_id, None)) is not None:
            self._ended_size -= log.size

    def close(self) -> None:
        """End all reading. The runs may continue at the next start."""
        self.turn += 1
        for log in self._open.values():
            log.wake()
        for task in self._asking:
            task.cancel()

    async def elsewhere(self, run_id: str, after: int) -> list[RunEvent] | None:
        """Return the next events of a run of another process; none also when reading ends. None for any other run."""
        if self._events.others is None:
            return None
        task = asyncio.ensure_future(self._events.others.follow(run_id, after))
        self._asking.add(task)
        try:
            await asyncio.wait([task])
        finally:
            self._asking.discard(task)
            task.cancel()
        return [] if task.cancelled() else task.result()

    async def find(self, run_id: str) -> RunLog | RunEvent:
        """Return the log of a run; if there is none, its terminal event.

        Raises: LookupError for an unknown run.
        """
        if (log := self._known(run_id)) is not None:
            return log
        status = await self._wait(run_id, 0.0)
        if (log := self._known(run_id)) is not None:  # the log may have been opened during the wait
            return log
        if status.status == "timeout":  # an earlier process accepted it
            return self.begin(run_id, "", is_new=False)
        at = status.ended_at or self._clock.now()
        return RunEvent(run_id, self._base_of("") + _LAST, "lifecycle", at, terminal(status))

    def _base_of(self, session: str) -> int:
        """Return the number before the first event of a run in this process."""
        others = self._events.others
        return (self._events.process if others is None else others.number_of(session)) << 32

    def _known(self, run_id: str) -> RunLog | None:
        return self._open.get(run_id) or self._ended.get(run_id)

    def _add_event(self, event: Any) -> None:
        """Add an event of the bus to the log of its run."""
        log = self._open.get(event.run_id)
        if log is None:
            if not self._open:  # unsubscribe here, not at the last end: often the next run begins at once
                for unsubscribe in self._subscriptions:
                    unsubscribe()
                self._subscriptions = ()
            return
        row = ROWS.get(type(event))
        if row is None or row.stream is None:
            return
        data = data_of(event)
        if row.stream == "assistant":
            if data["text"] or data["reset"]:
                log.add_text(event.at, data["text"], reset=data["reset"])
        elif row.stream == "reasoning":
            log.add_thought(event.at, data["text"], data["request"], reset=data["reset"])
        else:
            log.add(row.stream, event.at, data, size_of(data))
