"""Ports of the journal: accepted work, cycles, calls in doubt, small rows, budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from spar.records.journal import CallJournal, Closing, DeadLetter, Doubt, Item, RowChange, Spend, Unfinished
from spar.records.session import Reset, SessionUse
from spar.records.transcript import Entry
from spar.types import Call, Credit, Feedback, Perception


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
class TakesFeedback(Protocol):
    """A journal of a store that knows experiences by the runs and cycles that they came of."""

    def judged(self, credits: Sequence[Credit], feedback: Sequence[Feedback], /) -> None:
        """Count what helped and harmed, and change what later words say, together with what is told in the same
        moment; the end of a cycle has its own in its `Closing`. Raises: ContractError when it cannot be taken."""


@runtime_checkable
class KeepsJournal(Protocol):
    """A store with a journal; its class has the attribute, also while it is closed. It also has `KeepsState` and
    `ReadsCycles`, from which recovery goes on."""

    @property
    def journal(self) -> Journal:
        """The journal while the store is open and can be written. Raises: SparError at other times."""
        ...
