"""Sessions of an open memory: finds, lists, sets and deletes them.

`memory.journal.rows` has the statements. The journal writes the session's row together with a message, and a
reset together with the end of the conversation's work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from memory.audit import Probe, audited
from memory.codec import safe
from memory.journal import session_rows
from memory.journal.queries import SessionQueries
from spar.clock import Clock, SystemClock
from spar.records.session import SessionRecord
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.engine.session import DatabaseSession
    from memory.journal.journal import Journal

#: Estimated bytes of a row, for the queue: the row is encoded later, in the writer's thread.
_ABOUT_A_ROW = 500


class SessionRows(SessionQueries):
    """Sessions of an open memory.

    Args: file: returns the open file; journal: returns the journal, None when the memory is read-only; report: called
        for each row that cannot be read; clock: returns the clock of the memory.
    """

    def __init__(
        self, file: Callable[[], DatabaseSession], journal: Callable[[], Journal | None],
        report: Callable[[Fault], None], clock: Callable[[], Clock] = SystemClock,
    ) -> None:  # fmt: skip
        super().__init__(lambda query: file().read(query), self._hand_over, report)
        self._opened, self._journal, self._clock = file, journal, clock

    def _hand_over(self) -> None:
        if (journal := self._journal()) is not None:
            journal.hand_over()

    async def get(self, agent: str, key: str) -> SessionRecord | None:
        """Return a session; None if it has no row. Raises: TransientError."""
        return await self._rows(partial(session_rows.one, agent=agent, key=key))

    async def page(
        self, agent: str, limit: int = 50, before: tuple[datetime, str] | None = None
    ) -> Sequence[SessionRecord]:
        """Return at most 1,000 sessions, the last used first. Raises: TransientError.

        Args: before: time of use and key of the last session of the page before.
        """
        return await self._rows(partial(session_rows.page, agent=agent, limit=limit, before=before))

    async def put(self, agent: str, record: SessionRecord) -> None:
        """Write title and defaults of a session, and make its row if there is none; durable when this returns.

        Raises: SparError when the memory is closed or read-only.
        """
        file = self._opened()
        file.demand_room()
        self.hand_over()

        def put(connection: Connection) -> None:
            session_rows.put(connection, agent, record)

        await file.commit(audited(put, "session", self._clock(), _row(agent, record.key)), _ABOUT_A_ROW)

    async def forget(self, agent: str, key: str) -> int:
        """Delete the transcript of a session, its cycles, the rows of its runs that have ended, and last its own row.

        Return the number of deleted rows when that is durable. If it is interrupted, the next call continues it.
        Raises: SparError when the memory is closed or read-only.
        """
        gone = step = await self._forgotten(agent, key)
        while step:
            gone += (step := await self._forgotten(agent, key))
        return gone

    async def _forgotten(self, agent: str, key: str) -> int:
        def forget(connection: Connection) -> int:
            return session_rows.forget(connection, agent, key)

        self.hand_over()
        return await self._opened().commit(audited(forget, "session", self._clock(), _row(agent, key)))


def _row(agent: str, key: str) -> Probe:
    return "SELECT body FROM session WHERE agent = ? AND key = ?", (safe(agent), safe(key))
