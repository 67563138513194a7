"""Cycles of an open memory, and what recovery has left to people.

`memory.cycle_log` has the statements. The journal writes the end of a cycle.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from memory import cycle_log
from memory.journal import queries
from memory.stores.open_memory import MOST_ROWS, OpenMemory
from spar.records.journal import DeadLetter, Doubt, Item
from spar.types import CycleRecord, replace

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from spar.records.runs import RunRow


class CycleStore(OpenMemory):
    """Store of the cycles of a memory."""

    async def record(self, cycle: CycleRecord) -> None:
        """Accept a cycle for the cycle log; it replaces a cycle with the same id. Waits only while the queue is full.

        Raises: ContractError when it is no cycle; SparError when the memory is closed or read-only.
        """
        row = cycle_log.row(cycle)
        self._file.demand_room()
        await self._file.put(lambda connection: cycle_log.insert(connection, row), cycle_log.size_of(row))

    async def cycles(
        self,
        limit: int = 20,
        before: str | datetime | None = None,
        outcome: str | None = None,
        session: str | None = None,
        failed: bool = False,
        since: datetime | None = None,
    ) -> list[dict[str, Any]]:
        """Return summaries of cycles, the newest first, at most 10,000.

        Args: before: a time, or the id of the last cycle that was read; failed: only cycles that failed or had a call
            that failed; since: only those that began at this time or later.
        """
        most = max(0, min(limit, MOST_ROWS))
        return await self._read(
            lambda connection: cycle_log.summaries(connection, most, before, outcome, session, since, is_failed=failed)
        )

    async def cycle(self, cycle_id: str) -> CycleRecord | None:
        """Return the cycle with this id or unique beginning of an id; None for an unknown one.

        Raises: LookupError when several ids begin so.
        """
        record = await self._read(lambda connection: cycle_log.find(connection, cycle_id))
        if record is not None:
            self._unreadable += sum(fault.kind == "unreadable" for fault in record.faults)
        return record

    async def cycle_records(
        self, limit: int, *, after: str | None = None, before: str | None = None, since: datetime | None = None
    ) -> list[CycleRecord]:
        """Return whole cycles, the oldest first, at most 10,000.

        Args: after: the id of the cycle that they follow; before: the newest before the cycle of this id; since: only
            those that began at this time or later.
        Raises: LookupError for an id that is no cycle.
        """
        most = max(0, min(limit, MOST_ROWS))
        return await self._read(
            lambda connection: cycle_log.records(connection, most, after=after, before=before, since=since)
        )

    async def run_rows(
        self, agent: str, limit: int, before: str | None = None, since: datetime | None = None, *, is_open: bool = False
    ) -> list[RunRow]:
        """Return runs, the newest first, at most 10,000; one that waits is `running` if cycles have worked on it.

        Args: before: the id of the last run that was read; is_open: only those that have not ended.
        """
        missed: list[str] = []
        most = max(0, min(limit, MOST_ROWS))
        rows = await self._read(
            lambda connection: queries.run_rows(connection, agent, most, before, since, missed, is_open=is_open)
        )
        self._unreadable += len(missed)
        return rows

    async def run_record(self, agent: str, run_id: str) -> tuple[Item | None, dict[str, Any] | None]:
        """Return a run's item while it waits, its answer once it has ended; None twice for an unknown run."""
        return await self._read(lambda connection: queries.run(connection, agent, run_id))

    async def left(self, agent: str) -> tuple[list[Doubt], list[DeadLetter]]:
        """Return what recovery of an agent has left to people, also when read-only; the oldest first.

        These are the calls that are or were in doubt, and the dead letters: items that were put aside. Calls of cycles
        that have not ended are among them: a process that was cut off has left those, and the next start writes them.
        """

        missed: list[str] = []

        def look(connection: Connection) -> tuple[list[Doubt], list[DeadLetter]]:
            doubts = queries.doubts(connection, agent, missed, is_open=False)
            known = {doubt.id for doubt in doubts}
            doubts += [cut for cut in queries.cut_calls(connection, agent, missed) if cut.id not in known]
            started = [replace(doubt, call=queries.call(connection, doubt)) for doubt in doubts]
            return started, queries.dead_letters(connection, agent, missed)

        doubts_and_letters = await self._read(look)
        self._unreadable += len(missed)
        return doubts_and_letters
