"""Work that was put aside because it was cut off or failed too often, until somebody deals with it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from spar.events import DeadLettered
from spar.journal import DeadLetter, Item, demanded, named
from spar.logs import get_logger
from spar.run import End

if TYPE_CHECKING:
    from spar.agent import Agent

log = get_logger("spar.recovery")


class DeadLetters:
    """The dead letters of one agent; their number by `len`, `totals` by kind since the process began."""

    __slots__ = ("_agent", "_known", "totals")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._known: set[str] = set()
        self.totals: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._known)

    async def load(self) -> None:
        """Know those that earlier processes have left."""
        self._known = {letter.id for letter in await self.list()}

    async def list(self) -> list[DeadLetter]:
        """Those that nobody has dealt with, the oldest first. Raises: ConflictError where no journal is kept."""
        return list(await demanded(self._agent.recovery.journal).dead_letters(self._agent.name))

    def add(self, item: Item) -> None:
        """Put this aside and tell; a run ends with it."""
        agent = self._agent
        why = item.fault.message if item.fault is not None else "the process ended with it in hand"
        reason = f"{item.attempts} attempts failed; the last: {why}"
        agent.recovery.journal.bury(agent.name, item, reason)
        self._known.add(item.id)
        self.totals[item.kind] += 1
        log.error("put aside", agent=agent.name, item=item.id, attempts=item.attempts, reason=why)
        agent.events.publish(DeadLettered(item=item.id, reason=reason, attempts=item.attempts))
        if item.kind == "run":
            run = agent.runs.restore(item, [])
            if run.started_at is None:
                agent.runs.start(run)
            agent.runs.end(run, End("error", reason))

    async def revive(self, id: str) -> Item:
        """Have it tried again, as if it were new. Raises: LookupError for an id that is none; ConflictError when it
        has been dealt with."""
        item = await self._take(id, waits=True)
        await self._agent.recovery.hand_out(item)
        return item

    async def bury(self, id: str) -> Item:
        """Have it be through for good. Raises: as `revive`."""
        return await self._take(id, waits=False)

    async def _take(self, id: str, *, waits: bool) -> Item:
        journal = demanded(self._agent.recovery.journal)
        letter: DeadLetter = named(await self.list(), id, "dead letter")
        item: Item = await journal.exhume(self._agent.name, letter, waits=waits)
        self._known.discard(letter.id)
        return item
