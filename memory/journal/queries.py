"""Queries of the journal. Each first hands the gathered rows to the writer, so that it reads the latest state.

`memory.journal.replay` computes the values from the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from memory import own_rows
from memory.journal import counts, replay, statements
from spar.records.journal import DeadLetter, Doubt, Item, Spend, Unfinished
from spar.types import ActionResult, Call, Fault

if TYPE_CHECKING:
    from memory.engine.connection import Connection

R = TypeVar("R")


class SessionQueries:
    """Base of queries of the database file that is open now (a `DatabaseSession`, not a session of an agent).

    Args:
        read: Runs a query in the open file.
        hand_over: Gives the writer all rows that were gathered so far.
        report: Called once for each row that cannot be read.
    """

    def __init__(
        self, read: Callable[[Callable[[Connection], Any]], Coroutine[Any, Any, Any]], hand_over: Callable[[], None],
        report: Callable[[Fault], None],
    ) -> None:  # fmt: skip
        self._in_file, self.hand_over, self._report = read, hand_over, report
        self._missed: set[str] = set()

    def _read(self, query: Callable[[Connection], R]) -> Coroutine[Any, Any, R]:
        self.hand_over()
        return self._in_file(query)

    async def _rows(self, query: Callable[..., R]) -> R:
        """Return the result of a query, which adds to `missed` a description of each row that it cannot read."""
        missed: list[str] = []
        rows = await self._read(partial(query, missed=missed))
        for row in missed:
            if row not in self._missed:
                self._missed.add(row)
                message = f"a row cannot be read and is left where it is: {row}; see: spar memory verify"
                self._report(Fault("damaged", message, "memory", retryable=False))
        return rows


class JournalQueries(SessionQueries):
    """Queries of the journal."""

    async def items(self, agent: str) -> list[Item]:
        """Return the items that wait, the oldest first."""
        return await self._rows(partial(replay.items, agent=agent))

    async def unfinished(self, agent: str) -> list[Unfinished]:
        """Return the open cycles and the detached calls that have not ended, in the order of their ids."""
        return await self._rows(partial(replay.unfinished, agent=agent))

    async def interrupted(self, action_id: str) -> ActionResult | None:
        """Return the known results of an action that ran without a cycle; None if the action is unknown.

        A program without an agent passes them to `Executor.run(resume=…)`, which continues the action.
        """
        return await self._read(partial(replay.interrupted, work=action_id))

    async def doubts(self, agent: str, *, is_open: bool = True) -> list[Doubt]:
        """Return the calls in doubt, the oldest first. With `is_open=False` the answered ones are among them."""
        return await self._rows(partial(replay.doubts, agent=agent, is_open=is_open))

    async def dead_letters(self, agent: str) -> list[DeadLetter]:
        """Return the dead letters that nobody has dealt with, the oldest first."""
        return await self._rows(partial(replay.dead_letters, agent=agent))

    def run(self, agent: str, run_id: str) -> Coroutine[Any, Any, tuple[Item | None, dict[str, Any] | None]]:
        """Return a pair: the run's item while it waits, or its answer once it has ended. The other value is None.

        Both are None for an unknown run.
        """
        return self._read(partial(replay.run, agent=agent, run_id=run_id))

    async def recent_ids(self, agent: str, number: int) -> list[str]:
        """Return the ids of the items accepted last, whatever happened to them; the newest first."""
        return await self._read(partial(replay.recent_ids, agent=agent, number=number))

    async def call(self, doubt: Doubt) -> Call:
        """Return a call in doubt with the parameter values that it was started with."""
        return await self._read(partial(replay.call, doubt=doubt))

    async def rows(self, owner: str) -> dict[str, Any]:
        """Return the small rows of an owner, by key."""
        return await self._read(partial(own_rows.all_of, owner=owner))

    async def counts(self, agent: str) -> dict[str, Any]:
        """Return the counts of an agent, summed over all its cycles."""
        return await self._read(partial(counts.of, agent=agent))

    async def spent(self) -> list[Spend]:
        """Return the used amounts of budgets, by window and quantity."""
        return await self._read(statements.spent)
