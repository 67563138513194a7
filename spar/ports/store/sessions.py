"""Ports of what is kept of sessions: transcripts, and their records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from spar.records.session import SessionRecord
from spar.records.transcript import Entry


class SessionSummary(Protocol):
    """Kept entries of one session."""

    @property
    def session(self) -> str: ...
    @property
    def entries(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def last_at(self) -> datetime: ...


class TranscriptStore(Protocol):
    """The transcripts of sessions, only ever added to, each by one run at a time."""

    async def read(self, agent: str, session: str) -> Sequence[Entry]:
        """Return what a planner reads: the last compaction, then what that kept and what came after, oldest first, and
        nothing from before the last reset."""
        ...

    async def tail(self, agent: str, session: str, limit: int = 50, before: int | None = None) -> Sequence[Entry]:
        """Return the newest entries, oldest first, summed up or not.

        Args: before: the `seq` of an entry that was seen.
        """
        ...

    async def sessions(self, agent: str) -> Sequence[SessionSummary]:
        """Return the sessions of which something is kept, the last one that was added to first."""
        ...

    async def append(self, agent: str, session: str, run_id: str, entries: Sequence[Entry]) -> None:
        """Add entries after all that the journal was told, all or none; durable when this returns.

        A run takes a session over with its first entry there. `Entry.seq` grows strictly within a session.
        Raises: FencedError when another run has taken the session over since; ValueError for another run's entry.
        """
        ...


@runtime_checkable
class KeepsTranscripts(Protocol):
    """A store of transcripts."""

    @property
    def transcripts(self) -> TranscriptStore: ...


class SessionStore(Protocol):
    """The sessions of agents: a row for each key under which messages came."""

    async def get(self, agent: str, key: str) -> SessionRecord | None:
        """Return a session; None for one that is not kept."""
        ...

    async def page(
        self, agent: str, limit: int = 50, before: tuple[datetime, str] | None = None
    ) -> Sequence[SessionRecord]:
        """Return sessions, the one that was used last first.

        Args: limit: how many at most; before: time of use and key of one that was seen.
        """
        ...

    async def put(self, agent: str, record: SessionRecord) -> None:
        """Write title and defaults of a session, and make its row if there is none; durable when this returns."""
        ...

    async def forget(self, agent: str, key: str) -> int:
        """Delete what is kept of a session; durable when this returns.

        Returns: how many rows went: its entries, its cycles, its runs that have ended, and last its own.
        """
        ...


@runtime_checkable
class KeepsSessions(Protocol):
    """A store of sessions."""

    @property
    def sessions(self) -> SessionStore: ...
