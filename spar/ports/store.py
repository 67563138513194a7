"""Port of a store in full: everything that the core, its interfaces and the actors need of a memory.

An agent works with any object that has `store`. Each further member is optional and asked for by
`spar.ports.any_part.has`; `DurableStore` has all of them, and the built-in memory implements it. `spar.testing`
tests the guarantees of a store (`check_store`, `check_journal`, `check_process_death`, `check_retention`).

The guarantees of a store that has a `journal`:

- **One transaction per unit.** All writes of one step of the event loop become durable together or not at all, always
  including the end of a cycle (`Closing`). A killed process loses the newest units only, never one from their middle.
- **Accepted means on disk.** What is awaited (`commit`, `Records.keep`, `TranscriptStore.append`,
  `safe`) is as durable as the store promises when it returns; a write without awaiting is so after `safe`.
- **Fencing.** Only one opener at a time can write. A second one is refused, or it shuts out the first one, which then
  raises `FencedError` and writes nothing more. Each opening has a higher `epoch` than all before it.
- **Order.** Writes reach the disk in order; reads see all earlier writes of this process.
- **Exactness.** A value comes back unchanged (as JSON: tuples are lists) or is refused with an error, and then nothing
  of it is stored. Accepted work and small state are never cut. Only values that nobody waits for (records, results,
  entries) may be cut beyond the store's bounds; the text then says so, and a fault reports it.
- **Nothing needed is deleted.** Retention never deletes waiting items, dead letters, open cycles or open doubts.

No method blocks the event loop; all methods belong to its thread, except those that state otherwise. Any awaited
method may raise `TransientError` while the store cannot be read or written, and `SparError` once it is closed.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from spar.protocols import Records, Rows
from spar.protocols.host import CallJournal
from spar.records.audit import AuditDraft, AuditLog
from spar.records.journal import DeadLetter, Doubt, Item, Spend, Unfinished
from spar.records.runs import RunRow
from spar.records.session import SessionRecord
from spar.records.transcript import Entry, FoundEntry, TranscriptSummary
from spar.types import Call, CycleRecord, Experience, Fault
from spar.types.cycle import ExperienceDetail

if TYPE_CHECKING:
    from spar.facts import Fact

# -- the journal: facts of accepted work, cycles, calls in doubt, rows, budgets, and their views


class InHand(Protocol):
    """Ids of the work in progress when a process ended, known even if the journal had not written it yet.

    `left` are names (ids of items, `trait` of perceptions) that the former process was working on, `left_by` is a
    number of that process; both are empty after an orderly end.
    """

    @property
    def left(self) -> frozenset[str]: ...
    @property
    def left_by(self) -> int: ...

    def forget(self) -> None:
        """Confirm that the former process's work has been counted. Each process calls this once it has read `left`;
        from then on its own work is recorded."""


class RunViews(Protocol):
    """Views that every journal has, of runs and of used budgets."""

    async def run(self, agent: str, run_id: str) -> tuple[Item | None, Mapping[str, Any] | None]:
        """Return a run's item while it waits, its answer once it has ended; None twice for an unknown run."""

    async def spent(self) -> Sequence[Spend]:
        """Return the used amounts of budgets by window and quantity, of all agents."""


class Views(RunViews, Protocol):
    """All rows of the journal of a store, kept from its facts; a view contains all that was written before it is read.

    Rows are returned in the order of their times, the oldest first, except where a method says another order. One that
    cannot be read is reported as a fault and left out.
    """

    async def items(self, agent: str, ids: Collection[str] = ()) -> Sequence[Item]:
        """Return the waiting work. Args: ids: only these items."""

    async def dead_letters(self, agent: str) -> Sequence[DeadLetter]:
        """Return the dead letters that were not dealt with."""

    async def unfinished(self, agent: str) -> Sequence[Unfinished]:
        """Return the open cycles and the detached calls that were cut off, in the order of their ids.

        Returns: each with its action and `Unfinished.known`, as recorded for its calls.
        """

    async def doubts(self, agent: str, *, is_open: bool = True) -> Sequence[Doubt]:
        """Return the calls in doubt, with `is_open=False` also the answered ones."""

    async def recent_ids(self, agent: str, number: int) -> Sequence[str]:
        """Return the ids of the items accepted last, whatever happened to them; the newest first."""

    async def call(self, doubt: Doubt) -> Call:
        """Return the call of a doubt with the values that it was started with."""

    async def counts(self, agent: str) -> Mapping[str, Any]:
        """Return the totals of an agent's counts.

        They are the last `TotalsCounted` plus what the cycles closed since have added: each cycle with a record adds
        its outcome, its duration and phases, and `Closing.besides`.
        """

    async def rows(self, owner: str) -> Mapping[str, Any]:
        """Return the values of all small rows of an owner, by key."""


