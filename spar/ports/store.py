"""The port of a store in full: everything that the core, its doors and the actors ask of a memory.

An agent works with any object that has `KeepsExperiences`. Each further Protocol is optional and asked for by
`spar.ports.optional.offers`; `DurableStore` is all of them, and what the built-in memory implements. `spar.testing`
holds a store to its guarantees (`check_store`, `check_journal`, `check_process_death`, `check_retention`).

The guarantees of a store that has a `journal`:

- **One transaction per unit.** All that is told in one step of the event loop becomes durable together or not at all,
  the end of a cycle (`Closing`) always so. A killed process loses the newest units only, never one from their middle.
- **Accepted means on disk.** What is awaited (`accept`, `answer`, `exhume`, `Records.keep`, `TranscriptStore.append`,
  `safe`) is as durable as the store promises when it returns; what is told without a wait is so after `safe`.
- **Fencing.** One opener at a time can write. A second one is refused, or the first one is from then on: it raises
  `FencedError` and writes nothing more. Each opening has a higher `epoch` than all before it.
- **Order.** What was told first is written first; reads see all that was told before them by this process.
- **Exactness.** A value comes back as it was given (as JSON: tuples are lists) or is refused with an error, and then
  nothing of it is kept. Accepted work and small state are never cut. Only what nobody waits for (records, results,
  entries) may be cut beyond the store's bounds; the text then says so, and a fault tells of it.
- **Nothing needed goes.** Retention never takes waiting items, dead letters, open cycles or open doubts.

Nothing here blocks the event loop; all methods belong to its thread, but for those that say otherwise. Any awaited
method may raise `TransientError` while the store cannot be read or written, and `SparError` once it is closed.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import IO, Any, Protocol, runtime_checkable

from spar.protocols import Records, Rows
from spar.records.journal import CallJournal, Closing, DeadLetter, Doubt, Item, RowChange, Spend, Unfinished
from spar.records.session import Reset, SessionRecord, SessionUse
from spar.records.transcript import Entry
from spar.types import Call, CycleRecord, Experience, Fault, Perception

# -- experiences, cycles, state: without a journal


@runtime_checkable
class KeepsExperiences(Protocol):
    """A store of experiences: the least that an agent takes as its memory."""

    def store(self, experience: Experience, /) -> Awaitable[None] | None:
        """Accept an experience; one whose id is known changes nothing. A plain function is called in a thread.

        Raises: PermanentError for one that can never be kept; anything else is tried again.
        """


@runtime_checkable
class Recalls(Protocol):
    """A store whose experiences can be found again."""

    async def recall(
        self, query: str, k: int = 5, *, session: str | None = None, task: str | None = None,
        success: bool | None = None, since: datetime | None = None,
    ) -> Sequence[Experience]:  # fmt: skip
        """Return the experiences that fit best, the best first.

        Args:
            query: any text; without words the newest are asked for.
            k: how many at most.
            session, task, success, since: must hold exactly.
        """
        ...


@runtime_checkable
class Exports(Protocol):
    """A store whose experiences can be written to a file."""

    async def export(self, target: str | os.PathLike[str] | IO[str]) -> int:
        """Write all experiences as JSON lines, in order of arrival; return how many. Raises: OSError."""
        ...


@runtime_checkable
class KeepsCycles(Protocol):
    """A store of records of cycles."""

    def record(self, cycle: CycleRecord, /) -> Awaitable[None] | None:
        """Accept a cycle; one with a known id replaces it. A plain function is called in a thread."""


@runtime_checkable
class ReadsCycles(Protocol):
    """A store whose records of cycles can be read, also while it is open read-only."""

    async def cycles(
        self, limit: int = 20, before: str | datetime | None = None, outcome: str | None = None,
        session: str | None = None, failed: bool = False,
    ) -> Sequence[Mapping[str, Any]]:  # fmt: skip
        """Return summaries, the newest first.

        Args:
            limit: how many at most.
            before: a time, or the id of the last one that was seen.
            outcome, session: must be equal.
            failed: only cycles that failed or of whose calls one did.
        """
        ...

    async def cycle(self, cycle_id: str) -> CycleRecord | None:
        """Return the cycle with this id or unique beginning of one. Raises: LookupError when several begin so."""
        ...


@runtime_checkable
class Flushes(Protocol):
    """A store that writes later than it accepts."""

    def flush(self) -> Awaitable[None] | None:
        """Return when everything accepted so far is durable. A plain function is called in a thread.

        Raises: TransientError when that takes too long, with what is in the way.
        """


@runtime_checkable
class KeepsState(Protocol):
    """A store of small values by key."""

    async def load(self, key: str) -> Any:
        """Return what was last saved under a key, also what is not written yet; None for an unknown key."""
        ...

    async def save(self, key: str, value: Any) -> None:
        """Accept a JSON-able value.

        Raises: TooLargeError for more than a megabyte; ValueError for what is not JSON-able. The former value stays.
        """
        ...


# -- the store as a whole


@runtime_checkable
class TellsFaults(Protocol):
    """A store that says when writing begins to fail, when something was lost, when it was fenced, and (None) when it
    writes again: it calls `on_fault` in the event loop. The agent sets it before it opens the store."""

    on_fault: Callable[[Fault | None], None]


@runtime_checkable
class StatesDurability(Protocol):
    """A store that states what survives of what it acknowledged: "power" a power cut, "process" the death of the
    process, "off" neither for sure. One that does not is taken for "power"."""

    @property
    def durability(self) -> str: ...


@runtime_checkable
class StatesReadOnly(Protocol):
    """A store that states whether it was opened to be read only: then it keeps no journal."""

    @property
    def read_only(self) -> bool: ...


class CareLine(Protocol):
    """One line of an examination; `state` is ok, warn or bad."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def found(self) -> str: ...
    @property
    def advice(self) -> str: ...


