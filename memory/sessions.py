"""Sessions of a memory: their rows, one for each agent and key (the name of the session), the statements on them, and
the store that runs these.

The functions that write run in the writer's thread inside its transaction, and again if the transaction was undone. A
session's row is written in the same transaction as the message that came to it, a reset in the same transaction as its
entry in the transcript. Columns: `ordinal` is the number of the present conversation, from 1; `began_at` is the time at
which that began; `is_set` says that people have changed the session's title or settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from memory import counts, pieces, transcripts
from memory.audit import Probe, audited
from memory.codec import decode, encode, moment, safe, sealed, seconds
from memory.transcripts import Opened, OpenRows, TranscriptRow
from spar.failpoints import crashpoint
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.records.session import Origin, Reset, SessionRecord, SessionUse

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Most sessions of one page, and most rows deleted at once.
MOST_PAGE: Final = 1_000
BATCH: Final = 250
#: Number of sessions above which the least recently used are deleted, except those whose settings people have changed.
MOST_SESSIONS: Final = 100_000

_COLUMNS = "SELECT key, ordinal, began_at, used_at, body FROM session"
_USE = (
    "INSERT INTO session (agent, key, ordinal, began_at, used_at, is_set, body) VALUES (?, ?, 1, ?, ?, 0, ?) "
    "ON CONFLICT (agent, key) DO UPDATE SET used_at = excluded.used_at WHERE session.used_at < excluded.used_at"
)
_RESET = "UPDATE session SET ordinal = ordinal + 1, began_at = ? WHERE agent = ? AND key = ? AND ordinal = ?"
_PUT = (
    "INSERT INTO session (agent, key, ordinal, began_at, used_at, is_set, body) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (agent, key) DO UPDATE SET is_set = excluded.is_set, body = excluded.body"
)
#: Delete a batch of what belongs to a session. Its cycles and their pieces are deleted after that, and its row last: as
#: long as it exists, a deletion that was interrupted can be repeated.
_FORGET = (
    "DELETE FROM own_row WHERE owner = 'additions:' || ?1 AND key IN ("
    "SELECT o.key FROM own_row AS o JOIN item ON id = o.key "
    "WHERE owner = 'additions:' || ?1 AND agent = ?1 AND session = ?2 LIMIT ?3)",  # what requests of its runs told
    "DELETE FROM transcript WHERE seq IN (SELECT seq FROM transcript WHERE agent = ? AND session = ? LIMIT ?)",
    "DELETE FROM item WHERE id IN (SELECT id FROM item WHERE agent = ? AND session = ? AND state = 'done' LIMIT ?)",
)
_CYCLES = "SELECT seq, body FROM cycle WHERE agent = ? AND session = ? ORDER BY seq LIMIT ?"
_DROP = "DELETE FROM session WHERE agent = ? AND key = ?"
#: Delete sessions without a transcript, the least recently used first.
_TRIM = (
    "DELETE FROM session WHERE (agent, key) IN (SELECT agent, key FROM session AS s WHERE (used_at < ? OR ? = 1) AND "
    "is_set = 0 AND NOT EXISTS (SELECT 1 FROM transcript AS t WHERE t.agent = s.agent AND t.session = s.key) "
    "ORDER BY used_at LIMIT ?)"
)


class SessionBody(Struct):
    """Body of a session's row: the fields that no statement compares."""

    created_at: datetime
    title: str = ""
    defaults: RunOptions = NO_OPTIONS
    origin: Origin = Origin()


def use(connection: Connection, agent: str, key: str, message: SessionUse) -> None:
    """Write that a message came to a session, after the reset that precedes the message."""
    if message.reset is not None:
        reset(connection, [reset_row(agent, message.reset)])
    at, body = seconds(message.at), SessionBody(message.at, origin=message.origin)
    connection.execute(_USE, (safe(agent), safe(key), at, at, sealed(encode(body))))


#: A reset to be written: the agent's name, the reset, and the rows of its entry in the transcript.
ResetRow = tuple[str, Reset, list[TranscriptRow]]


def reset_row(agent: str, ending: Reset) -> ResetRow:
    """Return a reset in the form that `reset` writes. Its entry is encoded now, so that nothing can change it until
    then."""
    return agent, ending, transcripts.rows(agent, ending.session, ending.run_id, (ending.entry,))


def reset(connection: Connection, resets: Sequence[ResetRow]) -> None:
    """End conversations. If an earlier reset has ended a conversation already, nothing is changed."""
    for agent, ending, entries in resets:
        connection.execute(_RESET, (seconds(ending.at), safe(agent), safe(ending.session), ending.ordinal))
        if connection.changes():
            transcripts.append(connection, entries)
            crashpoint("session.reset")


def put(connection: Connection, agent: str, record: SessionRecord) -> None:
    """Write a session's title and defaults, which people have set."""
    body = SessionBody(record.created_at, record.title, record.defaults, record.origin)
    row = (safe(agent), safe(record.key), record.ordinal, seconds(record.began_at), seconds(record.used_at),
           int(bool(record.title or not record.defaults.is_empty)), sealed(encode(body)))  # fmt: skip
    connection.execute(_PUT, row)


