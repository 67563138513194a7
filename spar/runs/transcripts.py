"""Transcripts of an agent's sessions: the entries that the cycles of runs add, and access to them.

With a memory that keeps a journal the store has the transcripts, and new entries are part of the transaction that ends
a cycle. Without one the last entries of each session are kept in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from spar.clock import Clock
from spar.data.json_safe import shown, sized
from spar.data.reply import End, Reply, answer_of
from spar.data.scrub import masked
from spar.loop.core import Requests
from spar.loop.setup import Setup
from spar.ports.phases import is_tainted
from spar.ports.store import TranscriptStore
from spar.records.transcript import Entry
from spar.runs.runs import Run
from spar.types import Action, ActionResult, CallResult, Perception, trust_of

#: Without a store: the most sessions (the one that was quiet longest is dropped first), and the entries that each keeps
#: at least.
_SESSIONS, _ENTRIES = 1_000, 500
#: Entries that are dropped at once. Dropping several at a time lets a reader continue from its position until then.
_TOGETHER = 100
#: The most bytes of one entry, and about how many of all together.
_LARGEST, _BYTES = 1 << 16, 64 << 20


class _SessionEntries(Struct):
    """Entries of one session as they are read: the last compaction, then the later ones, oldest first; and the bytes of
    each."""

    entries: list[Entry] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    compaction: tuple[Entry, ...] = ()
    compaction_size: int = 0
    size: int = 0
    last: Entry | None = None

    def add(self, entry: Entry, size: int) -> None:
        """Add an entry, and drop those that it replaces."""
        self.last = entry
        if entry.kind == "reset":  # earlier entries are not read any more
            self.drop(len(self.entries))
            self.size, self.compaction, self.compaction_size = 0, (), 0
        elif entry.kind == "compaction":  # the entries that it summarizes are not read any more
            self.size += size - self.compaction_size
            self.compaction, self.compaction_size = (entry,), size
            self.drop(bisect_left(self.entries, int(entry.body.get("first_kept", 0)), key=attrgetter("seq")))
        else:
            self.entries.append(entry)
            self.sizes.append(size)
            self.size += size

    def drop(self, number: int) -> int:
        """Drop the oldest entries; return how many bytes they took."""
        size = sum(self.sizes[:number])
        del self.entries[:number], self.sizes[:number]
        self.size -= size
        return size


class SessionTranscripts:
    """Transcripts of one agent.

    Args: store: returns the store of transcripts, None while its journal is not open; setup: has the tools that the
    actor can call now.
    """

    __slots__ = ("_clock", "_name", "_requests", "_seq", "_sessions", "_setup", "_size", "_store")

    def __init__(
        self, name: str, clock: Clock, requests: Requests, store: Callable[[], TranscriptStore | None], setup: Setup
    ) -> None:
        self._name, self._clock, self._requests, self._store, self._setup = name, clock, requests, store, setup
        self._sessions = OrderedDict[str, _SessionEntries]()
        self._seq = self._size = 0

    async def read(self, session: str) -> Sequence[Entry]:
        """Return the entries of a session, oldest first, beginning with the last compaction if there is one."""
        if (store := self._store()) is not None:
            return await store.read(self._name, session)
        history = self._sessions.get(session)
        return [] if history is None else [*history.compaction, *history.entries]

    async def has(self, session: str) -> bool:
        """Return whether the present conversation of a session has any entry."""
        last = await self._last(session)
        return last is not None and last.kind != "reset"

    async def last_at(self, session: str) -> datetime | None:
        """Return when the newest entry of a session was made; None without entries."""
        last = await self._last(session)
        return None if last is None else last.at

    async def _last(self, session: str) -> Entry | None:
        if (store := self._store()) is not None:
            entries = await store.tail(self._name, session, 1)
            return entries[-1] if entries else None
        return self._sessions[session].last if session in self._sessions else None

    async def compact(self, session: str, run_id: str, entry: Entry) -> None:
        """Add a compaction; it is durable on return. Raises: FencedError if the run no longer owns its session."""
        if (store := self._store()) is not None:
            await store.append(self._name, session, run_id, (entry,))
        self.keep(session, (entry,))

    def forget(self, session: str) -> None:
        """Drop the entries of a session that are kept without a store."""
        if (history := self._sessions.pop(session, None)) is not None:
            self._size -= history.size

    def run_ended(self, run: Run, end: End) -> None:
        """Add the end of a run that has begun, in the background, unless its transcript has it."""
        if run.started_at is None or run.state.into or self._requests.loop is None:
            return
        self._requests.in_background(self._add_end(run, end), "transcript of")

    async def _add_end(self, run: Run, end: End) -> None:
        """Add the end of a run that no cycle ended."""
        if (store := self._store()) is None:
            self.add(run, None, None, end)
        elif entries := entries_of(run, None, None, end, self._setup.tools, self._clock.now()):
            await store.append(self._name, run.session, run.id, entries)

    def add(self, run: Run, action: Action | None, result: ActionResult | None, end: End | None) -> None:
        """Add the entries of a run's cycle, or of its end without a cycle, if there is no store."""
        if self._store() is None:
            self.keep(run.session, entries_of(run, action, result, end, self._setup.tools, self._clock.now()))

    def keep(self, session: str, entries: Sequence[Entry]) -> None:
        """Keep entries in memory, if there is no store."""
        if not entries or self._store() is not None:
            return
        history = self._sessions.setdefault(session, _SessionEntries())
        self._sessions.move_to_end(session)
        before = history.size
        copies = [sized(entry.body, _LARGEST) for entry in entries]
        bodies = masked([body for body, _ in copies])
        for entry, body, (_, size) in zip(entries, bodies, copies, strict=True):
            self._seq += 1
            history.add(Entry(entry.kind, body, entry.run_id, self._seq, entry.at), size)
        self._size += history.size - before
        while len(self._sessions) > 1 and (len(self._sessions) > _SESSIONS or self._size > _BYTES):
            self._size -= self._sessions.popitem(last=False)[1].size
        if len(history.entries) >= _ENTRIES + _TOGETHER:
            self._size -= history.drop(_TOGETHER)
        while history.entries and self._size > _BYTES:
            self._size -= history.drop(1)


