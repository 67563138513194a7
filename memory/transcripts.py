"""Transcripts: what was said and done in the sessions of an agent, only ever added to, and by one run at a time.

A run takes a session over with its first entry there; what an earlier one would still add is refused from then on, in
the transaction in which it would become durable. What a cycle adds comes with the cycle's end, through the journal;
here is added what is no part of a cycle, and here it is all read again.

The functions are those of a connection: what writes runs in the writer's thread inside its transaction and may be
called again when that had to be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from memory import retention
from memory.codec import decode, encode, encoded, safe, sealed
from memory.experiences.rows import seconds
from memory.journal.queries import Reads
from spar.errors import FencedError, PermanentError
from spar.failpoints import crashpoint
from spar.observe.scrub import mask
from spar.records.transcript import Entry
from spar.types import Fault

if TYPE_CHECKING:
    from apsw import Connection

    from memory.journal.journal import Journal
    from memory.sqlite.session import Opened

#: Format 4 adds these tables.
TABLES = """
CREATE TABLE transcript (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice
    agent    TEXT NOT NULL,
    session  TEXT NOT NULL,
    run      TEXT NOT NULL,
    kind     TEXT NOT NULL,     -- user, turn, end, compaction
    at       REAL NOT NULL,     -- seconds since 1970
    bytes    INTEGER NOT NULL,  -- about what the row takes
    body     TEXT NOT NULL
);
CREATE INDEX transcript_by_session ON transcript (agent, session, seq, bytes);
CREATE INDEX transcript_compacted ON transcript (agent, session, seq) WHERE kind = 'compaction';
CREATE TRIGGER transcript_stays BEFORE UPDATE ON transcript BEGIN
    SELECT RAISE(ABORT, 'a transcript is only added to');
END;

CREATE TABLE writer (           -- the runs that wrote in a session: the last of them may go on
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    agent    TEXT NOT NULL,
    session  TEXT NOT NULL,
    run      TEXT NOT NULL,
    at       REAL NOT NULL
);
CREATE UNIQUE INDEX writer_by_run ON writer (agent, session, run);
CREATE INDEX writer_by_session ON writer (agent, session, seq);
"""

#: Bytes of one entry's body; what is larger is kept cut.
MOST_BYTES = 16 << 20
#: What is read of a session at most, and what of one people look at.
READ_BYTES, READ_ENTRIES, SHOWN_ENTRIES = 16 << 20, 5_000, 10_000
#: Rows about which run wrote where, which are kept for as many days as entries; a run that was superseded is known
#: for as long.
_KEPT_WRITERS = 100_000
_ROW_OVERHEAD = 150  # bytes of columns and index entries beside the body
_DAY = 86_400.0
_NO_END = 1 << 62

_INSERT = "INSERT INTO transcript (agent, session, run, kind, at, bytes, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
_COLUMNS = "SELECT seq, run, kind, at, body, bytes FROM transcript"
_LAST = "SELECT run FROM writer WHERE agent = ? AND session = ? ORDER BY seq DESC LIMIT 1"
_CLAIM = "INSERT INTO writer (agent, session, run, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"

#: An entry as it will be written: agent, session, run, kind, at, bytes, body.
Row = tuple[str, str, str, str, float, int, str]


class SupersededError(FencedError):
    """Another run has taken the session over: what this one would add is not kept, and it must stop."""

    def __init__(self, session: str, run_id: str, now: str) -> None:
        self.own = self.found = 0  # it is the same process
        PermanentError.__init__(
            self, f"session {session!r:.100} was taken over by run {now!r:.100}: run {run_id!r:.100} adds nothing more"
        )


class Held(Struct, frozen=True):
    """What is kept of one session: how many entries of how many bytes, the time of the last, the run that writes."""

    session: str
    entries: int
    bytes: int
    last_at: datetime
    run_id: str


# -- writing


def rows(agent: str, session: str, run_id: str, entries: Sequence[Entry]) -> list[Row]:
    """Entries as they will be written; one that names no run is one of `run_id`. Made where they are accepted, so that
    nothing can change them before they are written."""
    return [_row(safe(agent), safe(session), safe(each.run_id or run_id), each) for each in entries]


def _row(agent: str, session: str, run: str, entry: Entry) -> Row:
    text, was_cut = encoded(entry.body, limit=MOST_BYTES)
    if was_cut:
        text = encode({**decode(text, dict[str, Any]), "truncated": True}, limit=2 * MOST_BYTES)
    body = sealed(mask(text))
    return agent, session, run, entry.kind, seconds(entry.at), len(body) + _ROW_OVERHEAD, body


def append(connection: Connection, given: Sequence[Row]) -> list[SupersededError]:
    """Add entries, each only if its run may still write in its session; of the runs that may not, why."""
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
    crashpoint("transcript.appended")
    return list(refused.values())


def _claim(connection: Connection, agent: str, session: str, run: str, at: float) -> str:
    """The run that writes in a session now: this one, if it does already or never has."""
    now = connection.execute(_LAST, (agent, session)).get
    if now == run:
        return run
    connection.execute(_CLAIM, (agent, session, run, at))
    return run if connection.changes() else str(now)


def forget(connection: Connection, agent: str, session: str) -> int:
    """Delete one batch of a session's entries; how many went. Who wrote there stays known: it may not write again."""
    connection.execute(
        "DELETE FROM transcript WHERE seq IN (SELECT seq FROM transcript WHERE agent = ? AND session = ? LIMIT ?)",
        (safe(agent), safe(session), retention.BATCH),
    )
    return connection.changes()