def forget(connection: Connection, agent: str, key: str) -> int:
    """Delete one batch of what belongs to a session, except its row, and mark the pieces of its cycles as suspects.

    Return the number of deleted rows; 0 means that nothing was left.
    """
    session = safe(agent), safe(key)
    deleted = 0
    counts.fold(connection, is_all=True)  # the agent's counts still include the cycles that are deleted
    for sql in _FORGET:
        connection.execute(sql, (*session, BATCH))
        deleted += connection.changes()
    cycles = list[tuple[int]]()
    for seq, body in connection.execute(_CYCLES, (*session, BATCH)):
        pieces.suspect(connection, str(body))
        cycles.append((seq,))
    connection.executemany("DELETE FROM cycle WHERE seq = ?", cycles)
    crashpoint("session.forgetting")
    return deleted + len(cycles)


def drop(connection: Connection, agent: str, key: str) -> int:
    """Delete the row of a session. Return the number of deleted rows."""
    connection.execute(_DROP, (safe(agent), safe(key)))
    return connection.changes()


def trim(connection: Connection, horizon: float) -> int:
    """Delete one batch of the sessions without a transcript. Return the number of deleted rows.

    Args: horizon: sessions last used before this time (seconds since 1970) are deleted; if there are more than
        `MOST_SESSIONS`, later ones are deleted, too.
    """
    number = int(str(connection.execute("SELECT count(*) FROM session").get))
    connection.execute(_TRIM, (horizon, int(number > MOST_SESSIONS), BATCH))
    return connection.changes()


# -- reading


def one(connection: Connection, agent: str, key: str, missed: list[str]) -> SessionRecord | None:
    """Return a session; None if it has no row. A row whose body cannot be read is described in `missed`."""
    row = connection.execute(f"{_COLUMNS} WHERE agent = ? AND key = ?", (safe(agent), safe(key))).fetchone()
    return None if row is None else _record(row, missed)


def page(
    connection: Connection, agent: str, limit: int, before: tuple[datetime, str] | None, missed: list[str]
) -> list[SessionRecord]:
    """Return sessions, the last used first; `before` are `used_at` and key of the last session of the page before."""
    start = () if before is None else (seconds(before[0]), safe(before[1]))
    where = "agent = ? AND (used_at, key) < (?, ?)" if start else "agent = ?"
    sql = f"{_COLUMNS} WHERE {where} ORDER BY used_at DESC, key DESC LIMIT ?"
    rows = connection.execute(sql, (safe(agent), *start, max(0, min(limit, MOST_PAGE))))
    return [record for row in list(rows) if (record := _record(row, missed)) is not None]


def _record(row: Any, missed: list[str]) -> SessionRecord | None:
    key, ordinal, began, used, text = row
    try:
        body = decode(str(text), SessionBody)
    except (ValueError, RecursionError) as error:
        missed.append(f"session {str(key)[:100]!r}: {error}")
        body = SessionBody(moment(began))
    return SessionRecord(str(key), body.created_at, moment(began), moment(used), int(ordinal), body.title,
                         body.defaults, body.origin)  # fmt: skip


# -- the store

#: Estimated bytes of a row, for the queue: the row is encoded later, in the writer's thread.
_ABOUT_A_ROW = 500


class SessionRows(OpenRows):
    """Sessions of an open memory."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self._forgetting = asyncio.Lock()  # two deletions at once would each keep what the other's cycles refer to

    async def get(self, agent: str, key: str) -> SessionRecord | None:
        """Return a session; None if it has no row. Raises: TransientError."""
        return await self._rows(partial(one, agent=agent, key=key))

    async def page(
        self, agent: str, limit: int = 50, before: tuple[datetime, str] | None = None
    ) -> Sequence[SessionRecord]:
        """Return at most 1,000 sessions, the last used first. Raises: TransientError.

        Args: before: time of use and key of the last session of the page before.
        """
        return await self._rows(partial(page, agent=agent, limit=limit, before=before))

    async def put(self, agent: str, record: SessionRecord) -> None:
        """Write title and defaults of a session, and make its row if there is none; durable when this returns.

        Raises: SparError when the memory is closed or read-only.
        """
        file = self._opened.file()
        file.demand_room()
        self.hand_over()

        write = partial(put, agent=agent, record=record)
        await file.commit(audited(write, "session", self._opened.clock(), _row(agent, record.key)), _ABOUT_A_ROW)

    async def forget(self, agent: str, key: str) -> int:
        """Delete the transcript of a session, its cycles with the long texts that no other cycle refers to, the rows of
        its runs that have ended, and last its own row.

        Return the number of deleted rows when that is durable. If it is interrupted, the next call continues it.
        Raises: SparError when the memory is closed or read-only.
        """
        write, row = partial(forget, agent=agent, key=key), _row(agent, key)
        async with self._forgetting:
            deleted = await self._delete(lambda: audited(write, "session", self._opened.clock(), row))
            await self._delete_pieces()
            return deleted + await self._opened.file().commit(partial(drop, agent=agent, key=key))

    async def _delete_pieces(self) -> None:
        """Delete the pieces that only deleted cycles refer to. The search reads the table of cycles in batches."""
        await self._delete(lambda: pieces.suspect_unused)
        suspects: list[str] = await self._read(pieces.suspects)
        sought, needed = frozenset(suspects), set[str]()
        for table in pieces.REFERRING if sought else ():
            last: int | None = 0
            while last is not None:
                digests, last = await self._read(partial(pieces.referred, table=table, after=last))
                needed |= digests & sought
        left = list(needed)
        while left:
            left = await self._opened.file().commit(partial(pieces.acquit, digests=left))
        for start in range(0, len(suspects), BATCH):
            await self._opened.file().commit(partial(pieces.drop, digests=suspects[start : start + BATCH]))


def _row(agent: str, key: str) -> Probe:
    return "SELECT body FROM session WHERE agent = ? AND key = ?", (safe(agent), safe(key))
