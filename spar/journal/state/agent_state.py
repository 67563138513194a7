"""State of an agent without a memory: its counts, as long as its process lives.

`spar.journal.state.stored_state` is that of an agent with one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from spar.facts import CycleWritten
from spar.health.error_reporting import ErrorReporter
from spar.loop.core import Core, Requests
from spar.loop.cycle import Cycle
from spar.observe.stats import Stats
from spar.ports.any_part import AgentControl
from spar.records.journal import Closing

if TYPE_CHECKING:
    from spar.data.reply import End
    from spar.decisions.finish import Consequence
    from spar.journal.in_memory import JournalInMemory
    from spar.journal.state.background_writer import BackgroundWriter
    from spar.ports.rows import OwnRows
    from spar.ports.store import Journal, TranscriptStore
    from spar.runs.runs import Run
    from spar.types import Ability

#: Abilities of an agent that has learnt nothing.
NO_ABILITIES: Mapping[str, Ability] = MappingProxyType({})


class AgentState:
    """State of one agent that nothing keeps, since it has no memory.

    Attributes: agent: stops when another process has taken the memory over; has what it learns.
    """

    is_strict = False  # see `CycleLog`

    __slots__ = ("__dict__", "_core", "_reports", "_requests", "abilities", "agent", "has_loaded", "has_pause",
                 "memory", "stands_by", "stats", "writer")  # fmt: skip

    def __init__(self, core: Core, memory: Any, stats: Stats, requests: Requests, reports: ErrorReporter,
                 agent: AgentControl) -> None:  # fmt: skip
        self._core, self.memory, self.stats = core, memory, stats
        self._requests, self._reports, self.agent = requests, reports, agent
        self.writer: BackgroundWriter | None = None
        self.abilities = NO_ABILITIES  # as they are now, once learning is attached
        self.has_loaded = self.has_pause = False
        self.stands_by = False  # whether the memory waits for a database that another process uses

    @property
    def state_store(self) -> Any:
        """Return the memory, if it can load and save states."""
        return None

    @property
    def journal(self) -> Journal | None:
        """Return the memory's journal while it is open; None without one."""
        return None

    @property
    def transcripts(self) -> TranscriptStore | None:
        """Return the memory's transcripts while its journal is open; None without them."""
        return None

    @cached_property
    def in_memory(self) -> JournalInMemory:
        """Journal in memory, which the first work or reader makes; it accepts none that a memory shall keep."""
        from spar.journal.in_memory import JournalInMemory

        refusal = (
            f"the memory of agent {self._core.name!r} is not open: nothing can be kept" if self.has_journal else ""
        )
        first: JournalInMemory = self.__dict__.setdefault("in_memory", JournalInMemory(refusal))
        return first  # of those that several threads have made

    def rows_of(self, name: str) -> OwnRows | None:
        """Return small rows of a module, under a name of its choice; None without a memory."""
        return None

    @property
    def has_journal(self) -> bool:
        """Return whether the memory keeps a journal when it is open, so that accepted work is on disk."""
        return False

    @property
    def account(self) -> dict[str, int]:
        """Return how many items the background writer has stored, has waiting, and has lost."""
        if (writer := self.writer) is None:
            return {"stored": 0, "waiting": 0, "lost": 0}
        return {"stored": writer.stored, "waiting": writer.waiting, "lost": writer.lost}

    def learn(self, cycle: Cycle) -> Sequence[str]:
        """Apply the abilities that a cycle taught; return the keys of changed and forgotten abilities."""
        taught = cycle.reflection
        if taught is None or not (taught.abilities or taught.failures or taught.feedback or taught.advised):
            return ()
        keys: Sequence[str] = () if (it := self.agent.learning) is None else it.learn(taught, cycle.abilities)
        return keys

    def remember(self, cycle: Cycle, duration: float) -> None:
        """Learn from a cycle, and give its experiences and its record to a memory without a journal, if there is
        one."""
        self.learn(cycle)
        if self._core.traces is not None:
            cycle.guarded(self._reports.closing_failed, cycle.recorded, self._core, duration, self._reports.note_failed)

    # -- cycles that no journal keeps: nothing is told of one, but that it has done with work that was accepted

    def closed(self, cycle: Cycle, duration: float, run: Run | None, end: End | None, what: Consequence) -> None:
        """Drop the perceptions that an ended cycle dealt with, and learn from it."""
        if done := tuple([item for item in cycle.items if run is None or item != run.id]):
            closing = Closing(cycle.outcome, done=done)
            self._core.ledger.add(CycleWritten(session=cycle.session, cycle=cycle.id, closing=closing))
        if not (cycle.outcome == "idle" or cycle.is_refused):
            self.remember(cycle, duration)

    # -- opening and closing

    def listen(self) -> None:
        """Subscribe to the memory's reports of failed writes, if it makes them."""

    def take_pause(self) -> str:
        """Return the time since which the former process was paused, once; "" if it was not."""
        return ""

    async def keep_pause(self, since: str | None) -> None:
        """Save the time since which the agent is paused; None if it is not. A failure is logged."""
        self.has_pause = since is not None

    async def stored_pause(self) -> bool:
        """Return whether the agent is stored as paused, perhaps by another process. Raises: errors of the store."""
        return self.has_pause

    async def load(self) -> None:
        """Load the saved state, the first time, and reserve event numbers. Raises: errors of the store."""
        self.has_loaded = True

    async def flush(self) -> None:
        """Wait until all accepted items are written. A failure is logged and does not keep the agent from stopping."""

    async def save(self) -> None:
        """Save the agent's state. A failure is logged and does not keep the agent from stopping."""
