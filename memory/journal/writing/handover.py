"""The handing over of rows to the writer.

What is told within a moment is one unit of work: what belongs together becomes durable together, and a cycle that
begins and ends within that moment never leaves the row that says that it is open. Telling never waits; `safe` waits,
for a flush that all who wait at the time share.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memory.events import EventRow
from memory.journal import statements
from memory.journal.writing.batch import Batch, Write, many
from memory.journal.writing.facts import FactRows
from memory.journal.writing.flush import Flush
from spar.clock import Clock
from spar.errors import SparError
from spar.records.journal import Unfinished
from spar.types import Fault

if TYPE_CHECKING:
    from memory.sqlite.session import DatabaseSession

#: Seconds for which what nobody waits for is gathered, and how much of it may be.
MOMENT, MOST_GATHERED = 0.002, 1_000
#: Units that may wait for the writer before those who tell more are asked to wait.
MOST_BEHIND = 20
#: Seconds until what found no room at the writer is offered again.
AGAIN = 0.05

_open = many(statements.OPEN)


class Handover:
    """Gathers the rows that are told, and hands them to the writer of a file that is open.

    Args: facts: makes the rows; told: hears of what could not be written when nobody waits for it.

    `begun` are the cycles that have begun in this moment: by id, the agent's name and what makes the cycle. Its row is
    made when the moment is handed over, unless the cycle has been taken out of it again.
    """

    def __init__(self, file: DatabaseSession, clock: Clock, facts: FactRows, told: Callable[[Fault], None]) -> None:
        self._file, self._clock, self.facts, self._told = file, clock, facts, told
        self._batch, self._is_full = Batch(), False
        self.begun: dict[str, tuple[str, Callable[[], Unfinished]]] = {}
        self._held: deque[Batch] = deque()  # for which the writer has had no room
        self._turn: asyncio.Handle | None = None
        self._flush: Flush | None = None  # the last one that somebody waits for
        self._next_flush: Flush | None = None  # handed over at the end of this turn
        self._is_unsafe = False  # something was handed over that no flush covers

    # -- telling

    def note(self, fact: EventRow) -> None:
        """Add a fact to what is told in this moment."""
        batch = self._batch
        batch.events.append(fact)
        batch.size += len(fact[4])
        if self._turn is None:
            self._change()
        elif len(batch.events) >= MOST_GATHERED and not self._is_full:
            self._is_full = True
            self._calm()
            self._turn = asyncio.get_running_loop().call_soon(self.hand_over)  # not now: what belongs to it comes yet

    def add(self, write: Write, given: Any, size: int = 0) -> None:
        """Add a write of so many bytes to what is told in this moment."""
        batch = self._batch
        batch.add(write, given)
        batch.size += size
        if self._turn is None:
            self._change()

    def begin(self, cycle_id: str, agent: str, make: Callable[[], Unfinished]) -> None:
        """Note that a cycle has begun; `make` is asked for it only if it does not end in the same moment."""
        self.begun[cycle_id] = agent, make
        if self._turn is None:
            self._change()

    def open(self, cycle_id: str, agent: str, cycle: Unfinished) -> None:
        """Write the row that says that a cycle is open, whether it ends in this moment or not."""
        self.add(_open, self.facts.open_cycle(cycle_id, agent, cycle))

    # -- how far it is

    @property
    def is_safe(self) -> bool:
        """Return whether there is nothing that `safe` would wait for."""
        if self._is_unsafe or self._held or self._has_told:
            return False
        return self._flush is None or self._flush.done()

    @property
    def is_behind(self) -> bool:
        """Return whether so much waits for the writer that who tells more should wait for it: readers wait as long."""
        return bool(self._held) or self._file.pending > MOST_BEHIND

    @property
    def _has_told(self) -> bool:
        return bool(self._batch.events or self._batch.writes or self.begun)

    # -- handing over

    async def safe(self) -> None:
        """Return when everything told so far is safe. Raises: SparError when the memory is closed."""
        flush = self._next_flush or self._flush
        if self._next_flush is None and (self._has_told or self._held or self._is_unsafe):
            flush = Flush(self._unheard)
            if self._flush is None or self._flush.done():
                self._submit(flush)
            else:  # the writer is busy: what others tell in this turn of the loop goes with it
                self._next_flush = flush
                asyncio.get_running_loop().call_soon(self._submit_next)
        if flush is not None:
            with self._clock.working():
                await flush.over()

    def hand_over(self) -> None:
        """Give the writer what was told, in order; what it has no room for is offered again."""
        self._calm()
        if self._has_told:
            self._held.append(self._taken())
        while self._held:
            try:
                is_taken = self._file.writer.offer(self._held[0], self._held[0].size)
            except SparError as error:  # it was closed under us: nothing is kept any more
                self._held.clear()
                self._told(Fault("closed", f"what was to be written down is not kept: {error}", "memory"))
                return
            if not is_taken:
                self._turn = asyncio.get_running_loop().call_later(AGAIN, self.hand_over)
                return
            self._held.popleft()
            self._is_unsafe = True

    def taken(self) -> Batch:
        """Take the batch that was not handed over: the caller has it written, after what waits already."""
        self._calm()
        batch = self._taken()
        if self._held:
            self._submit(Flush(self._unheard))
        self._is_unsafe = True
        return batch

    def _submit_next(self) -> None:
        flush, self._next_flush = self._next_flush, None
        assert flush is not None
        try:
            self._submit(flush)
        except SparError as error:  # it was closed under us
            flush.set_exception(error)

    def _submit(self, flush: Flush) -> None:
        """Hand over with somebody waiting: the writer then has room and flushes. Raises: SparError when closing."""
        self._calm()
        self._held.append(self._taken())
        while self._held:
            batch = self._held[0]
            future = flush if len(self._held) == 1 else Flush(self._unheard)
            self._file.writer.answer(future, batch, batch.size)
            self._held.popleft()
        self._is_unsafe, self._flush = False, flush

    def _unheard(self, error: BaseException) -> None:
        self._told(Fault.of(error, part="memory"))

    def _taken(self) -> Batch:
        batch, self._batch, self._is_full = self._batch, Batch(), False
        if self.begun:
            begun = [(cycle_id, agent, make()) for cycle_id, (agent, make) in self.begun.items()]
            self.begun.clear()
            batch.events[:0] = [self.facts.opened(cycle_id, cycle) for cycle_id, _, cycle in begun]
            for cycle_id, agent, cycle in begun:
                batch.add(_open, self.facts.open_cycle(cycle_id, agent, cycle))
        return batch

    def _calm(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _change(self) -> None:
        self._turn = asyncio.get_running_loop().call_later(MOMENT, self.hand_over)
