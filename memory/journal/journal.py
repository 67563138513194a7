"""Journal of a memory: its writes become rows, in order, in as few transactions as possible.

This module puts the parts of the journal together. The writes are in `memory.journal.writing`, a module for each
subject; the queries are in `memory.journal.queries`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from memory.journal import replay
from memory.journal.in_flight import InFlightFile
from memory.journal.queries import JournalQueries
from memory.journal.writing.calls import CallFacts
from memory.journal.writing.cycles import OpenCycles
from memory.journal.writing.facts import FactRows
from memory.journal.writing.handover import Committers, Handover, Writers
from memory.journal.writing.state import SmallState
from memory.journal.writing.work import AcceptedWork
from spar.clock import Clock
from spar.errors import ConflictError
from spar.facts import Fact
from spar.records.journal import Item
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.session import DatabaseSession


class Journal:
    """Journal on an open database file; it implements the protocols in `spar.ports.store.journal`.

    Args: file: the open database file, with its writer; hand: notes the names of the current work outside of the
        database; report: called for a row that cannot be read, and for rows that cannot be written while nobody waits
        for them.

    Each part writes some kinds of facts.
    """

    def __init__(
        self, file: DatabaseSession, clock: Clock, hand: InFlightFile, report: Callable[[Fault], None]
    ) -> None:
        self._file, self.hand = file, hand
        self._open_cycles: dict[str, str] = {}  # names of agents, by the id of a cycle or `cycle/call` if detached
        self.epoch, self._fence = file.epoch, file.fence
        self._claims: dict[str, object] = {}

        self._handover = handover = self._handover_of(file, clock, report)
        self.views = JournalQueries(lambda: file, handover.hand_over, report)
        self.safe, self.take_batch, self.hand_over = handover.safe, handover.take_batch, handover.hand_over

        state = SmallState(handover, self._open_cycles, clock, report)
        work = AcceptedWork(self._committing(file), handover, self._open_cycles, clock)
        self._cycles = cycles = OpenCycles(handover, state, self._open_cycles, hand, file.writer.report)
        calls = CallFacts(handover, cycles, state, self._open_cycles)
        self._writers: Writers = {**state.writers, **work.writers, **cycles.writers, **calls.writers}
        self._committers: Committers = work.committers

    def _handover_of(self, file: DatabaseSession, clock: Clock, report: Callable[[Fault], None]) -> Handover:
        return Handover(file, clock, FactRows(clock, file.writer.report), report)

    def _committing(self, file: DatabaseSession) -> Any:
        """Return the file as accepted work is committed to it."""
        return file

    async def load(self) -> None:
        """Read which cycles an earlier process left open."""
        self._open_cycles.update(await self._file.read(replay.open_ids))

    def append(self, fact: Fact, agent: str = "") -> None:
        """Write a fact of an agent without waiting for the disk. A kind that no later process needs is not written."""
        if (write := self._writers.get(type(fact))) is not None:
            write(fact, agent)

    async def commit(self, fact: Fact, agent: str) -> Item | None:
        """Write a fact that an earlier one may rule out; durable when this returns, and so are all facts before it.

        Returns: the earlier item of work that was accepted before; None for a fact that is new.
        Raises: ConflictError when the letter or doubt has been dealt with; TooLargeError; NoRoomError on a full disk;
            SparError when the store is closed.
        """
        return await self._committers[type(fact)](fact, agent)

    # -- agents

    def claim(self, agent: str, owner: object) -> Callable[[], None]:
        """Reserve an agent's name, and with it the work of that agent. The owner may claim it again.

        Returns: a function that ends the claim; nothing happens if another owner has the name by then.
        Raises: ConflictError while another owner has the name: two agents with one name would do each other's work.
        """
        if self._claims.setdefault(agent, owner) is not owner:
            raise ConflictError(f"an agent named {agent!r} works with this memory already; stop it, or name them apart")
        self._cycles.live |= {agent}
        return partial(self._release, agent, owner)

    def _release(self, agent: str, owner: object) -> None:
        if self._claims.get(agent) is owner:
            del self._claims[agent]

    @property
    def live(self) -> frozenset[str]:
        """Return the names of the agents that have used the journal since it was opened. Safe from any thread."""
        return self._cycles.live

    # -- open cycles and fences

    def is_open(self, work: str) -> bool:
        """Return whether a cycle has begun and not ended, in this process or an earlier one."""
        return work in self._open_cycles

    @property
    def open_cycles(self) -> int:
        """Return how many cycles have begun and not ended."""
        return len(self._open_cycles)

    def next_fence(self, above: int = 0) -> int:
        """Return a new fence: a number above `above` and above all numbers returned before."""
        self._fence = max(self._fence, above) + 1
        return self._fence

    # -- rows that wait for the writer

    def finish(self) -> int:
        """Give the writer all rows, also beyond its bounds. Return how many units it did not accept."""
        return self._handover.finish()

    @property
    def is_safe(self) -> bool:
        """Return whether `safe` would return at once."""
        return self._handover.is_safe

    @property
    def is_behind(self) -> bool:
        """Return whether so much waits for the writer that a caller should await `safe` before further writes.

        Queries wait until the writer has written what was handed over before them.
        """
        return self._handover.is_behind

    @property
    def refusal(self) -> str:
        """Return why nothing more can be accepted now; "" when it can."""
        return "" if self._file.is_writable else f"it cannot be kept now: {self._file.writer.last_error}"
