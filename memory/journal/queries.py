"""Reads of the journal that include rows not yet written.

What the rows mean is `memory.journal.replay`'s affair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from memory import own_rows
from memory.journal import budgets, counts, replay
from spar.records.journal import DeadLetter, Doubt, Item, Spend, Unfinished
from spar.types import ActionResult, Call, Fault

if TYPE_CHECKING:
    from apsw import Connection

    from memory.sqlite.session import DatabaseSession

R = TypeVar("R")


class SessionQueries(ABC):
    """Reads of the file that is open now.

    Args: told: hears of each row that cannot be read, once.
    """

    def __init__(self, file: Callable[[], DatabaseSession], told: Callable[[Fault], None]) -> None:
        self._opened, self._told = file, told
        self._missed: set[str] = set()

    @abstractmethod
    def hand_over(self) -> None:
        """Give the writer what was told so far."""

    async def _read(self, work: Callable[[Connection], R]) -> R:
        self.hand_over()
        return await self._opened().read(work)

    async def _rows(self, read: Callable[..., R]) -> R:
        """Rows; `read` adds to `missed` what it cannot read."""
        missed: list[str] = []
        found = await self._read(partial(read, missed=missed))
        for row in missed:
            if row not in self._missed:
                self._missed.add(row)
                told = f"a row cannot be read and is left where it is: {row}; see: spar verify"
                self._told(Fault("damaged", told, "memory", retryable=False))
        return found


class JournalQueries(SessionQueries):
    """The queries of the journal."""

    async def items(self, agent: str) -> list[Item]:
        """Accepted work that waits, the oldest first."""
        return await self._rows(partial(replay.items, agent=agent))

    async def unfinished(self, agent: str) -> list[Unfinished]:
        """Return the cycles that are open, the oldest first, and the detached calls that were cut off."""
        return await self._rows(partial(replay.unfinished, agent=agent))

    async def interrupted(self, action_id: str) -> ActionResult | None:
        """Return the results of an action's calls that an executor of its own was carrying out, for its
        `run(resume=…)`; None when nothing is known of it."""
        return await self._read(partial(replay.interrupted, work=action_id))

    async def doubts(self, agent: str, *, is_open: bool = True) -> list[Doubt]:
        """Calls in doubt, or with `is_open=False` also the answered ones; the oldest first."""
        return await self._rows(partial(replay.doubts, agent=agent, is_open=is_open))

    async def dead_letters(self, agent: str) -> list[DeadLetter]:
        """Return the dead letters that nobody has dealt with, the oldest first."""
        return await self._rows(partial(replay.dead_letters, agent=agent))

    async def run(self, agent: str, run_id: str) -> tuple[Item | None, dict[str, Any] | None]:
        """Return the state of a run of any process: its item while it waits, its answer once it has ended."""
        return await self._read(partial(replay.run, agent=agent, run_id=run_id))

    async def recent_ids(self, agent: str, number: int) -> list[str]:
        """Return the ids of what was accepted last, whatever became of it."""
        return await self._read(partial(replay.recent_ids, agent=agent, number=number))

    async def call(self, doubt: Doubt) -> Call:
        """A call in doubt with the values that it was started with."""
        return await self._read(partial(replay.call, doubt=doubt))

    async def rows(self, owner: str) -> dict[str, Any]:
        """Return the small rows of an owner, by key."""
        return await self._read(partial(own_rows.all_of, owner=owner))

    async def counts(self, agent: str) -> dict[str, Any]:
        """Return what the counts of an agent come to."""
        return await self._read(partial(counts.of, agent=agent))

    async def spent(self) -> list[Spend]:
        """Return the amounts used of the budgets, by window and quantity."""
        return await self._read(budgets.all_of)