class WorkJournal(Protocol):
    """Journal of the work of an agent: that of a store, or the one in memory."""

    @property
    def views(self) -> RunViews: ...

    def append(self, fact: Fact, agent: str = "") -> None:
        """Record a fact of an agent, without waiting for the disk. A kind that no later process needs is not kept.

        All facts of one step of the event loop become durable together or not at all. Entries of a run that another run
        has superseded in its session are not stored, which is reported as a fault.
        Raises: TooLargeError for a value of more than a megabyte, ValueError for one that is not JSON-able,
            ContractError for a judgement that cannot be accepted; nothing of the fact is stored then.
        """

    async def commit(self, fact: Fact, agent: str) -> Item | None:
        """Record a fact that an earlier one may rule out: `WorkAccepted`, `LetterAnswered` or `DoubtAnswered`. It is
        durable when this returns, and so are all facts before it.

        Returns: the earlier item of work whose id, or for this agent whose key, was ever accepted before, whatever
            happened to it; then nothing is stored. None for a fact that is new.
        Raises: ConflictError when the letter or doubt has been dealt with; TooLargeError for an item that could not be
            stored whole: nothing of it is stored.
        """

    def safe(self) -> Awaitable[None]:
        """Return when all earlier writes are durable. Raises: SparError when the store is closed."""

    @property
    def open_cycles(self) -> int:
        """Return the number of open cycles of all agents."""

    @property
    def is_behind(self) -> bool:
        """Return whether so much waits to be written that further writers should await `safe` first."""

    @property
    def refusal(self) -> str:
        """Return why nothing more can be accepted now; "" when it can."""


class Journal(WorkJournal, CallJournal, Protocol):
    """All that an agent records of its work while the store is open."""

    @property
    def views(self) -> Views: ...
    @property
    def hand(self) -> InHand: ...

    @property
    def is_safe(self) -> bool:
        """Return whether `safe` would return at once."""

    def claim(self, agent: str, owner: object) -> Callable[[], None]:
        """Reserve the work of an agent's name for an owner, who may claim it again.

        Returns: a function that ends the claim; nothing happens if another owner has the name by then.
        Raises: ConflictError while another owner has it.
        """


# -- transcripts, and the records of sessions


class TranscriptStore(Protocol):
    """Transcripts of sessions; entries are only added, by one run at a time for each session."""

    async def read(self, agent: str, session: str) -> Sequence[Entry]:
        """Return the entries for a planner, the oldest first.

        These are the last compaction (a summary of older entries), the entries that it kept and those after it; none
        from before the last reset.
        """

    async def tail(self, agent: str, session: str, limit: int = 50, before: int | None = None) -> Sequence[Entry]:
        """Return the newest entries, the oldest first, also those that a compaction has summarised.

        Args: before: the `seq` of an entry that was read.
        """

    async def sessions(self, agent: str) -> Sequence[TranscriptSummary]:
        """Return the sessions with stored entries, the one with the newest entry first."""

    async def append(self, agent: str, session: str, run_id: str, entries: Sequence[Entry]) -> None:
        """Add entries after all earlier writes of the journal, all or none; durable when this returns.

        A run takes over a session with its first entry there. `Entry.seq` grows strictly within a session.
        Raises: FencedError when another run has taken over the session since; ValueError for another run's entry.
        """


class SessionStore(Protocol):
    """Sessions of agents: one row for each key under which messages came."""

    async def get(self, agent: str, key: str) -> SessionRecord | None:
        """Return a session; None for an unknown one."""

    async def page(
        self, agent: str, limit: int = 50, before: tuple[datetime, str] | None = None
    ) -> Sequence[SessionRecord]:
        """Return sessions, the one that was used last first.

        Args: limit: the most sessions; before: time of use and key of a session that was read.
        """

    async def put(self, agent: str, record: SessionRecord) -> None:
        """Write title and defaults of a session, and create its row if there is none; durable when this returns."""

    async def forget(self, agent: str, key: str) -> int:
        """Delete the stored data of a session; durable when this returns.

        Returns: the number of deleted rows: its entries, its cycles, its ended runs, and its own row.
        """


