"""Transcripts: entries about what was said and done in the sessions of an agent.

Entries are added and never changed, and only one run at a time adds entries to a session. A run takes a session over
with its first entry. From then on, entries of earlier runs are refused, in the transaction that would write them. The
entries of a cycle are written with the cycle's end, by the journal. This module writes entries that belong to no cycle,
and reads all entries.

All functions use a connection. Functions that write run in the writer's thread inside its transaction. They may be
called again after the transaction was rolled back. `Transcripts` is the store that runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from memory.codec import decode, encode, encoded, moment, safe, sealed, seconds
from memory.engine.session import SessionQueries, nothing
from memory.engine.transactions import Question
from spar.clock import Clock
from spar.data.bounded import BoundedDict
from spar.data.scrub import mask_json
from spar.errors import FencedError, PermanentError
from spar.failpoints import armed, crashpoint
from spar.records.transcript import Entry, FoundEntry, TranscriptSummary
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.engine.session import DatabaseSession

#: Most bytes of one entry's body; a larger body is cut.
MOST_BYTES = 16 << 20
#: Most bytes and entries that one read of a session returns, and most entries that people are shown at once.
READ_BYTES, READ_ENTRIES, SHOWN_ENTRIES = 16 << 20, 5_000, 10_000
_ROW_OVERHEAD = 150  # bytes of columns and index entries beside the body
BATCH = 250  # entries deleted at once
SEARCHED = 20_000  # entries that one step of a search looks through
_NO_END = 1 << 62

_INSERT = "INSERT INTO transcript (agent, session, run, kind, at, bytes, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
_COLUMNS = "SELECT seq, run, kind, at, body, bytes FROM transcript"
_LAST = (
    "SELECT run, EXISTS (SELECT 1 FROM writer WHERE agent = ?1 AND session = ?2 AND run = ?3) FROM writer "
    "WHERE agent = ?1 AND session = ?2 ORDER BY seq DESC LIMIT 1"
)
_CLAIM = "INSERT INTO writer (agent, session, run, at) VALUES (?, ?, ?, ?)"


class TranscriptRow(NamedTuple):
    """Columns of an entry to write."""

    agent: str
    session: str
    run: str
    kind: str
    at: float
    bytes: int
    body: str


class SupersededError(FencedError):
    """Error of a run whose session was taken over by another run: its entries are not stored, and it must stop."""

    def __init__(self, session: str, run_id: str, now: str) -> None:
        self.own = self.found = 0  # both runs are of the same process, so no epoch differs
        PermanentError.__init__(
            self, f"session {session!r:.100} was taken over by run {now!r:.100}: run {run_id!r:.100} adds nothing more"
        )


# -- writing


def rows(agent: str, session: str, run_id: str, entries: Sequence[Entry]) -> list[TranscriptRow]:
    """Return the rows of entries; an entry without a run belongs to `run_id`.

    Called when the entries are accepted, so that later changes of the values do not reach the file.
    """
    agent, session, result, texts = safe(agent), safe(session), list[TranscriptRow](), list[str]()
    for entry in entries:
        text, was_cut = encoded(entry.body, limit=MOST_BYTES)
        texts.append(_marked(text) if was_cut else text)
    for entry, masked in zip(entries, list(map(mask_json, texts)), strict=True):
        body, run = sealed(masked), safe(entry.run_id or run_id)
        size = len(body) + _ROW_OVERHEAD
        result.append(TranscriptRow(agent, session, run, entry.kind, seconds(entry.at), size, body))
    return result


def _marked(text: str) -> str:
    """Return a body that was cut with a mark that says so."""
    return encode({**decode(text, dict[str, Any]), "truncated": True}, limit=2 * MOST_BYTES)


def append(connection: Connection, given: Sequence[TranscriptRow]) -> list[SupersededError]:
    """Add the entries whose runs may still write in their sessions. Return an error for each run that may not."""
    refused: dict[tuple[str, str, str], SupersededError] = {}
    held: dict[tuple[str, str], str] = {}
    for row in given:
        agent, session, run, _, at, *_ = row
        if held.get((agent, session)) != run:
            if (agent, session, run) in refused:
                continue
            if (now := _claim(connection, agent, session, run, at)) != run:
                refused[agent, session, run] = SupersededError(session, run, now)
                continue
            held[agent, session] = run
        connection.execute(_INSERT, row)
    if armed:
        crashpoint("transcript.appended")
    return list(refused.values())


def question(row: TranscriptRow) -> Question:
    """Return what the addition of an entry asks first."""
    return Question((row[:2],), (_LAST, row[:3]))


def _claim(connection: Connection, agent: str, session: str, run: str, at: float) -> str:
    """Return the run that may write in a session now: this one if it wrote last, or if it never wrote there."""
    now, has_written = connection.execute(_LAST, (agent, session, run)).fetchone() or ("", False)
    if not has_written:
        connection.execute(_CLAIM, (agent, session, run, at))
        return run
    return str(now)


def forget(connection: Connection, agent: str, session: str) -> int:
    """Delete one batch of a session's entries. Return the number of deleted entries.

    The rows about its runs stay, so that an earlier run still cannot write.
    """
    connection.execute(
        "DELETE FROM transcript WHERE seq IN (SELECT seq FROM transcript WHERE agent = ? AND session = ? LIMIT ?)",
        (safe(agent), safe(session), BATCH),
    )
    return connection.changes()


# -- reading


class ReadTranscript(Struct, frozen=True):
    """Entries of a session that were read, and the place from which a later read continues.

    `last` is the number of the last row that was read, `rows` the number of the session's rows up to it, `bytes` the
    size of the rows of `entries`. A later read continues after `last` while the session has as many rows up to it.
    """

    entries: tuple[Entry, ...] = ()
    last: int = 0
    rows: int = 0
    bytes: int = 0


UNREAD: Final = ReadTranscript()


def read(
    connection: Connection, agent: str, session: str, missed: list[str], before: ReadTranscript = UNREAD
) -> ReadTranscript:
    """Return the entries of a session for a planner: the last compaction, then the entries that it kept and later ones.

    These are at most the newest `READ_ENTRIES` entries or `READ_BYTES` bytes, and none from before the last reset.
    While the earlier result `before` is still valid, only the entries added after it are read from the file.
    """
    of = safe(agent), safe(session)
    where = " WHERE agent = ? AND session = ?"
    count = f"SELECT count(*) FROM transcript{where} AND seq <= ?"
    begun = connection.execute(f"SELECT max(seq) FROM transcript{where} AND kind = 'reset'", of).get or 0
    compactions = f"{where} AND kind = 'compaction' AND seq > {int(begun)} ORDER BY seq DESC"
    compacted = connection.execute(f"SELECT seq FROM transcript{compactions} LIMIT 1", of).get or 0
    if (
        before.rows
        and max(begun, compacted) <= before.last
        and connection.execute(count, (*of, before.last)).get == before.rows
    ):
        more = f"{_COLUMNS}{where} AND seq > ? ORDER BY seq LIMIT ?"
        new = list(connection.execute(more, (*of, before.last, READ_ENTRIES)))
        size = before.bytes + sum(int(row[5]) for row in new)
        if len(before.entries) + len(new) <= READ_ENTRIES and size <= READ_BYTES:
            entries = [entry for row in new if (entry := _entry(row, missed)) is not None]
            last = int(new[-1][0]) if new else before.last
            return ReadTranscript((*before.entries, *entries), last, before.rows + len(new), size)
    summaries = connection.execute(f"{_COLUMNS}{compactions}", of)
    summary = next((entry for row in summaries if (entry := _entry(row, missed)) is not None), None)
    first = int(begun) + 1
    if summary is not None:
        first_kept = summary.body.get("first_kept")
        first = max(first, first_kept if isinstance(first_kept, int) and first_kept > 0 else summary.seq)
    newest = f"{_COLUMNS}{where} AND seq >= ? AND kind <> 'compaction' ORDER BY seq DESC LIMIT ?"
    unsummed = _that_fit(connection, newest, (*of, first, READ_ENTRIES), missed)
    last = max(
        [last_entry.seq for last_entry in unsummed[-1:]] + ([summary.seq] if summary is not None else []), default=0
    )
    size = connection.execute(f"SELECT coalesce(sum(bytes), 0) FROM transcript{where} AND seq BETWEEN ? AND ?",
                              (*of, unsummed[0].seq if unsummed else last, last)).get  # fmt: skip
    rows = int(connection.execute(count, (*of, last)).get)
    return ReadTranscript(tuple(unsummed if summary is None else [summary, *unsummed]), last, rows, int(size))


def tail(
    connection: Connection, agent: str, session: str, limit: int, before: int | None, missed: list[str]
) -> list[Entry]:
    """Return the newest entries of a session, oldest first, also those that a compaction summed up.

    `before` is the number of an entry that was read: only earlier entries are returned.
    """
    newest = f"{_COLUMNS} WHERE agent = ? AND session = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
    end = _NO_END if before is None else before
    bindings = safe(agent), safe(session), end, max(0, min(limit, SHOWN_ENTRIES))
    return _that_fit(connection, newest, bindings, missed)


def _that_fit(connection: Connection, newest: str, bindings: tuple[Any, ...], missed: list[str]) -> list[Entry]:
    """Return the first entries of a query that fit into `READ_BYTES`, in reverse order: a query is newest first."""
    room, entries = READ_BYTES, []
    for row in connection.execute(newest, bindings):
        room -= int(row[5])
        if room < 0:
            break
        if (entry := _entry(row, missed)) is not None:
            entries.append(entry)
    return entries[::-1]


def search(
    connection: Connection,
    agent: str,
    words: Sequence[str],
    session: str | None,
    limit: int,
    before: int | None,
    missed: list[str],
) -> tuple[list[FoundEntry], int]:
    """Return the newest entries that contain all words, and the `before` of the next step, 0 after the last step.

    Entries from before the last reset of their session are left out. One step looks through `SEARCHED` entries of all
    agents, so that other reads can run between two steps.
    Args: before: look only at entries before this number; None for all.
    """
    [(oldest, newest)] = connection.execute("SELECT min(seq), max(seq) FROM transcript")
    if not words or newest is None:
        return [], 0
    end = int(newest) + 1 if before is None else before
    begin = end - SEARCHED
    reset = (
        "coalesce((SELECT max(r.seq) FROM transcript AS r WHERE r.agent = t.agent AND r.session = t.session "
        "AND r.kind = 'reset'), 0)"
    )
    matches, bindings = list[FoundEntry](), list[Any]()
    conditions = []
    for word in words:
        # Bodies are ASCII: other letters are stored as escapes, and SQL cannot change the case of an escape.
        forms = dict.fromkeys(encode(form)[1:-1] for form in (word, word.lower(), word.upper(), word.capitalize()))
        conditions.append(f"({' OR '.join(['instr(lower(t.body), lower(?)) > 0'] * len(forms))})")
        bindings += forms
    sql = (
        f"SELECT t.session, t.seq, t.run, t.kind, t.at, t.body, t.bytes FROM transcript AS t WHERE t.agent = ? "
        f"AND t.seq >= ? AND t.seq < ? {'AND t.session = ? ' if session else ''}"
        f"AND t.kind IN ('user', 'turn', 'end', 'compaction') AND {' AND '.join(conditions)} AND t.seq > {reset} "
        "ORDER BY t.seq DESC LIMIT ?"
    )
    of = (safe(agent), begin, end, *((safe(session),) if session else ()))
    for of_session, *row in connection.execute(sql, (*of, *bindings, limit)):
        if (entry := _entry(row, missed)) is not None:
            matches.append(FoundEntry(str(of_session), entry))
    return matches, begin if begin > int(oldest) else 0


def sessions(connection: Connection, agent: str) -> list[TranscriptSummary]:
    """Return summaries of the sessions that have entries, the one with the newest entry first; at most 10,000."""
    summaries = connection.execute(
        "SELECT session, number, size, at, run FROM (SELECT session, count(*) AS number, sum(bytes) AS size, "
        "max(seq) AS last FROM transcript WHERE agent = ? GROUP BY session ORDER BY last DESC LIMIT ?) AS newest "
        "JOIN transcript USING (session) WHERE seq = last ORDER BY last DESC",
        (safe(agent), SHOWN_ENTRIES),
    )
    return [
        TranscriptSummary(str(session), int(number), int(size), moment(at), str(run))
        for session, number, size, at, run in summaries
    ]


def _entry(row: Any, missed: list[str]) -> Entry | None:
    seq, run, kind, at, body, _ = row
    try:
        return Entry(kind, decode(str(body), dict[str, Any]), str(run), int(seq), moment(at))
    except (ValueError, RecursionError) as error:
        missed.append(f"transcript {seq}: {error}")
        return None


# -- the store

#: Most sessions whose entries stay in memory, so that a later read continues from them, and about how many bytes.
_MOST_SESSIONS: Final = 64
_KNOWN_BYTES: Final = 16 << 20
#: Most words of a search; further words are ignored.
_MOST_WORDS: Final = 16


class Opened(NamedTuple):
    """Access to what a memory has open now: functions that return its file, its journal (None when it is read-only) and
    its clock, and one that is called for each row that cannot be read."""

    file: Callable[[], DatabaseSession]
    journal: Callable[[], Any]
    clock: Callable[[], Clock]
    report: Callable[[Fault], None]


class OpenRows(SessionQueries):
    """Base of the rows of an open memory."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(lambda query: opened.file().read(query), self._hand_over, opened.report)
        self._opened = opened

    def _hand_over(self) -> None:
        if (journal := self._opened.journal()) is not None:
            journal.hand_over()

    async def _delete(self, batch: Callable[[], Callable[[Connection], int]]) -> int:
        """Delete in batches until none is left. Return the number of deleted rows when that is durable.

        Args: batch: returns the work that deletes one. Raises: SparError when the memory is closed or read-only.
        """
        gone, step = 0, 1
        while step:
            self.hand_over()
            step = await self._opened.file().commit(batch())
            gone += step
        return gone


