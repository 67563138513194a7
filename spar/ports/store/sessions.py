"""Ports of stored sessions: transcripts, and their records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from spar.records.session import SessionRecord
from spar.records.transcript import Entry, TranscriptSummary


class TranscriptStore(Protocol):
    """Transcripts of sessions; entries are only added, by one run at a time for each session."""

    async def read(self, agent: str, session: str) -> Sequence[Entry]:
        """Return the entries for a planner, the oldest first.

        These are the last compaction (a summary of older entries), the entries that it kept and those after it; none
        from before the last reset.
        """

    async def tail(self, agent: str, session: str, limit: int = 50, before: int | None = None) -> Sequence[Entry]:
        """Return the newest entries, the oldest first, also those that a compaction has summarised.

        Args: before: the `seq` of an entry that was read.
        """

    async def sessions(self, agent: str) -> Sequence[TranscriptSummary]:
        """Return the sessions with stored entries, the one with the newest entry first."""

    async def append(self, agent: str, session: str, run_id: str, entries: Sequence[Entry]) -> None:
        """Add entries after all earlier writes of the journal, all or none; durable when this returns.

        A run takes over a session with its first entry there. `Entry.seq` grows strictly within a session.
        Raises: FencedError when another run has taken over the session since; ValueError for another run's entry.
        """


class SessionStore(Protocol):
    """Sessions of agents: one row for each key under which messages came."""

    async def get(self, agent: str, key: str) -> SessionRecord | None:
        """Return a session; None for an unknown one."""

    async def page(
        self, agent: str, limit: int = 50, before: tuple[datetime, str] | None = None
    ) -> Sequence[SessionRecord]:
        """Return sessions, the one that was used last first.

        Args: limit: the most sessions; before: time of use and key of a session that was read.
        """

    async def put(self, agent: str, record: SessionRecord) -> None:
        """Write title and defaults of a session, and create its row if there is none; durable when this returns."""

    async def forget(self, agent: str, key: str) -> int:
        """Delete the stored data of a session; durable when this returns.

        Returns: the number of deleted rows: its entries, its cycles, its ended runs, and its own row.
        """