def trim(connection: Connection, limits: retention.Limits, now: float) -> int:
    """Delete one batch of the oldest entries, as far as they are due; how many rows went."""
    days = limits.transcript_days
    horizon = None if days is None else now - days * _DAY
    [(count, size)] = connection.execute("SELECT count(*), total(bytes) FROM transcript")
    over = 0 if limits.transcript_bytes is None else max(0, _int(size) - limits.transcript_bytes)
    oldest = [
        (float(str(at)), _int(each))
        for at, each in connection.execute("SELECT at, bytes FROM transcript ORDER BY seq LIMIT ?", (retention.BATCH,))
    ]
    number = retention.due(oldest, count=_int(count), keep=limits.transcripts, over=over, horizon=horizon)
    gone = 0
    if number:
        crashpoint("retention.delete")
        connection.execute("DELETE FROM transcript WHERE seq IN (SELECT seq FROM transcript ORDER BY seq LIMIT ?)",
                           (number,))  # fmt: skip
        gone += connection.changes()
    connection.execute(
        "DELETE FROM writer WHERE seq IN (SELECT seq FROM writer "
        "WHERE at < ? OR seq <= (SELECT max(seq) FROM writer) - ? ORDER BY seq LIMIT ?)",
        (-1e18 if horizon is None else horizon, _KEPT_WRITERS, retention.BATCH),
    )
    return gone + connection.changes()


# -- reading


def read(connection: Connection, agent: str, session: str, missed: list[str]) -> list[Entry]:
    """What a planner is to read of a session: the last compaction, then what it kept and what came after, as far back
    as there is room."""
    of = safe(agent), safe(session)
    where = " WHERE agent = ? AND session = ?"
    compactions = connection.execute(f"{_COLUMNS}{where} AND kind = 'compaction' ORDER BY seq DESC", of)
    summary = next((entry for row in compactions if (entry := _entry(row, missed)) is not None), None)
    first = 0
    if summary is not None:
        kept = summary.body.get("first_kept")
        first = kept if isinstance(kept, int) and kept > 0 else summary.seq
    newest = f"{_COLUMNS}{where} AND seq >= ? AND kind <> 'compaction' ORDER BY seq DESC LIMIT ?"
    entries = _that_fit(connection, newest, (*of, first, READ_ENTRIES), missed)
    return entries if summary is None else [summary, *entries]


def tail(
    connection: Connection, agent: str, session: str, limit: int, before: int | None, missed: list[str]
) -> list[Entry]:
    """The newest entries of a session, those too that were summed up, oldest first; `before` one that was seen."""
    newest = f"{_COLUMNS} WHERE agent = ? AND session = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
    end = _NO_END if before is None else before
    bindings = safe(agent), safe(session), end, max(0, min(limit, SHOWN_ENTRIES))
    return _that_fit(connection, newest, bindings, missed)


def _that_fit(connection: Connection, newest: str, bindings: tuple[Any, ...], missed: list[str]) -> list[Entry]:
    """The entries that a query finds, newest first, as many as there is room for; oldest first."""
    room, entries = READ_BYTES, []
    for row in connection.execute(newest, bindings):
        room -= _int(row[5])
        if room < 0:
            break
        if (entry := _entry(row, missed)) is not None:
            entries.append(entry)
    return entries[::-1]