# -- copies and checks of a file that need not be open


class CareLine(Struct, frozen=True):
    """Line of an examination: the name of the subject, its state, the finding, and the advice ("" if all is well)."""

    name: str
    state: Literal["ok", "warn", "bad"]
    found: str
    advice: str = ""


class CareCopy(Struct, frozen=True):
    """Copy of the file: its path, its size in bytes, its time in seconds since 1970, and the number of its last
    fact."""

    path: str
    bytes: int
    at: float
    last_fact: int


class CareFinding(Struct, frozen=True):
    """Row that violates a rule: its table, its key and a description."""

    table: str
    row: str
    what: str

    def __str__(self) -> str:
        where = " ".join(filter(None, [self.table, self.row]))
        return f"{where}: {self.what}"


class CareReport(Struct, frozen=True):
    """Result of an integrity check: the number of rows by table, and the first hundred findings."""

    path: str
    rows: dict[str, int]
    findings: tuple[CareFinding, ...]

    @property
    def is_whole(self) -> bool:
        return not self.findings


class Care(Protocol):
    """Care of a store's file, which need not be open. All methods block.

    Raises, in all methods: ConfigError if there is no file; SparError, OSError.
    """

    @property
    def path(self) -> str: ...

    def back_up(self, target: str) -> CareCopy:
        """Copy what is committed now; the copy is checked wholly before it gets its name."""

    def restore(self, source: str) -> str | None:
        """Replace the file with a copy; return the name under which the old file was set aside."""

    def verify(self) -> CareReport:
        """Check every row."""

    def acknowledge(self) -> int:
        """Record that somebody has seen the losses; return their number."""

    def examine(self) -> Sequence[CareLine]:
        """Return the condition of the file and its surroundings; problems are lines, not exceptions."""


# -- the store in full, and its optional members


class SearchesTranscripts(Protocol):
    """Transcripts that can be searched."""

    async def search(
        self, agent: str, text: str, limit: int = 20, *, session: str | None = None
    ) -> Sequence[FoundEntry]:
        """Return the newest entries that contain all words."""


class DurableStore(Rows, Records, Protocol):
    """Store in full; an async context manager that may be entered more than once.

    An agent works with any object that has `store`; it asks for each other member (`spar.ports.any_part.has`).
    """

    def store(self, experience: Experience, /) -> Awaitable[None] | None:
        """Accept an experience; one with a known id changes nothing. A plain function is called in a thread.

        Raises: PermanentError for one that can never be stored; any other error leads to another attempt.
        """

    async def recall(
        self, query: str, k: int = 5, *, session: str | None = None, task: str | None = None,
        success: bool | None = None, since: datetime | None = None,
    ) -> Sequence[Experience]:  # fmt: skip
        """Return the experiences that match best, the best first.

        Args:
            query: any text; without words the newest are returned.
            k: the most experiences.
            session, task, success, since: conditions that must hold exactly.
        """

    async def export(self, target: str | os.PathLike[str] | IO[str]) -> int:
        """Write all experiences as JSON lines, in order of arrival; return how many. Raises: OSError."""

    def record(self, cycle: CycleRecord, /) -> Awaitable[None] | None:
        """Accept a cycle; one with a known id replaces the old record. A plain function is called in a thread."""

    async def cycles(
        self, limit: int = 20, before: str | datetime | None = None, outcome: str | None = None,
        session: str | None = None, failed: bool = False, since: datetime | None = None,
    ) -> Sequence[Mapping[str, Any]]:  # fmt: skip
        """Return summaries, the newest first.

        Args:
            limit: the most summaries.
            before: a time, or the id of the last cycle that was read.
            outcome, session: values that must be equal.
            failed: only cycles that failed or had a failed call.
            since: only cycles that began at this time or later.
        """

    async def cycle(self, cycle_id: str) -> CycleRecord | None:
        """Return the cycle with this id or unique beginning of an id. Raises: LookupError when several ids begin so."""

    def flush(self) -> Awaitable[None] | None:
        """Return when everything accepted so far is durable. A plain function is called in a thread.

        Raises: TransientError when that takes too long, with the cause.
        """

    async def load(self, key: str) -> Any:
        """Return the last value saved under a key, even if it is not written yet; None for an unknown key."""

    async def save(self, key: str, value: Any) -> None:
        """Accept a JSON-able value.

        Raises: TooLargeError for more than a megabyte; ValueError for a value that is not JSON-able. The former value
            stays.
        """

    @property
    def on_fault(self) -> Callable[[Fault | None], None]:
        """Return the function that it calls in the event loop when writing begins to fail, when something was lost,
        when it was fenced, and (with None) when it writes again. The agent sets it before it opens the store."""

    @property
    def durability(self) -> str:
        """Return which event its acknowledged writes survive.

        "power": a power cut, "process": the death of the process, "off": neither for sure. The default is "power".
        """

    @property
    def read_only(self) -> bool:
        """Return whether it was opened read-only: then it has no journal."""

    @property
    def care(self) -> Care:
        """Return the care of its file, which need not be open."""

    async def left(self, agent: str) -> tuple[Sequence[Doubt], Sequence[DeadLetter]]:
        """Return an agent's calls that are or were in doubt and its dead letters, the oldest first.

        Calls that an open cycle has begun, and that may have had their effect, may be among them.
        """

    async def run_rows(
        self, agent: str, limit: int, before: str | None = None, since: datetime | None = None, *, is_open: bool = False
    ) -> Sequence[RunRow]:
        """Return runs, the newest first; one that waits is `running` if cycles have worked on it.

        Args: before: the id of the last run that was read; is_open: only those that have not ended.
        """

    async def run_record(self, agent: str, run_id: str) -> tuple[Item | None, Mapping[str, Any] | None]:
        """Return a run's item while it waits, its answer once it has ended; None twice for an unknown run."""

    @property
    def journal(self) -> Journal:
        """Return the journal while the store is open and can be written. Raises: SparError at other times."""

    @property
    def transcripts(self) -> TranscriptStore:
        """Return the transcripts of sessions."""

    @property
    def sessions(self) -> SessionStore:
        """Return the records of sessions."""

    def snapshot(self) -> Mapping[str, Any]:
        """Return its condition, from any thread; JSON-able. The core reads `queued`, `commit_seconds`, `bytes`,
        `wal_bytes`."""


