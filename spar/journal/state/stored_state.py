"""State of an agent that outlives its process: experiences, cycle records, statistics, event numbers.

Statistics are counts. With a journal they change in the closing transaction of each cycle that was not idle, so that a
kill loses none; without one they are saved at the stop.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from spar.errors import SparError
from spar.events import ErrorOccurred
from spar.facts import TotalsCounted
from spar.health.error_reporting import ErrorReporter
from spar.journal.state.agent_state import AgentState
from spar.journal.state.background_writer import BackgroundWriter
from spar.loop.core import Core, Requests
from spar.loop.cycle import Cycle
from spar.observe.stats import Stats
from spar.ports.any_part import AgentControl, has
from spar.ports.rows import OwnRows, rows_of
from spar.ports.store import DurableStore, Journal, TranscriptStore
from spar.protocols import Rows
from spar.records.journal import RowChange
from spar.types import PHASES, Fault

R = TypeVar("R")

#: The distance of the `seq` saved at a stop, for events that are published after it while the modules close.
SEQ_AHEAD = 1000
#: The event numbers reserved while the agent runs. After a kill the next process continues behind them.
SEQ_BLOCK = 1_000_000_000
#: The time limit (seconds) of the store for a flush, a load or a save.
STORE_WITHIN = 10.0
#: The key of the statistics row.
ACCOUNT = "account"
#: The kind of fault of a memory that another process has taken over.
FENCED = "fenced"
#: The kind of a memory that waits for its database, which another process uses.
STANDBY = "standby"
REFUSED = "refused"  # the kind of fault of a row that the memory could not write
#: The log message by kind of fault, for faults that do not keep the memory from writing.
_FAULT_MESSAGES = {
    "damaged": "memory is damaged",
    "permanent": "memory has lost an item",
    "too_large": "too large to be kept",
    "bad_input": "value cannot be kept",
    "clock": "clock is off",
    "gone": "work of an agent that is gone is put aside",
    "superseded": "transcript not kept",
}

#: The journalled errors by phase of a new agent; shared, and never changed.
_NO_ERRORS: Mapping[str, int] = dict.fromkeys(PHASES, 0)


class StoredState(AgentState):
    """Memory of one agent, as far as the agent itself uses it."""

    __slots__ = ("_paused_since", "_rows", "journalled_errors", "pending_counts", "renews_at")

    writer: BackgroundWriter

    def __init__(self, core: Core, memory: Any, stats: Stats, requests: Requests, reports: ErrorReporter,
                 agent: AgentControl) -> None:  # fmt: skip
        super().__init__(core, memory, stats, requests, reports, agent)
        self.writer = BackgroundWriter(memory, core.events, core.clock)
        self._paused_since = ""
        self._rows = rows_of(self.state_store)
        #: Counts of cycles without a record, which the next recorded one journals; the errors that are journalled.
        self.pending_counts: dict[str, Any] = {}
        self.journalled_errors = _NO_ERRORS
        #: The event number at which half of the reserved ones are used; infinite without a reservation.
        self.renews_at = math.inf

    @property
    def state_store(self) -> Any:
        """Return the memory, if it can load and save states."""
        memory = self.memory
        return memory if has(memory, DurableStore.load, DurableStore.save) else None

    @property
    def journal(self) -> Journal | None:
        """Return the memory's journal while it is open; None without one."""
        try:
            journal: Journal | None = self.memory.journal
        except (AttributeError, SparError):
            return None
        return journal

    @property
    def transcripts(self) -> TranscriptStore | None:
        """Return the memory's transcripts while its journal is open; None without them."""
        memory = self.memory
        return memory.transcripts if self.journal is not None and has(memory, DurableStore.transcripts) else None

    def rows_of(self, name: str) -> OwnRows | None:
        """Return small rows of a module, under a name of its choice; None without a memory."""
        rows = self._rows

        def later(work: Coroutine[Any, Any, None]) -> None:
            self._requests.in_background(work, f"saving of {name} by")

        if rows is None:
            return None
        return OwnRows(f"{name}:{self._core.name}", rows, lambda: self.journal, later)

    @cached_property
    def has_journal(self) -> bool:
        """Return whether the memory keeps a journal when it is open, so that accepted work is on disk."""
        memory = self.memory
        is_read_only = has(memory, DurableStore.read_only) and memory.read_only
        return has(type(memory), DurableStore.journal) and not is_read_only

    def renew(self) -> None:
        """Reserve further event numbers, because half of them are used."""
        self._requests.in_background(self._reserve(), "saving of")

    def remember(self, cycle: Cycle, duration: float) -> None:
        """Give the experiences and the record of a cycle to the background writer, for a memory without a journal."""
        writer, report = self.writer, self._reports.closing_failed
        self.learn(cycle)
        if self._core.events.seq >= self.renews_at:
            self.renew()
        for experience in cycle.guarded(report, cycle.lived) or ():
            writer.keep(experience)
        if writer.wants_cycles or self._core.traces is not None:
            record = cycle.guarded(report, cycle.recorded, self._core, duration, self._reports.note_failed)
            if record is not None and writer.wants_cycles:
                writer.keep(record)

    # -- opening and closing

    def listen(self) -> None:
        """Subscribe to the memory's reports of failed writes, if it makes them."""
        if has(self.memory, DurableStore.on_fault):
            self.memory.on_fault = self._on_fault

    def _on_fault(self, fault: Fault | None) -> None:
        """Report a fault of the memory, or with None that it writes again. Stop the agent if another process has taken
        it over."""
        core, log = self._core, self._core.log
        if fault is None:
            log.info("memory writes again", agent=core.name)
            return
        if fault.kind == REFUSED:
            self._reports.row_refused(fault)
            return
        if fault.kind == STANDBY:
            self.stands_by = True
            log.info("memory stands by", agent=core.name, reason=fault.message)
            return
        is_fenced = fault.kind == FENCED
        policy = "stop" if is_fenced else "retry" if fault.retryable else "continue"
        message = _FAULT_MESSAGES.get(fault.kind, "memory cannot write")
        log.error(message, agent=core.name, part=fault.part, reason=fault.message)
        core.events.publish(ErrorOccurred(cycle_id="", phase=fault.phase or "memory", error=fault, policy=policy))
        if is_fenced and core.state in ("running", "pausing"):
            self.agent.fail(fault.message)  # its further work could not be kept

    def take_pause(self) -> str:
        """Return the time since which the former process was paused, once; "" if it was not."""
        since, self._paused_since = self._paused_since, ""
        return since

    async def keep_pause(self, since: str | None) -> None:
        """Save the time since which the agent is paused; None if it is not. A failure is logged."""
        self.has_pause = since is not None
        if self.state_store is None:
            return
        try:
            await _in_time(self.state_store.save(self._key("pause"), since), "the store's save")
        except Exception as error:
            self._core.log.error("pause not saved", agent=self._core.name, is_paused=self.has_pause, reason=str(error))

    async def stored_pause(self) -> bool:
        """Return whether the agent is stored as paused, perhaps by another process. Raises: errors of the store."""
        return bool(await _in_time(self.state_store.load(self._key("pause")), "the store's load"))

    async def load(self) -> None:
        """Load the saved state, the first time, and reserve event numbers. Raises: errors of the store."""
        self.stands_by = False
        if not self.has_loaded:
            if self.state_store is not None:
                since = await _in_time(self.state_store.load(self._key("pause")), "the store's load")
                self._paused_since = since if isinstance(since, str) else ""
                self.has_pause = bool(self._paused_since)
            if self.state_store is not None and self._rows is not None:
                await self._take_over(self.state_store, self._rows)
            self.has_loaded = True
        if self.renews_at == math.inf:
            await self._reserve()

    async def _take_over(self, store: Any, rows: Rows) -> None:
        events = self._core.events
        state = await _in_time(store.load(self._key("agent")), "the store's load")
        stats = await _in_time(self._counts(rows), "the store's rows")
        former = state if isinstance(state, dict) else {}  # until format 5 all state was one value
        events.seq = max(events.seq, int(former.get("seq") or 0))
        self.stats.restore(stats or former.get("stats") or {})
        self.journalled_errors = dict(self.stats.errors_by_phase)
        if abilities := former.get("abilities"):
            await _in_time(self._make_rows(rows, abilities), "the store's rows")

    async def _make_rows(self, rows: Rows, abilities: Sequence[Mapping[str, Any]]) -> None:
        """Write the abilities of a file of format 5 or earlier as the rows that it has not yet."""
        owner, by_key = self._key("ability"), dict[str, Any]()
        for ability in abilities:
            try:
                by_key[f"{ability['tool']}|{ability['task']}"] = ability
            except (KeyError, TypeError) as error:  # written by another version; it is learnt again
                self._core.log.warning("ability not taken over", agent=self._core.name, reason=repr(error))
        known = await rows.rows(owner)
        await rows.change([RowChange(owner, key, by_key[key]) for key in by_key.keys() - known.keys()])

    async def _counts(self, rows: Rows) -> dict[str, Any]:
        """Return the statistics of earlier processes."""
        if (journal := self.journal) is not None:
            return dict(await journal.views.counts(self._core.name))
        return dict((await rows.rows(self._key("stats"))).get(ACCOUNT) or {})

    async def flush(self) -> None:
        """Wait until all accepted items are written. A failure is logged and does not keep the agent from stopping."""
        writer, core = self.writer, self._core
        try:
            is_written = await writer.flush(STORE_WITHIN)
        except Exception as error:
            core.log.error("store not flushed", agent=core.name, reason=str(error))
        else:
            if not is_written:
                core.log.error("experiences not stored in time", agent=core.name, waiting=writer.waiting)

    async def save(self) -> None:
        """Save the agent's state. A failure is logged and does not keep the agent from stopping."""
        self.renews_at = math.inf
        if self.has_loaded:
            await self._save(self._core.events.seq + SEQ_AHEAD)

    async def _reserve(self) -> None:
        """Reserve event numbers, so that no number is used twice even after a kill."""
        seq = self._core.events.seq
        self.renews_at = seq + SEQ_BLOCK // 2
        await self._save(seq + SEQ_BLOCK)

    async def _save(self, seq: int) -> None:
        """Write the state that no cycle's transaction has written."""
        store, rows = self.state_store, self._rows
        if store is None or rows is None:
            return
        journal, counts = self.journal, self.stats.state() if any(self.stats.outcomes.values()) else None
        try:
            if counts is not None and journal is None:
                change = RowChange(self._key("stats"), ACCOUNT, counts)
                await _in_time(rows.change([change]), "the store's rows")
            elif counts is not None and journal is not None:
                self.pending_counts, self.journalled_errors = {}, dict(self.stats.errors_by_phase)
                journal.append(TotalsCounted(total=counts), self._core.name)
            await _in_time(store.save(self._key("agent"), {"seq": seq}), "the store's save")
        except Exception as error:
            self._core.log.error("state not saved", agent=self._core.name, reason=str(error))

    def _key(self, kind: str) -> str:
        return f"{kind}:{self._core.name}"


async def _in_time(work: Coroutine[Any, Any, R], what: str) -> R:
    """Await a call of the store, which may hang and ignore cancellation. Raises: TimeoutError; errors of the call."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=STORE_WITHIN)
    finally:
        task.cancel()
    if not done:
        raise TimeoutError(f"{what} took longer than {STORE_WITHIN:g} s")
    return task.result()
