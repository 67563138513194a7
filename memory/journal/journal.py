"""The journal of a memory: facts become rows, in order, in as few transactions as possible.

Here it is put together: what is told becomes rows in `memory.journal.writing`, subject by subject, and is handed over
there; how it is read again is `memory.journal.queries`'s affair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from memory.journal import replay
from memory.journal.in_flight import InFlightFile, trait
from memory.journal.queries import JournalQueries
from memory.journal.writing.calls import CallFacts
from memory.journal.writing.cycles import OpenCycles
from memory.journal.writing.facts import FactRows
from memory.journal.writing.handover import Handover
from memory.journal.writing.state import SmallState
from memory.journal.writing.work import AcceptedWork
from spar.clock import Clock
from spar.errors import ConflictError
from spar.types import Fault, Perception

if TYPE_CHECKING:
    from memory.sqlite.session import DatabaseSession


class Journal(JournalQueries):
    """Implements the ports of `spar.ports.store.journal` on a file that is open.

    Args: hand: notes what is in hand; told: hears of rows that cannot be read, and of what cannot be written.

    The methods of its parts are its own attributes: what is told for each call passes through no further function.
    """

    def __init__(self, file: DatabaseSession, clock: Clock, hand: InFlightFile, told: Callable[[Fault], None]) -> None:
        super().__init__(lambda: file, told)
        self._file, self.hand = file, hand
        self._open_cycles: dict[str, str] = {}  # by cycle, the name of its agent
        self.epoch, self._fence = file.epoch, file.fence
        self._claims: dict[str, object] = {}

        self._handover = handover = Handover(file, clock, FactRows(clock, told), told)
        self.safe, self.taken = handover.safe, handover.taken

        state = SmallState(handover, self._open_cycles, clock, told)
        self.save, self.change, self.count, self.spend = state.save, state.change, state.count, state.spend

        work = AcceptedWork(file, handover, self._open_cycles, clock)
        self.accept, self.keep, self.bury, self.exhume = work.accept, work.keep, work.bury, work.exhume
        self.run_ended, self.amended = work.run_ended, work.amended
        self.doubted, self.answer = work.doubted, work.answer

        self._cycles = cycles = OpenCycles(handover, work, state, self._open_cycles, hand, file.writer.tell)
        self.opened, self.closed = cycles.opened, cycles.closed
        self.judged, self.reset = cycles.judged, cycles.reset

        calls = CallFacts(handover, cycles, state, self._open_cycles)
        self.acting, self.planned, self.started, self.ended = calls.acting, calls.planned, calls.started, calls.ended
        self.detached, self.attached = calls.detached, calls.attached

    async def load(self) -> None:
        """Learn which cycles an earlier process left open."""
        self._open_cycles.update(await self._file.read(replay.open_ids))

    # -- agents

    def claim(self, agent: str, owner: object) -> None:
        """Keep the work of an agent of this name, until it is released; its owner may claim it again.

        Raises: ConflictError while another agent of the name lives: each would take over the other's work.
        """
        if self._claims.setdefault(agent, owner) is not owner:
            raise ConflictError(f"an agent named {agent!r} works with this memory already; stop it, or name them apart")
        self._cycles.live |= {agent}

    def release(self, agent: str, owner: object) -> None:
        """Release the name of an agent that has ended; again, or for another's, it does nothing."""
        if self._claims.get(agent) is owner:
            del self._claims[agent]

    @property
    def live(self) -> frozenset[str]:
        """Return the agents that have used it since it was opened; from any thread."""
        return self._cycles.live

    # -- what is known of it

    def is_open(self, work: str) -> bool:
        """Return whether a cycle has begun and not ended, in this process or an earlier one."""
        return work in self._open_cycles

    @property
    def open_cycles(self) -> int:
        """Return how many cycles have begun and not ended."""
        return len(self._open_cycles)

    def next_fence(self, above: int = 0) -> int:
        """Return a number above `above` and all that were given before."""
        self._fence = max(self._fence, above) + 1
        return self._fence

    @staticmethod
    def trait(perception: Perception) -> str:
        """Return the mark by which a polled perception is recognised that was in hand when a process died."""
        return trait(perception)

    # -- what waits for the writer

    def hand_over(self) -> None:
        """Give the writer what was told so far."""
        self._handover.hand_over()

    @property
    def is_safe(self) -> bool:
        """Return whether there is nothing that `safe` would wait for."""
        return self._handover.is_safe

    @property
    def is_behind(self) -> bool:
        """Return whether so much waits for the writer that who tells more should wait for it: readers wait as long."""
        return self._handover.is_behind

    @property
    def refusal(self) -> str:
        """Why nothing more can be accepted now; empty when it can."""
        return "" if self._file.is_writable else f"it cannot be kept now: {self._file.writer.last_error}"
