"""The transcripts of an agent's sessions: what a run's cycles add to them, and who reads them.

With a memory that keeps a journal they are its affair, and what a cycle adds is part of the cycle's end. An agent
without one keeps the last of each session in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import asdict

from spar.clock import Clock
from spar.data.json_safe import shown, sized
from spar.data.reply import Reply
from spar.data.scrub import masked, may_hold
from spar.loop.cycle import Cycle
from spar.loop.setup import Setup
from spar.loop.tasks import Requests
from spar.ports.store import TranscriptStore
from spar.ports.trust import is_tainted, trust_of
from spar.records.transcript import Entry
from spar.runs.run import End, Run
from spar.runs.verdict import answer_of
from spar.types import Action, ActionResult, CallResult, Perception

#: Without a store: sessions that are kept, the one that was quiet for longest goes first, and entries of each at least.
_SESSIONS, _ENTRIES = 1_000, 500
#: Entries that are dropped together: who reads a session goes on from where it was as long as none are.
_TOGETHER = 100
#: Bytes of one entry that is kept there, and about how many of all of them.
_LARGEST, _BYTES = 1 << 16, 64 << 20


class _Kept(Struct):
    """The entries of one session as they are read, the last compaction, then others, oldest first; and how many bytes
    each of them takes."""

    entries: list[Entry] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    compaction: tuple[Entry, ...] = ()
    compaction_size: int = 0
    size: int = 0
    last: Entry | None = None

    def add(self, entry: Entry, size: int) -> None:
        self.last = entry
        if entry.kind == "reset":  # what stands before it is read no more
            self.drop(len(self.entries))
            self.size, self.compaction, self.compaction_size = 0, (), 0
        elif entry.kind == "compaction":  # what it sums up is read no more
            self.size += size - self.compaction_size
            self.compaction, self.compaction_size = (entry,), size
            self.drop(bisect_left(self.entries, int(entry.body.get("first_kept", 0)), key=attrgetter("seq")))
        else:
            self.entries.append(entry)
            self.sizes.append(size)
            self.size += size

    def drop(self, number: int) -> int:
        """Drop the oldest; return how many bytes they took."""
        size = sum(self.sizes[:number])
        del self.entries[:number], self.sizes[:number]
        self.size -= size
        return size


class HasTranscripts(Protocol):
    """The state of an agent, as far as it has transcripts of a store; None while that is not open."""

    @property
    def transcripts(self) -> TranscriptStore | None: ...


class SessionTranscripts:
    """The transcripts of one agent.

    Args: state: has the memory's transcripts while its journal is open; setup: has what the actor can call now.
    """

    __slots__ = ("_clock", "_kept", "_name", "_requests", "_seq", "_setup", "_size", "_state")

    def __init__(self, name: str, clock: Clock, requests: Requests, state: HasTranscripts, setup: Setup) -> None:
        self._name, self._clock, self._requests, self._state, self._setup = name, clock, requests, state, setup
        self._kept: OrderedDict[str, _Kept] | None = None  # made by the first entry
        self._seq = self._size = 0

    async def read(self, session: str) -> Sequence[Entry]:
        """Return what is to be read of a session, oldest first: from the last compaction on, which comes first."""
        if (store := self._state.transcripts) is not None:
            return await store.read(self._name, session)
        kept = None if self._kept is None else self._kept.get(session)
        return [] if kept is None else [*kept.compaction, *kept.entries]

    async def has(self, session: str) -> bool:
        """Return whether anything is kept of the present conversation of a session."""
        last = await self._last(session)
        return last is not None and last.kind != "reset"

    async def last_at(self, session: str) -> datetime | None:
        """Return when the newest entry of a session was made; None where there is none."""
        last = await self._last(session)
        return None if last is None else last.at

    async def _last(self, session: str) -> Entry | None:
        if (store := self._state.transcripts) is not None:
            entries = await store.tail(self._name, session, 1)
            return entries[-1] if entries else None
        return self._kept[session].last if self._kept is not None and session in self._kept else None

    async def compact(self, session: str, run_id: str, entry: Entry) -> None:
        """Add a compaction; kept when this returns. Raises: FencedError when the run is not its session's any more."""
        if (store := self._state.transcripts) is not None:
            await store.append(self._name, session, run_id, (entry,))
        else:
            self.keep(session, (entry,))

    def forget(self, session: str) -> None:
        """Keep nothing of a session, where no store does."""
        if self._kept is not None and (kept := self._kept.pop(session, None)) is not None:
            self._size -= kept.size

    def run_ended(self, run: Run, end: End) -> None:
        """Add the end of a run that has begun and of whose end nothing is written yet, in the background."""
        if run.started_at is None or run.into is not None or self._requests.loop is None:
            return
        self._requests.in_background(self._add_end(run, end), "transcript of")

    async def _add_end(self, run: Run, end: End) -> None:
        """A run ended that no cycle ended."""
        if (store := self._state.transcripts) is None:
            self.add(run, None, end)
        elif entries := entries_of(run, None, end, self._setup.tools(), self._clock.now()):
            await store.append(self._name, run.session, run.id, entries)

    def add(self, run: Run, cycle: Cycle | None, end: End | None) -> None:
        """Keep what a run's cycle adds, or its end without one, where no store does."""
        if entries := entries_of(run, cycle, end, self._setup.tools(), self._clock.now()):
            self.keep(run.session, entries)

    def keep(self, session: str, entries: Sequence[Entry]) -> None:
        """Keep what a cycle added, where no store does."""
        if self._kept is None:
            self._kept = OrderedDict()
        kept = self._kept.get(session)
        if kept is None:
            kept = self._kept[session] = _Kept()
        self._kept.move_to_end(session)
        before = kept.size
        for entry in entries:
            self._seq += 1
            body, size = sized(entry.body, _LARGEST)
            if may_hold(repr(body)):  # one look at all its texts: most hold no secret
                body = masked(body)
            kept.add(Entry(entry.kind, body, entry.run_id, self._seq, entry.at), size)
        self._size += kept.size - before
        while len(self._kept) > 1 and (len(self._kept) > _SESSIONS or self._size > _BYTES):
            self._size -= self._kept.popitem(last=False)[1].size
        if len(kept.entries) >= _ENTRIES + _TOGETHER:
            self._size -= kept.drop(_TOGETHER)
        while kept.entries and self._size > _BYTES:
            self._size -= kept.drop(1)


