"""Ports of the journal: accepted work, cycles, calls in doubt, small rows, budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from spar.facts import Fact
from spar.protocols.host import CallJournal
from spar.records.journal import Closing, DeadLetter, Doubt, Item, RowChange, Spend, Unfinished
from spar.records.session import Reset, SessionUse
from spar.records.transcript import Entry
from spar.types import Call, Credit, Feedback, Perception


class ItemJournal(Protocol):
    """Accepted work, by the name of its agent."""

    async def accept(self, agent: str, item: Item, use: SessionUse | None = None) -> tuple[Item, bool]:
        """Store new work; it is durable when this returns, and so are all rows that were written before.

        The same transaction records the use of its session: the session's row is created or updated, after the reset
        that precedes the message.

        Returns: the stored item, and whether it is new. An id, or for this agent a key, that was ever accepted before
            returns the earlier item, whatever happened to it.
        Raises: TooLargeError for an item that could not be stored whole; nothing of it is stored.
        """
        ...

    def keep(self, agent: str, item: Item) -> None:
        """Write the present knowledge of a waiting item, or a new item, without waiting for the disk."""

    async def items(self, agent: str) -> Sequence[Item]:
        """Return the waiting work, the oldest (`Item.at`) first."""
        ...

    async def recent_ids(self, agent: str, number: int) -> Sequence[str]:
        """Return the ids of the items accepted last, whatever happened to them; the newest first."""
        ...

    async def run(self, agent: str, run_id: str) -> tuple[Item | None, Mapping[str, Any] | None]:
        """Return a run's item while it waits, its answer once it has ended; None twice for an unknown run."""
        ...

    def run_ended(self, run_id: str, answer: Any, cycle: str = "") -> None:
        """Write the end of a run. Args: cycle: the cycle whose end says so already; "" for none."""

    def amended(self, run_id: str, answer: Any) -> None:
        """Write another answer of a run that has ended."""

    def reset(
        self, agent: str, reset: Reset, entries: Sequence[Entry] = (), cut: Unfinished | None = None,
    ) -> None:  # fmt: skip
        """Write the end of a conversation, in one transaction with the ends of its runs before.

        From then on, entries that an earlier run would add to the transcript are refused. A reset of a conversation
        that has already ended changes nothing of the session.

        Args: entries: entries of its runs before the entry of the reset; cut: the current cycle, in the form that
            recovery reads if the process dies.
        """


class LetterJournal(Protocol):
    """Work that was put aside."""

    def bury(self, agent: str, item: Item, reason: str) -> DeadLetter:
        """Put an item aside: it does not wait any more."""
        ...

    async def dead_letters(self, agent: str) -> Sequence[DeadLetter]:
        """Return the dead letters that were not dealt with, the oldest item first."""
        ...

    async def exhume(self, agent: str, letter: DeadLetter, *, waits: bool) -> Item:
        """Deal with a dead letter; durable when this returns.

        Args: waits: the item waits again as if it were new; else it is finished for good.
        Raises: ConflictError when it has been dealt with.
        """
        ...


class CycleJournal(Protocol):
    """Beginnings and ends of cycles."""

    def opened(
        self, agent: str, cycle_id: str, perceptions: Sequence[Perception], items: Sequence[str],
        make: Callable[[], Unfinished], cursors: Mapping[str, Any], changes: Iterable[RowChange] = (),
    ) -> None:  # fmt: skip
        """Write the beginning of a cycle, with cursors (as `save`) and rows (as `change`) of its sensors.

        A cursor or row that cannot be stored is reported as a fault and keeps its old value; the others are written.

        Args:
            items: the ids of the accepted work of this cycle.
            make: returns the content for recovery; called only if the cycle does not end in the same unit.
        """

    def closed(self, agent: str, cycle_id: str, closing: Closing) -> None:
        """Write the end of a cycle and all that `closing` contains, in one transaction.

        Entries of a run that another run has superseded in its session are not stored, which is reported as a fault.
        With `closing.again` the cycle stays open, and the next process continues it.
        """

    async def unfinished(self, agent: str) -> Sequence[Unfinished]:
        """Return the open cycles and the detached calls that were cut off, in the order of their ids.

        Returns: each with its action and `Unfinished.known`, as recorded for its calls.
        """
        ...

    @property
    def open_cycles(self) -> int:
        """Return the number of open cycles of all agents."""
        ...


