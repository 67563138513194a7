"""State of an agent that outlives it: experiences, the log of cycles, statistics, abilities, numbers of events.

Abilities are small rows (`spar.journal.state.abilities`), statistics counts. With a journal they change in the closing
transaction of each cycle that was not idle, so that a killed process has lost none of them; else at the stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from spar.errors import SparError
from spar.events import CycleRecorded, ErrorOccurred, ExperienceStored
from spar.health.error_reporting import ErrorReporter
from spar.journal.closing import experiences_of
from spar.journal.state.abilities import Abilities
from spar.journal.state.background_writer import BackgroundWriter
from spar.loop.core import Core
from spar.loop.cycle import Cycle
from spar.loop.tasks import Requests
from spar.observe.stats import Stats
from spar.ports.agent import AgentControl
from spar.ports.optional import offers
from spar.ports.small_rows import OwnRows, rows_of
from spar.ports.store import (
    Journal,
    KeepsJournal,
    KeepsSessions,
    KeepsState,
    KeepsTranscripts,
    SessionStore,
    StatesReadOnly,
    TellsFaults,
    TranscriptStore,
)
from spar.protocols import Rows
from spar.records.abilities import ReadAbilities
from spar.records.counts import count
from spar.records.journal import RowChange
from spar.types import PHASES, CycleRecord, Experience, Fault, Reflection

R = TypeVar("R")

#: By how much the `seq` saved at a stop is ahead: what is published after it, while the modules close, stays below.
SEQ_AHEAD = 1000
#: How many numbers are reserved while the agent runs: were its process killed, the next goes on behind them.
SEQ_BLOCK = 1_000_000_000
#: Seconds that the store may take to flush, to load, to save.
STORE_WITHIN = 10.0
#: The row of the statistics.
ACCOUNT = "account"
#: The kind of fault of a memory that another process has taken over.
FENCED = "fenced"
#: What the log says of a memory's faults that do not keep it from writing, by kind.
_SAID = {
    "damaged": "memory is damaged",
    "permanent": "memory has lost an item",
    "too_large": "too large to be kept",
    "gone": "work of an agent that is gone is put aside",
    "superseded": "transcript not kept",
}

#: Errors by phase of which the journal was told, of an agent that has none; one for all, and never changed.
_NO_ERRORS: Mapping[str, int] = dict.fromkeys(PHASES, 0)


class AgentState:
    """The memory of one agent, as far as the agent itself uses it. Without a memory nothing is kept.

    Args: agent: gives up when another process has taken the memory over.
    """

    __slots__ = ("_agent", "_besides", "_core", "_paused_since", "_reports", "_requests", "_reserved", "_rows",
                 "_stats", "_told_errors", "abilities", "has_loaded", "has_pause", "memory", "writer")  # fmt: skip

    def __init__(self, core: Core, memory: Any, stats: Stats, requests: Requests, reports: ErrorReporter,
                 agent: AgentControl) -> None:  # fmt: skip
        self._core, self.memory, self._stats = core, memory, stats
        self._requests, self._reports, self._agent = requests, reports, agent
        self.abilities = Abilities(core)
        self.writer = None if memory is None else BackgroundWriter(memory, core.events, core.clock)
        self.has_loaded = self.has_pause = False
        self._paused_since = ""
        self._rows = rows_of(self.state_store)
        self._besides: dict[str, Any] = {}
        self._told_errors = _NO_ERRORS
        #: The first number of an event that is not reserved; 0 while nothing is.
        self._reserved = 0

    @property
    def state_store(self) -> Any:
        """The memory, if it can load and save states."""
        memory = self.memory
        return memory if offers(memory, KeepsState) else None

    @property
    def journal(self) -> Journal | None:
        """The memory's journal while it is open; None where it keeps none."""
        memory = self.memory
        try:
            return memory.journal if offers(memory, KeepsJournal) else None
        except SparError:
            return None

    @property
    def transcripts(self) -> TranscriptStore | None:
        """The memory's transcripts while its journal is open; None where it keeps none."""
        memory = self.memory
        return memory.transcripts if self.journal is not None and offers(memory, KeepsTranscripts) else None

    @property
    def sessions(self) -> SessionStore | None:
        """The memory's sessions while its journal is open; None where it keeps none."""
        memory = self.memory
        return memory.sessions if self.journal is not None and offers(memory, KeepsSessions) else None

    def rows_of(self, name: str) -> OwnRows | None:
        """The small rows of a module under a name of its choice; None without a memory."""
        rows = self._rows

        def later(work: Coroutine[Any, Any, None]) -> None:
            self._requests.in_background(work, f"saving of {name} by")

        if rows is None:
            return None
        return OwnRows(f"{name}:{self._core.name}", rows, lambda: self.journal, later)

    @property
    def has_journal(self) -> bool:
        """Return whether the memory keeps a journal while it is open, so that accepted means on disk."""
        memory = self.memory
        is_read_only = offers(memory, StatesReadOnly) and memory.read_only
        return offers(type(memory), KeepsJournal) and not is_read_only

    @property
    def account(self) -> dict[str, int]:
        writer = self.writer
        if writer is None:
            return {"stored": 0, "waiting": 0, "lost": 0}
        return {"stored": writer.stored, "waiting": writer.waiting, "lost": writer.lost}

    def learn(self, cycle: Cycle) -> Sequence[str]:
        """Take over what a cycle taught of the tools; the keys of the abilities that changed or were forgotten."""
        keys = [] if cycle.reflection is None else self.abilities.learn(cycle.reflection, cycle.abilities)
        if self._reserved and self._core.events.seq >= self._reserved - SEQ_BLOCK // 2:
            self._requests.in_background(self._reserve(), "saving of")
        return keys

    def take(self, reflection: Reflection, read: ReadAbilities) -> tuple[RowChange, ...]:
        """Take over what was learnt beside the cycles; returns the changes of rows, for the caller to write.

        Args: read: the abilities as the reflector read them.
        """
        return self.abilities.changes(self.abilities.learn(reflection, read))

    def closing(self, cycle: Cycle) -> tuple[RowChange, ...]:
        """Return the changes of an ended cycle to the rows of its agent; the journal writes them with its end."""
        return self.abilities.changes(self.learn(cycle))

    def passed(self, cycle: Cycle, duration: float) -> None:
        """Count a cycle that leaves nothing behind; the next one that does tells of it."""
        count(self._besides, cycle.outcome, (("cycle", duration), *cycle.phases.items()))

    def besides(self) -> dict[str, Any] | None:
        """Take what was counted besides the cycles of which the journal is told; None for nothing."""
        errors, told = self._stats.errors_by_phase, self._told_errors
        if errors != told:
            self._besides["errors_by_phase"] = {phase: number - told[phase] for phase, number in errors.items()}
            self._told_errors = dict(errors)
        elif not self._besides:
            return None
        found, self._besides = self._besides, {}
        return found

    def remember(self, cycle: Cycle, duration: float) -> None:
        """Hand what a cycle came to to the background writer of a memory that keeps no journal."""
        writer, guarded = self.writer, self._reports.guarded
        self.learn(cycle)
        if writer is None:
            if self._core.traces is not None:
                guarded(cycle, self.record_of, cycle, duration)
            return
        for experience in guarded(cycle, experiences_of, cycle) or ():
            writer.keep(experience)
        if writer.wants_cycles or self._core.traces is not None:
            record = guarded(cycle, self.record_of, cycle, duration)
            if record is not None and writer.wants_cycles:
                writer.keep(record)

    def record_of(self, cycle: Cycle, duration: float) -> CycleRecord:
        """The cycle as it goes on the tape, told to those who want it; a note that cannot be kept is an error of the
        phase that it was made in."""
        core = self._core
        record = cycle.record(core.name, duration, "" if core.traces is None else core.traces.trace(cycle.id))
        if core.events.wanted[CycleRecorded]:
            core.events.publish(CycleRecorded(record=record, run_id="" if cycle.run is None else cycle.run.id))
        for phase, error in cycle.note_errors:
            self._reports.note_failed(cycle, phase, error)
        return record

    def stored_all(self, experiences: Sequence[Experience], record: CycleRecord | None) -> None:
        """The journal has taken these."""
        if self.writer is not None:
            self.writer.stored += len(experiences) + (record is not None)
        if experiences and self._core.events.wanted[ExperienceStored]:
            for experience in experiences:
                self._core.events.publish(ExperienceStored(experience=experience))

    # -- opening and closing

    def listen(self) -> None:
        """Hear from a memory that can tell whether writing fails."""
        if offers(self.memory, TellsFaults):
            self.memory.on_fault = self._writing

    def _writing(self, fault: Fault | None) -> None:
        core, log = self._core, self._core.log
        if fault is None:
            log.info("memory writes again", agent=core.name)
            return
        is_fenced = fault.kind == FENCED
        policy = "stop" if is_fenced else "retry" if fault.retryable else "continue"
        log.error(_SAID.get(fault.kind, "memory cannot write"), agent=core.name, part=fault.part, reason=fault.message)
        core.events.publish(ErrorOccurred(cycle_id="", phase="memory", error=fault, policy=policy))
        if is_fenced and core.state in ("running", "pausing"):
            self._agent.fail(fault.message)  # what it would do now nobody would remember

    def take_pause(self) -> str:
        """Return since when the former process was paused, once; empty when it was not."""
        since, self._paused_since = self._paused_since, ""
        return since

    async def keep_pause(self, since: str | None) -> None:
        """Keep that the agent is paused since then, or that it is not; a failure is said."""
        self.has_pause = since is not None
        if self.state_store is None:
            return
        try:
            await _in_time(self.state_store.save(self._pause_key, since), "the store's save")
        except Exception as error:
            self._core.log.error("pause not saved", agent=self._core.name, is_paused=self.has_pause, reason=str(error))

    async def load(self) -> None:
        """Take over what was saved, the first time; reserve numbers for events. Raises: what the store raises."""
        if not self.has_loaded:
            if self.state_store is not None:
                since = await _in_time(self.state_store.load(self._pause_key), "the store's load")
                self._paused_since = since if isinstance(since, str) else ""
                self.has_pause = bool(self._paused_since)
            if self.state_store is not None and self._rows is not None:
                await self._take_over(self.state_store, self._rows)
            self.has_loaded = True
        if not self._reserved:
            await self._reserve()

    async def _take_over(self, store: Any, rows: Rows) -> None:
        events = self._core.events
        state = await _in_time(store.load(self._key), "the store's load")
        stats = await _in_time(self._counts(rows), "the store's rows")
        abilities = await _in_time(rows.rows(self.abilities.owner), "the store's rows")
        former = state if isinstance(state, dict) else {}  # until format 5 all of it was one value
        events.seq = max(events.seq, int(former.get("seq") or 0))
        self._stats.restore(stats or former.get("stats") or {})
        self._told_errors = dict(self._stats.errors_by_phase)
        self.abilities.take_over(former.get("abilities") or [], abilities.values())

    async def _counts(self, rows: Rows) -> dict[str, Any]:
        """Return what was counted in earlier processes."""
        if (journal := self.journal) is not None:
            return dict(await journal.counts(self._core.name))
        return dict((await rows.rows(self._statistics)).get(ACCOUNT) or {})

    async def flush(self) -> None:
        """Have everything written that was accepted; a failure is said and keeps nobody from stopping."""
        writer, core = self.writer, self._core
        if writer is None:
            return
        try:
            is_written = await writer.flush(STORE_WITHIN)
        except Exception as error:
            core.log.error("store not flushed", agent=core.name, reason=str(error))
        else:
            if not is_written:
                core.log.error("experiences not stored in time", agent=core.name, waiting=writer.waiting)

    async def save(self) -> None:
        """Write the agent's state down; a failure is said and keeps nobody from stopping."""
        self._reserved = 0
        if self.writer is not None and self.has_loaded:
            await self._save(self._core.events.seq + SEQ_AHEAD)

    async def _reserve(self) -> None:
        """See to it that no number of an event is ever used twice, even if the process should be killed."""
        self._reserved = self._core.events.seq + SEQ_BLOCK
        await self._save(self._reserved)

    async def _save(self, seq: int) -> None:
        """Write what no transaction of a cycle has written; an older file's one value becomes rows by it."""
        store, rows = self.state_store, self._rows
        if store is None or rows is None:
            return
        known, changes = self.abilities.unwritten()
        journal, counts = self.journal, self._stats.state() if any(self._stats.outcomes.values()) else None
        if counts is not None and journal is None:
            changes.append(RowChange(self._statistics, ACCOUNT, counts))
        try:
            if counts is not None and journal is not None:
                self._besides, self._told_errors = {}, dict(self._stats.errors_by_phase)
                journal.count(self._core.name, counts)
            await _in_time(rows.change(changes), "the store's rows")
            self.abilities.has_written(known)
            await _in_time(store.save(self._key, {"seq": seq}), "the store's save")
        except Exception as error:
            self._core.log.error("state not saved", agent=self._core.name, reason=str(error))

    @property
    def _pause_key(self) -> str:
        return f"pause:{self._core.name}"

    @property
    def _key(self) -> str:
        return f"agent:{self._core.name}"

    @property
    def _statistics(self) -> str:
        return f"stats:{self._core.name}"


async def _in_time(work: Coroutine[Any, Any, R], what: str) -> R:
    """Await something foreign that may hang, and even ignore its cancellation. Raises: TimeoutError; what it raises."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=STORE_WITHIN)
    finally:
        task.cancel()
    if not done:
        raise TimeoutError(f"{what} took longer than {STORE_WITHIN:g} s")
    return task.result()
