"""Port of the journal: facts are written with two operations, and read as views."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from spar.protocols.host import CallJournal
from spar.records.journal import DeadLetter, Doubt, Item, Spend, Unfinished
from spar.types import Call

if TYPE_CHECKING:
    from spar.facts import Fact


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
    """View of runs, which every journal has."""

    async def run(self, agent: str, run_id: str) -> tuple[Item | None, Mapping[str, Any] | None]:
        """Return a run's item while it waits, its answer once it has ended; None twice for an unknown run."""


class Views(RunViews, Protocol):
    """All rows of the journal of a store, kept from its facts; a view contains all that was written before it is read.

    Rows are returned in the order of their times, the oldest first, except where a method says another order. One that
    cannot be read is reported as a fault and left out.
    """

    async def items(self, agent: str) -> Sequence[Item]:
        """Return the waiting work."""

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

    async def spent(self) -> Sequence[Spend]:
        """Return the used amounts of budgets by window and quantity, of all agents."""


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


@runtime_checkable
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