class InspectsExperiences(Protocol):
    """Store that explains its recalls, and lets its owner inspect and change it."""

    async def search(self, query: str, k: int = 5, **filters: Any) -> Sequence[Any]:
        """Return the best matches as objects with `experience`, `score`, `reasons` and `nearness`.

        Args: filters: conditions that must hold exactly, except `situation`: the name of the present situation, or
            None. Experiences of that situation may come first if a store can tell that the meaning is similar.
        """

    async def detail(self, id: str) -> ExperienceDetail | None:
        """Return an experience in full; None for an unknown one. Raises: LookupError when several ids begin so."""

    async def figures(self) -> Mapping[str, Any]:
        """Return the number of experiences, and how many were merged, used, are useless or come from strangers."""

    async def why(self, cycle_id: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the decisions of a cycle that memory changed; None for an unknown cycle."""

    async def forget(self, id: str | None = None, **filters: Any) -> int:
        """Delete the experiences that match all conditions; return their number. Raises: ValueError without a
        condition."""

    async def import_(self, source: Any, *, trust: bool = False) -> int:
        """Store the experiences of a file of JSON lines, all or none; return how many were new.

        Raises: SparError naming each bad line.
        """


class OptionalStore(Protocol):
    """Optional members of a store besides those of `DurableStore`."""

    async def cycle_records(
        self, limit: int, *, after: str | None = None, before: str | None = None, since: datetime | None = None
    ) -> Sequence[CycleRecord]:
        """Return records, the oldest first.

        Args:
            limit: the most records.
            after: the id of the cycle that they follow.
            before: the id of a cycle: the newest before it.
            since: only of cycles that began at this time or later.
        Raises: LookupError for an id that is no cycle.
        """

    @property
    def audit(self) -> AuditLog:
        """Return the audit log."""

    def copy_from_file(self, path: str, draft: AuditDraft, /) -> Mapping[str, int]:
        """Copy all rows of a file into the store. Like `copy_to_file` a member of the care of a store without a file.

        The store must not be open. Args: draft: the entry of the target's audit log.
        Returns: the number of rows by table.
        Raises: ConfigError if one end is in use, or the target is not empty; SparError, OSError; the target is then as
        it was.
        """

    def copy_to_file(self, path: str, draft: AuditDraft, /) -> Mapping[str, int]:
        """Copy all rows of the store into a new file, as `copy_from_file` does."""