class Transcripts(OpenRows):
    """Transcripts of an open memory."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        #: Entries of the sessions that were read last, from which a later read continues, and the file they are from.
        self._known: BoundedDict[tuple[str, str], ReadTranscript] = BoundedDict(_MOST_SESSIONS)
        self._read_from: DatabaseSession | None = None

    async def read(self, agent: str, session: str) -> list[Entry]:
        """Return the entries of a session for a planner, oldest first: the last compaction, then the entries that it
        kept and those after it. Of more than 5,000 entries or 16 MB it returns the newest that fit. No entry is cut.

        Raises: TransientError when the file cannot be read now.
        """
        key, file = (agent, session), self._opened.file()
        if self._read_from is not file:
            self._read_from = file
            self._known.clear()
        known = self._known.get(key, UNREAD)
        known_now = await self._rows(partial(read, agent=agent, session=session, before=known))
        if self._read_from is file:
            self._known[key] = known_now
            while len(self._known) > 1 and sum(transcript.bytes for transcript in self._known.values()) > _KNOWN_BYTES:
                self._known.popitem(last=False)
        return list(known_now.entries)

    async def tail(self, agent: str, session: str, limit: int = 50, before: int | None = None) -> list[Entry]:
        """Return the newest entries, oldest first, also those that a compaction summed up; at most 10,000 or 16 MB.

        Args: before: the `seq` of an entry that was read: only earlier entries are returned. Raises: TransientError.
        """
        return await self._rows(partial(tail, agent=agent, session=session, limit=limit, before=before))

    async def search(self, agent: str, text: str, limit: int = 20, *, session: str | None = None) -> list[FoundEntry]:
        """Return the newest entries that contain all words of a text; none of a conversation that was reset or deleted.

        Raises: TransientError when the file cannot be read now.
        """
        words, most = text.split()[:_MOST_WORDS], max(0, min(limit, 1_000))
        asked = partial(search, agent=agent, words=words, session=session)
        entries, before = await self._rows(partial(asked, limit=most, before=None))
        while before and len(entries) < most:
            more, before = await self._rows(partial(asked, limit=most - len(entries), before=before))
            entries += more
        return entries

    async def sessions(self, agent: str) -> list[TranscriptSummary]:
        """Return summaries of the sessions that have entries, the one with the newest entry first.

        Raises: TransientError.
        """
        return await self._read(lambda connection: sessions(connection, agent))

    async def append(self, agent: str, session: str, run_id: str, entries: Sequence[Entry]) -> None:
        """Add entries that belong to no cycle, all or none, after all rows of the journal; durable when this returns.

        Cancelling stops the waiting, not the writing. Raises: FencedError when another run has taken the session over;
        SparError when the memory is closed or read-only; ValueError for an entry of another run.
        """
        new = rows(agent, session, run_id, [_of(entry, run_id) for entry in entries])
        file, journal = self._opened.file(), self._opened.journal()
        _ = file.writer  # raises at once when read-only
        write_batch = journal.take_batch() if journal is not None else nothing

        def write(connection: Connection) -> list[SupersededError]:
            write_batch(connection)
            return append(connection, new)

        # Refusals are returned and not raised in the transaction, since the journal's rows must be committed.
        for refusal in await file.commit(write, sum(row.bytes for row in new)):
            raise refusal

    async def forget(self, agent: str, session: str) -> int:
        """Delete all entries of a session. Return their number when that is durable.

        Raises: SparError when the memory is closed or read-only.
        """
        return await self._delete(lambda: partial(forget, agent=agent, session=session))


def _of(entry: Entry, run_id: str) -> Entry:
    """Return the entry. Raises: ValueError when it names another run."""
    if entry.run_id not in ("", run_id):
        raise ValueError(f"an entry of run {entry.run_id!r:.100} cannot be added for run {run_id!r:.100}")
    return entry
