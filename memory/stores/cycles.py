"""The tape of a memory that is open, and what recovery has left to people.

The statements are those of `memory.cycle_log`; the end of a cycle comes through the journal.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from memory import cycle_log
from memory.journal import replay
from memory.stores.open_memory import MOST_ROWS, OpenMemory
from spar.records.journal import DeadLetter, Doubt
from spar.types import CycleRecord, replace

if TYPE_CHECKING:
    from apsw import Connection


class CycleStore(OpenMemory):
    """The cycles of a memory."""

    async def record(self, cycle: CycleRecord) -> None:
        """Accept a cycle for the tape; waits only while the queue is full. One with a known id replaces it.

        Raises: ContractError when it is no cycle; SparError when closed or read-only.
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
    ) -> list[dict[str, Any]]:
        """Summaries, the newest first; `before` a time, or the id of the last one that was seen; `failed`: only cycles
        that failed or of whose calls one did."""
        most = max(0, min(limit, MOST_ROWS))
        return await self._read(
            lambda connection: cycle_log.summaries(connection, most, before, outcome, session, is_failed=failed)
        )

    async def cycle(self, cycle_id: str) -> CycleRecord | None:
        """Return the cycle with this id or unique beginning of one. Raises: LookupError when several begin so."""
        record = await self._read(lambda connection: cycle_log.find(connection, cycle_id))
        if record is not None:
            self._unreadable += sum(fault.kind == "unreadable" for fault in record.faults)
        return record

    async def left(self, agent: str) -> tuple[list[Doubt], list[DeadLetter]]:
        """Return what recovery has left to people, also when read-only: the calls of an agent that are or were in
        doubt, and what was put aside; the oldest first."""

        missed: list[str] = []

        def look(connection: Connection) -> tuple[list[Doubt], list[DeadLetter]]:
            doubts = replay.doubts(connection, agent, missed, is_open=False)
            started = [replace(doubt, call=replay.call(connection, doubt)) for doubt in doubts]
            return started, replay.dead_letters(connection, agent, missed)

        doubts_and_letters = await self._read(look)
        self._unreadable += len(missed)
        return doubts_and_letters