class InHand(Protocol):
    """Ids of the work in progress when a process ended, known even if the journal had not written it yet.

    `left` are names (ids of items, `DoubtJournal.trait` of perceptions) that the former process was working on,
    `left_by` is a number of that process; both are empty after an orderly end.
    """

    @property
    def left(self) -> frozenset[str]: ...
    @property
    def left_by(self) -> int: ...

    def forget(self) -> None:
        """Confirm that the former process's work has been counted. Each process calls this once it has read `left`;
        from then on its own work is recorded."""


class SuspectJournal(Protocol):
    """Work that may have killed a process."""

    @property
    def hand(self) -> InHand: ...

    def trait(self, perception: Perception, /) -> str:
        """Return the name that identifies a perception even if it comes again under another id."""
        ...


class DoubtJournal(Protocol):
    """Calls of which it is unknown whether they had their effect."""

    def doubted(self, agent: str, doubt: Doubt) -> None:
        """Write that a call is in doubt."""

    async def doubts(self, agent: str, *, is_open: bool = True) -> Sequence[Doubt]:
        """Return the calls in doubt, with `is_open=False` also the answered ones; the oldest first."""
        ...

    async def call(self, doubt: Doubt) -> Call:
        """Return the call of a doubt with the values that it was started with."""
        ...

    async def answer(self, agent: str, doubt: Doubt, again: Unfinished | None = None) -> None:
        """Write an answer and the cycle that makes the call again, in one transaction; durable when this returns.

        Raises: ConflictError when it has been answered.
        """
        ...


class StateJournal(Protocol):
    """Small state that is written in the same transaction as the other writes of the moment."""

    def save(self, key: str, value: Any) -> None:
        """Write a value as `KeepsState.save` does. Raises: TooLargeError, ValueError; the former value stays."""

    def change(self, changes: Iterable[RowChange], work: str = "") -> None:
        """Write these small rows, in order, all or none.

        Args: work: an open cycle; the rows then become durable with its decision or its end, and not at all if it is
            cut off before.
        Raises: TooLargeError for a value of more than a megabyte; ValueError for one that is not JSON-able.
        """

    def count(self, agent: str, total: Mapping[str, Any]) -> None:
        """Write the totals of an agent's counts, in place of all that was written of them before."""

    async def counts(self, agent: str) -> Mapping[str, Any]:
        """Return the totals of an agent's counts.

        They are the last values of `count` plus what the cycles closed since have added: each cycle with a record adds
        its outcome, its duration and phases, and `Closing.besides`.
        """
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
        """Return the used amounts by window and quantity, of all agents."""
        ...


@runtime_checkable
class Journal(
    CallJournal, ItemJournal, LetterJournal, CycleJournal, SuspectJournal, DoubtJournal, StateJournal, BudgetJournal,
    Protocol,
):  # fmt: skip
    """All that an agent records of its work while the store is open."""

    def append(self, fact: Fact, agent: str = "") -> None:
        """Record a fact of an agent, without waiting for the disk. A kind that no later process needs is not kept.

        Raises: ValueError, TooLargeError for one that cannot be stored; nothing of it is stored then.
        """

    def claim(self, agent: str, owner: object) -> None:
        """Reserve the work of an agent's name for an owner, who may claim it again.

        Raises: ConflictError while another owner has it.
        """

    def release(self, agent: str, owner: object) -> None:
        """End a claim; nothing happens if it belongs to another owner."""

    @property
    def is_safe(self) -> bool:
        """Return whether `safe` would return at once."""
        ...

    @property
    def is_behind(self) -> bool:
        """Return whether so much waits to be written that further writers should await `safe` first."""
        ...

    @property
    def refusal(self) -> str:
        """Return why nothing more can be accepted now; "" when it can."""
        ...


@runtime_checkable
class TakesFeedback(Protocol):
    """Journal of a store that knows the runs and cycles of its experiences."""

    def judged(self, credits: Sequence[Credit], feedback: Sequence[Feedback], /) -> None:
        """Count what helped and harmed, and apply later feedback, in the transaction of the moment's other writes.

        The end of a cycle has its own feedback in its `Closing`. Raises: ContractError when it cannot be accepted.
        """


@runtime_checkable
class KeepsJournal(Protocol):
    """Store with a journal; its class has the attribute, also while the store is closed.

    It also has `KeepsState` and `ReadsCycles`, which recovery needs.
    """

    @property
    def journal(self) -> Journal:
        """Return the journal while the store is open and can be written. Raises: SparError at other times."""
        ...
