"""Transcripts of an open memory: reads, searches, extends and deletes them.

`memory.transcripts` has the statements. The journal writes the entries of a cycle with its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from memory import transcripts
from memory.journal.queries import SessionQueries
from memory.transcripts import ReadTranscript, SupersededError
from spar.data.bounded import BoundedDict
from spar.records.transcript import Entry, FoundEntry, TranscriptSummary
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.engine.session import DatabaseSession
    from memory.journal.journal import Journal


#: Most sessions whose entries stay in memory, so that a later read continues from them, and about how many bytes.
_MOST_SESSIONS: Final = 64
_MOST_BYTES: Final = 16 << 20
#: Most words of a search; further words are ignored.
_MOST_WORDS: Final = 16


class Transcripts(SessionQueries):
    """Transcripts of an open memory.

    Args: file: returns the open file; journal: returns the journal, None when the memory is read-only; report: called
        for each row that cannot be read.
    """

    def __init__(
        self,
        file: Callable[[], DatabaseSession],
        journal: Callable[[], Journal | None],
        report: Callable[[Fault], None],
    ) -> None:
        super().__init__(lambda query: file().read(query), self._hand_over, report)
        self._opened, self._journal = file, journal
        #: Entries of the sessions that were read last, from which a later read continues, and the file they are from.
        self._known: BoundedDict[tuple[str, str], ReadTranscript] = BoundedDict(_MOST_SESSIONS)
        self._read_from: DatabaseSession | None = None

    def _hand_over(self) -> None:
        if (journal := self._journal()) is not None:
            journal.hand_over()

    async def read(self, agent: str, session: str) -> list[Entry]:
        """Return the entries of a session for a planner, oldest first: the last compaction, then the entries that it
        kept and those after it. Of more than 5,000 entries or 16 MB it returns the newest that fit. No entry is cut.

        Raises: TransientError when the file cannot be read now.
        """
        key, file = (agent, session), self._opened()
        if self._read_from is not file:
            self._read_from = file
            self._known.clear()
        known = self._known.get(key, transcripts.UNREAD)
        known_now = await self._rows(partial(transcripts.read, agent=agent, session=session, before=known))
        if self._read_from is file:
            self._known[key] = known_now
            while len(self._known) > 1 and sum(transcript.bytes for transcript in self._known.values()) > _MOST_BYTES:
                self._known.popitem(last=False)
        return list(known_now.entries)

    async def tail(self, agent: str, session: str, limit: int = 50, before: int | None = None) -> list[Entry]:
        """Return the newest entries, oldest first, also those that a compaction summed up; at most 10,000 or 16 MB.

        Args: before: the `seq` of an entry that was read: only earlier entries are returned. Raises: TransientError.
        """
        return await self._rows(partial(transcripts.tail, agent=agent, session=session, limit=limit, before=before))

    async def search(self, agent: str, text: str, limit: int = 20, *, session: str | None = None) -> list[FoundEntry]:
        """Return the newest entries that contain all words of a text; none of a conversation that was reset or deleted.

        Raises: TransientError when the file cannot be read now.
        """
        words, most = text.split()[:_MOST_WORDS], max(0, min(limit, 1_000))
        asked = partial(transcripts.search, agent=agent, words=words, session=session)
        entries, before = await self._rows(partial(asked, limit=most, before=None))
        while before and len(entries) < most:
            more, before = await self._rows(partial(asked, limit=most - len(entries), before=before))
            entries += more
        return entries

    async def sessions(self, agent: str) -> list[TranscriptSummary]:
        """Return summaries of the sessions that have entries, the one with the newest entry first.

        Raises: TransientError.
        """
        return await self._read(lambda connection: transcripts.sessions(connection, agent))

    async def append(self, agent: str, session: str, run_id: str, entries: Sequence[Entry]) -> None:
        """Add entries that belong to no cycle, all or none, after all rows of the journal; durable when this returns.

        Cancelling stops the waiting, not the writing. Raises: FencedError when another run has taken the session over;
        SparError when the memory is closed or read-only; ValueError for an entry of another run.
        """
        rows = transcripts.rows(agent, session, run_id, [_of(entry, run_id) for entry in entries])
        file, journal = self._opened(), self._journal()
        _ = file.writer  # raises at once when read-only
        write_batch = journal.take_batch() if journal is not None else _nothing

        def write(connection: Connection) -> list[SupersededError]:
            write_batch(connection)
            return transcripts.append(connection, rows)

        # Refusals are returned and not raised in the transaction, since the journal's rows must be committed.
        for refusal in await file.commit(write, sum(row[5] for row in rows)):
            raise refusal

    async def forget(self, agent: str, session: str) -> int:
        """Delete all entries of a session. Return their number when that is durable.

        Raises: SparError when the memory is closed or read-only.
        """
        gone = step = await self._deleted(agent, session)
        while step:
            gone += (step := await self._deleted(agent, session))
        return gone

    async def _deleted(self, agent: str, session: str) -> int:
        self.hand_over()
        return await self._opened().commit(lambda connection: transcripts.forget(connection, agent, session))


def _of(entry: Entry, run_id: str) -> Entry:
    """Return the entry. Raises: ValueError when it names another run."""
    if entry.run_id not in ("", run_id):
        raise ValueError(f"an entry of run {entry.run_id!r:.100} cannot be added for run {run_id!r:.100}")
    return entry


def _nothing(connection: Connection) -> None:
    return None