class CareCopy(Protocol):
    """A copy that was made: where, of how many bytes, up to which fact."""

    @property
    def path(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def last_fact(self) -> int: ...


class CareFinding(Protocol):
    """One thing that does not fit."""

    @property
    def table(self) -> str: ...
    @property
    def row(self) -> str: ...
    @property
    def what(self) -> str: ...


class CareReport(Protocol):
    """Result of an integrity check: rows looked at by table, and what did not fit."""

    @property
    def path(self) -> str: ...
    @property
    def rows(self) -> Mapping[str, int]: ...
    @property
    def findings(self) -> Sequence[CareFinding]: ...
    @property
    def is_whole(self) -> bool: ...


class Care(Protocol):
    """Looks after the file of a store that nobody has to have opened. Everything here blocks.

    Raises, in all methods: ConfigError where there is no file; SparError, OSError.
    """

    @property
    def path(self) -> str: ...

    def back_up(self, target: str) -> CareCopy:
        """Copy what is committed now, checked as a whole before it gets its name."""
        ...

    def restore(self, source: str) -> str | None:
        """Put a copy in the place of the file; return under which name that was set aside."""
        ...

    def verify(self) -> CareReport:
        """Look at every row."""
        ...

    def acknowledge(self) -> int:
        """Note that somebody has seen what was lost; return how many losses that were."""
        ...

    def examine(self) -> Sequence[CareLine]:
        """Return how the file is and what is around it; raises nothing for what it finds."""
        ...


@runtime_checkable
class HasCare(Protocol):
    """A store whose file can be looked after from outside."""

    @property
    def care(self) -> Care: ...


@runtime_checkable
class ReadsLeftWork(Protocol):
    """A store that says what recovery has left to people, also while it is open read-only."""

    async def left(self, agent: str) -> tuple[Sequence[Doubt], Sequence[DeadLetter]]:
        """Return an agent's calls that are or were in doubt and its dead letters, the oldest first."""
        ...


# -- the journal


class ItemJournal(Protocol):
    """Accepted work, by the name of its agent."""

    async def accept(self, agent: str, item: Item, use: SessionUse | None = None) -> tuple[Item, bool]:
        """Keep new work; durable when this returns, and with it, in one transaction, that it uses its session: the
        session's row is made or goes on, after the reset that comes before the message.

        Returns: the item that counts, and whether it is new. An id, or for this agent a key, that was ever accepted
            before makes it the earlier one, whatever has become of that.
        Raises: TooLargeError for what could not be kept whole; nothing of it is kept.
        """
        ...

    def keep(self, agent: str, item: Item) -> None:
        """Write what is known of a waiting item, or a new one, without waiting for that."""

    async def items(self, agent: str) -> Sequence[Item]:
        """Return the work that waits, the oldest (`Item.at`) first."""
        ...

    async def recent_ids(self, agent: str, number: int) -> Sequence[str]:
        """Return the ids of what was accepted last, whatever became of it; the newest first."""
        ...

    async def run(self, agent: str, run_id: str) -> tuple[Item | None, Mapping[str, Any] | None]:
        """Return a run's item while it waits, its answer once it has ended; twice None for an unknown one."""
        ...

    def run_ended(self, run_id: str, answer: Any) -> None:
        """Write that a run is over which no cycle's end tells of."""

    def amended(self, run_id: str, answer: Any) -> None:
        """Write another answer of a run that has ended."""

    def reset(
        self, agent: str, reset: Reset, entries: Sequence[Entry] = (),
        answers: Mapping[str, Any] | None = None, cut: Unfinished | None = None,
    ) -> None:  # fmt: skip
        """Write that a conversation has ended, all in one transaction. What any run of before would still add to the
        transcript is refused from then on. A reset of a conversation that has ended already changes nothing of the
        session.

        Args: entries: what its runs add before the entry of the reset; answers: those of the runs that end with it, by
            their ids; cut: the cycle in hand, as it is to be found if the process dies.
        """


class LetterJournal(Protocol):
    """Work that was put aside."""

    def bury(self, agent: str, item: Item, reason: str) -> DeadLetter:
        """Put an item aside: it waits no more."""
        ...

    async def dead_letters(self, agent: str) -> Sequence[DeadLetter]:
        """Return what was put aside and not dealt with, the oldest item first."""
        ...

    async def exhume(self, agent: str, letter: DeadLetter, *, waits: bool) -> Item:
        """Deal with a dead letter; durable when this returns.

        Args: waits: it is to wait again as if it were new; else it is through for good.
        Raises: ConflictError when it has been dealt with.
        """
        ...


class CycleJournal(Protocol):
    """Beginnings and ends of cycles."""

    def opened(
        self, agent: str, cycle_id: str, perceptions: Sequence[Perception], items: Sequence[str],
        make: Callable[[], Unfinished], cursors: Mapping[str, Any], changes: Iterable[RowChange] = (),
    ) -> None:  # fmt: skip
        """Write that a cycle begins, and with it cursors (as `save`) and rows (as `change`) of its sensors.

        A cursor or row that cannot be kept is told as a fault and stays what it was; the rest is written.

        Args:
            items: the ids of the accepted work that it is begun on.
            make: returns what is to be found again; called only if the cycle does not end in the same unit.
        """

    def closed(self, agent: str, cycle_id: str, closing: Closing) -> None:
        """Write that a cycle has ended and all that `closing` holds, in one transaction.

        Entries of a run that another one has superseded in its session are not kept, which is told as a fault. With
        `closing.again` it stays open, to be gone on with by the next process.
        """

    async def unfinished(self, agent: str) -> Sequence[Unfinished]:
        """Return the cycles that are open and the detached calls that were cut off, in the order of their ids.

        Returns: each with its action and `Unfinished.known`, as the calls that were told of come to.
        """
        ...

    @property
    def open_cycles(self) -> int:
        """The number of cycles that are open, of all agents."""
        ...


class InHand(Protocol):
    """Ids in flight when a process ended, known also where nothing of it had been written.

    `left` are names (ids of items, `DoubtJournal.trait` of perceptions) that the former process had in hand, `left_by`
    a number of that process; both are empty after an end in good order.
    """

    @property
    def left(self) -> frozenset[str]: ...
    @property
    def left_by(self) -> int: ...

    def forget(self) -> None:
        """Take note that what the former process had in hand has been counted; each process says so once it has read
        it, and what it had in hand itself is known from then on."""


class SuspectJournal(Protocol):
    """Work that may have killed a process."""

    @property
    def hand(self) -> InHand: ...

    def trait(self, perception: Perception, /) -> str:
        """Return the name by which a perception is known again that comes once more under another id."""
        ...


class DoubtJournal(Protocol):
    """Calls that may or may not have had their effect."""

    def doubted(self, agent: str, doubt: Doubt) -> None:
        """Write that a call is in doubt."""

    async def doubts(self, agent: str, *, is_open: bool = True) -> Sequence[Doubt]:
        """Return the calls in doubt, with `is_open=False` also the answered ones; the oldest first."""
        ...

    async def call(self, doubt: Doubt) -> Call:
        """Return the call of a doubt with the values that it was started with."""
        ...

    async def answer(self, agent: str, doubt: Doubt, again: Unfinished | None = None) -> None:
        """Write an answer and the cycle that is to make the call again, in one transaction; durable when this returns.

        Raises: ConflictError when it has been answered.
        """
        ...


class StateJournal(Protocol):
    """Small state that changes together with what is told in the same moment."""

    def save(self, key: str, value: Any) -> None:
        """Write a value as `KeepsState.save` does. Raises: TooLargeError, ValueError; the former value stays."""

    def change(self, changes: Iterable[RowChange], work: str = "") -> None:
        """Write these small rows, in order, all or none.

        Args: work: an open cycle; they then become durable with what it is going to do or with its end, and not at all
            if it is cut off before.
        Raises: TooLargeError for a value of more than a megabyte; ValueError for one that is not JSON-able.
        """

    def count(self, agent: str, total: Mapping[str, Any]) -> None:
        """Write what the counts of an agent come to, in place of all that was told of them before."""

    async def counts(self, agent: str) -> Mapping[str, Any]:
        """Return what the counts of an agent come to: what `count` wrote last, and what its cycles that were closed
        since have added: each with a record its outcome, its duration and phases, and `Closing.besides`."""
        ...

    async def rows(self, owner: str) -> Mapping[str, Any]:
        """Return the values of all small rows of an owner, by key."""
        ...


class BudgetJournal(Protocol):
    """Uses of budgets."""

    def spend(self, spends: Iterable[Spend], /) -> None:
        """Add these amounts, which may be negative, to their windows.

        A sum stays within 0 and 2**60; within them nothing is rounded or lost.
        """

    async def spent(self) -> Sequence[Spend]:
        """Return what was used by window and quantity, of all agents."""
        ...


@runtime_checkable
class Journal(
    CallJournal, ItemJournal, LetterJournal, CycleJournal, SuspectJournal, DoubtJournal, StateJournal, BudgetJournal,
    Protocol,
):  # fmt: skip
    """Everything that an agent writes down of its work while the store is open."""

    def claim(self, agent: str, owner: object) -> None:
        """Reserve the work of an agent's name for an owner, who may claim it again.

        Raises: ConflictError while another owner has it.
        """

    def release(self, agent: str, owner: object) -> None:
        """End a claim; does nothing for another's."""

    @property
    def is_safe(self) -> bool:
        """Return whether `safe` would return at once."""
        ...

    @property
    def is_behind(self) -> bool:
        """Return whether so much waits to be written that those who tell more should wait for `safe` first."""
        ...

    @property
    def refusal(self) -> str:
        """Why nothing more can be accepted now; "" when it can."""
        ...


@runtime_checkable
class KeepsJournal(Protocol):
    """A store with a journal; its class has the attribute, also while it is closed. It also has `KeepsState` and
    `ReadsCycles`, from which recovery goes on."""

    @property
    def journal(self) -> Journal:
        """The journal while the store is open and can be written. Raises: SparError at other times."""
        ...


# -- transcripts


class SessionSummary(Protocol):
    """Kept entries of one session."""

    @property
    def session(self) -> str: ...
    @property
    def entries(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def last_at(self) -> datetime: ...


class TranscriptStore(Protocol):
    """The transcripts of sessions, only ever added to, each by one run at a time."""

    async def read(self, agent: str, session: str) -> Sequence[Entry]:
        """Return what a planner reads: the last compaction, then what that kept and what came after, oldest first, and
        nothing from before the last reset."""
        ...

    async def tail(self, agent: str, session: str, limit: int = 50, before: int | None = None) -> Sequence[Entry]:
        """Return the newest entries, oldest first, summed up or not.

        Args: before: the `seq` of an entry that was seen.
        """
        ...

    async def sessions(self, agent: str) -> Sequence[SessionSummary]:
        """Return the sessions of which something is kept, the last one that was added to first."""
        ...

    async def append(self, agent: str, session: str, run_id: str, entries: Sequence[Entry]) -> None:
        """Add entries after all that the journal was told, all or none; durable when this returns.

        A run takes a session over with its first entry there. `Entry.seq` grows strictly within a session.
        Raises: FencedError when another run has taken the session over since; ValueError for another run's entry.
        """
        ...


@runtime_checkable
class KeepsTranscripts(Protocol):
    """A store of transcripts."""

    @property
    def transcripts(self) -> TranscriptStore: ...


# -- sessions


class SessionStore(Protocol):
    """The sessions of agents: a row for each key under which messages came."""

    async def get(self, agent: str, key: str) -> SessionRecord | None:
        """Return a session; None for one that is not kept."""
        ...

    async def page(
        self, agent: str, limit: int = 50, before: tuple[datetime, str] | None = None
    ) -> Sequence[SessionRecord]:
        """Return sessions, the one that was used last first.

        Args: limit: how many at most; before: time of use and key of one that was seen.
        """
        ...

    async def put(self, agent: str, record: SessionRecord) -> None:
        """Write title and defaults of a session, and make its row if there is none; durable when this returns."""
        ...

    async def forget(self, agent: str, key: str) -> int:
        """Delete what is kept of a session; durable when this returns.

        Returns: how many rows went: its entries, its cycles, its runs that have ended, and last its own.
        """
        ...


@runtime_checkable
class KeepsSessions(Protocol):
    """A store of sessions."""

    @property
    def sessions(self) -> SessionStore: ...


@runtime_checkable
class DurableStore(
    KeepsExperiences, Recalls, Exports, KeepsCycles, ReadsCycles, Flushes, KeepsState, Rows, Records, TellsFaults,
    StatesDurability, StatesReadOnly, HasCare, ReadsLeftWork, KeepsJournal, KeepsTranscripts, KeepsSessions,
    Protocol,
):  # fmt: skip
    """A store with everything; an async context manager that may be entered more than once."""

    def snapshot(self) -> Mapping[str, Any]:
        """Return how it is doing, from any thread; JSON-able. The core reads `queued`, `commit_seconds`, `bytes`,
        `wal_bytes`."""
        ...