def entries_of(
    run: Run, action: Action | None, result: ActionResult | None, end: End | None,
    tools: Callable[[], Mapping[str, Any]], now: datetime,
) -> tuple[Entry, ...]:  # fmt: skip
    """Return the new entries of a run's cycle, or of its end without a cycle. Unwritten messages of the run come first.

    A run whose end is in the transcript adds nothing.

    Args: action, result: those of the cycle; tools: returns the tools of the actor, by name.
    """
    if run.is_transcribed:
        return ()
    entries: list[Entry] = []
    has_turn = action is not None and not action.deferred and (result is not None or action.output is not None)
    if has_turn or end is not None:
        entries += [Entry("user", _user_entry(message), run.id, at=message.at) for message in run.unwritten]
        run.unwritten = ()
    if has_turn:
        assert action is not None
        entries.append(Entry("turn", _turn(action, result, tools), run.id, at=now))
    if end is not None:
        reply, run.is_transcribed = run.reply_to(end), True
        is_fallback = end.reply == Reply() and reply.text is not None  # a sentence in place of a missing answer
        entries.append(Entry("end", {"status": end.status, "error": end.error, "reply": reply.text,
                                     "silent": reply.is_silent, "fallback": is_fallback,
                                     "usage": asdict(run.usage)},
                             run.id, at=now))  # fmt: skip
    return tuple(entries)


def _output(result: CallResult) -> dict[str, Any]:
    """Return an output shortened for people, and whether it was shortened."""
    output, is_cut = shown(result.output, _LARGEST)
    more = {"truncated": True, "whole": result.call.output_path or ""} if is_cut else {}
    return {"output": output, **more}


def _user_entry(perception: Perception) -> dict[str, Any]:
    return {"text": perception.text, "id": perception.id, "trust": perception.trust, "kind": perception.kind}


def _turn(action: Action, result: ActionResult | None, tools: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the body of the entry for one cycle: its calls with their results, and its answer."""
    results = result.results if result is not None else ()
    turn: dict[str, Any] = {
        "calls": [
            {"call": call.call.to_wire(), "status": call.status, "reason": call.reason, **_output(call),
             "error": None if call.fault is None else call.fault.message}
            for call in results
        ],
        "reason": action.reason,
        "output": answer_of(action, result),
        "trust": "untrusted" if results and is_tainted(results, tools()) else trust_of(action),
    }  # fmt: skip
    if action.said:
        turn["said"] = action.said
    if action.additions is not None:
        turn["additions"] = list(action.additions)
    signed = list(action.signed)
    if signed and masked(signed) == signed:  # a provider refuses what it signed if a secret in it is hidden
        turn["signed"] = signed
    return turn