def entries_of(
    run: Run, cycle: Cycle | None, end: End | None, tools: Mapping[str, Any], now: datetime
) -> tuple[Entry, ...]:
    """Return what a run's cycle adds, or its end without one; what was said in it is written with the first of them.
    Nothing is added to a run of which the transcript knows that it has ended."""
    if run.is_transcribed:
        return ()
    entries: list[Entry] = []
    action = cycle.written_action if cycle is not None else None
    result = cycle.result if cycle is not None else None
    has_turn = action is not None and not action.deferred and (result is not None or action.output is not None)
    if has_turn or end is not None:
        entries += [Entry("user", _said(each), run.id, at=each.at) for each in run.unwritten]
        run.unwritten = ()
    if has_turn:
        assert action is not None
        entries.append(Entry("turn", _turn(action, result, tools), run.id, at=now))
    if end is not None:
        reply, run.is_transcribed = run.reply_to(end), True
        is_fallback = end.reply == Reply() and reply.text is not None  # it stands for an answer that there is not
        entries.append(Entry("end", {"status": end.status, "error": end.error, "reply": reply.text,
                                     "silent": reply.is_silent, "fallback": is_fallback,
                                     "usage": asdict(run.usage)},
                             run.id, at=now))  # fmt: skip
    return tuple(entries)


def _output(result: CallResult) -> dict[str, Any]:
    """Return what a call returned as people are shown it, and whether that is not all of it."""
    output, is_cut = shown(result.output, _LARGEST)
    return (
        {"output": output, "truncated": True, "whole": result.call.output_path or ""} if is_cut else {"output": output}
    )


def _said(perception: Perception) -> dict[str, Any]:
    return {"text": perception.text, "id": perception.id, "trust": perception.trust, "kind": perception.kind}


def _turn(action: Action, result: ActionResult | None, tools: Mapping[str, Any]) -> dict[str, Any]:
    results = result.results if result is not None else ()
    turn: dict[str, Any] = {
        "calls": [
            {"call": each.call.to_wire(), "status": each.status, "reason": each.reason, **_output(each),
             "error": None if each.fault is None else each.fault.message}
            for each in results
        ],
        "reason": action.reason,
        "output": answer_of(action, result),
        "trust": "untrusted" if is_tainted(results, tools) else trust_of(action),
    }  # fmt: skip
    if action.said:
        turn["said"] = action.said
    return turn