def sessions(connection: Connection, agent: str) -> list[Held]:
    """The sessions of which something is kept, the one with the newest entry first; at most 10,000."""
    found = connection.execute(
        "SELECT session, number, size, at, run FROM (SELECT session, count(*) AS number, total(bytes) AS size, "
        "max(seq) AS last FROM transcript WHERE agent = ? GROUP BY session ORDER BY last DESC LIMIT ?) "
        "JOIN transcript USING (session) WHERE seq = last ORDER BY last DESC",
        (safe(agent), SHOWN_ENTRIES),
    )
    return [
        Held(str(session), _int(number), _int(size), _when(at), str(run)) for session, number, size, at, run in found
    ]


def _entry(row: Any, missed: list[str]) -> Entry | None:
    seq, run, kind, at, body, _ = row
    try:
        return Entry(kind, decode(str(body), dict[str, Any]), str(run), int(seq), _when(at))
    except (ValueError, RecursionError) as error:
        missed.append(f"transcript {seq}: {error}")
        return None


def _when(at: Any) -> datetime:
    return datetime.fromtimestamp(float(at), UTC)


def _int(value: Any) -> int:
    return int(value)


# -- the face


class Transcripts(Reads):
    """The transcripts of a memory while that is open.

    Args: file, journal: those of the memory now, None for the journal when it is read-only; told: hears of rows that
        cannot be read.
    """

    def __init__(
        self, file: Callable[[], Opened], journal: Callable[[], Journal | None], told: Callable[[Fault], None]
    ) -> None:
        super().__init__(file, told)
        self._journal = journal

    def hand_over(self) -> None:
        if (journal := self._journal()) is not None:
            journal.hand_over()

    async def read(self, agent: str, session: str) -> list[Entry]:
        """What is to be read of a session, oldest first: the last compaction, then the entries that it kept and those
        after it. Of more than 5,000 entries or 16 MB the newest that fit; each is there as a whole or not at all.

        Raises: TransientError when the file cannot be read now.
        """
        return await self._rows(partial(read, agent=agent, session=session))

    async def tail(self, agent: str, session: str, limit: int = 50, before: int | None = None) -> list[Entry]:
        """The newest entries, oldest first, also those that were summed up; `before` is the `seq` of one that was
        seen. At most 10,000 or 16 MB. Raises: TransientError."""
        return await self._rows(partial(tail, agent=agent, session=session, limit=limit, before=before))

    async def sessions(self, agent: str) -> list[Held]:
        """The sessions of which something is kept, the last one that was added to first. Raises: TransientError."""
        return await self._read(lambda connection: sessions(connection, agent))

    async def append(self, agent: str, session: str, run_id: str, entries: Sequence[Entry]) -> None:
        """Add what is no part of a cycle, after all that the journal was told; safe when this returns, all or none.

        Cancelling stops the waiting, not the writing. Raises: FencedError when another run has taken the session over
        since; SparError when closed or read-only.
        """
        given = rows(agent, session, run_id, [_of(each, run_id) for each in entries])
        file, journal = self._opened(), self._journal()
        _ = file.writer  # refuses at once when read-only
        told = journal.taken() if journal is not None else _nothing

        def write(connection: Connection) -> list[SupersededError]:
            told(connection)
            return append(connection, given)

        # Returned, not raised: what the journal was told is true all the same.
        for refusal in await file.commit(write, sum(row[5] for row in given)):
            raise refusal

    async def forget(self, agent: str, session: str) -> int:
        """Delete all that is kept of a session; how many entries, once that is safe. Raises: SparError when closed or
        read-only."""
        gone = step = await self._deleted(agent, session)
        while step:
            gone += (step := await self._deleted(agent, session))
        return gone

    async def _deleted(self, agent: str, session: str) -> int:
        self.hand_over()
        return await self._opened().commit(lambda connection: forget(connection, agent, session))


def _of(entry: Entry, run_id: str) -> Entry:
    """Raises: ValueError when it says that it is another run's."""
    if entry.run_id not in ("", run_id):
        raise ValueError(f"an entry of run {entry.run_id!r:.100} cannot be added for run {run_id!r:.100}")
    return entry


def _nothing(connection: Connection) -> None:
    return None
