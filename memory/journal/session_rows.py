"""Sessions: a row for each key, and the statements on it.

Functions of a connection; what writes runs in the writer's thread inside its transaction and may be called again when
that had to be undone. The row of a message is written with the message, that of a reset with its entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from memory import transcripts
from memory.codec.columns import safe, sealed, seconds
from memory.codec.decoding import decode
from memory.codec.encoding import encode
from memory.journal import counts, statements
from memory.transcripts import TranscriptRow
from spar.failpoints import crashpoint
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.records.session import Origin, Reset, SessionRecord, SessionUse

if TYPE_CHECKING:
    from apsw import Connection

#: Sessions of one page, and rows deleted at once.
MOST_PAGE: Final = 1_000
BATCH: Final = 250
#: Sessions that are kept; of more those go that were not used for longest, unless people have set something of them.
KEPT: Final = 100_000

_COLUMNS = "SELECT key, ordinal, began_at, used_at, body FROM session"
_USE = (
    "INSERT INTO session (agent, key, ordinal, began_at, used_at, is_set, body) VALUES (?, ?, 1, ?, ?, 0, ?) "
    "ON CONFLICT (agent, key) DO UPDATE SET used_at = excluded.used_at WHERE used_at < excluded.used_at"
)
_RESET = "UPDATE session SET ordinal = ordinal + 1, began_at = ? WHERE agent = ? AND key = ? AND ordinal = ?"
_PUT = (
    "INSERT INTO session (agent, key, ordinal, began_at, used_at, is_set, body) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (agent, key) DO UPDATE SET is_set = excluded.is_set, body = excluded.body"
)
#: What is kept of a session beside its row, by batches; the row goes last, so that one that was cut off is repeated.
_FORGET = (
    "DELETE FROM transcript WHERE seq IN (SELECT seq FROM transcript WHERE agent = ? AND session = ? LIMIT ?)",
    "DELETE FROM cycle WHERE seq IN (SELECT seq FROM cycle WHERE agent = ? AND session = ? LIMIT ?)",
    "DELETE FROM item WHERE id IN (SELECT id FROM item WHERE agent = ? AND session = ? AND state = 'done' LIMIT ?)",
)
_DROP = "DELETE FROM session WHERE agent = ? AND key = ?"
#: Rows that nothing is kept of any more, the one that was not used for longest first.
_TRIM = (
    "DELETE FROM session WHERE (agent, key) IN (SELECT agent, key FROM session AS s WHERE (used_at < ? OR ?) AND "
    "NOT is_set AND NOT EXISTS (SELECT 1 FROM transcript AS t WHERE t.agent = s.agent AND t.session = s.key) "
    "ORDER BY used_at LIMIT ?)"
)


class SessionBody(Struct):
    """Body of a row: what nothing is searched by."""

    created_at: datetime
    title: str = ""
    defaults: RunOptions = NO_OPTIONS
    origin: Origin = Origin()


def use(connection: Connection, agent: str, key: str, message: SessionUse) -> None:
    """Write that a message came to a session, after the reset that comes before it."""
    if message.reset is not None:
        reset(connection, [reset_row(agent, message.reset)])
    at, body = seconds(message.at), SessionBody(message.at, origin=message.origin)
    connection.execute(_USE, (safe(agent), safe(key), at, at, sealed(encode(body))))


#: A reset as it will be written: its agent, itself, and its entry.
ResetRow = tuple[str, Reset, list[TranscriptRow]]


def reset_row(agent: str, given: Reset) -> ResetRow:
    """A reset as it will be written; made where it is told, so that nothing can change it before."""
    return agent, given, transcripts.rows(agent, given.session, given.run_id, (given.entry,))


def reset(connection: Connection, given: Sequence[ResetRow]) -> None:
    """End conversations, each once: one that a former reset has ended is left as it is."""
    for agent, each, entries in given:
        connection.execute(_RESET, (seconds(each.at), safe(agent), safe(each.session), each.ordinal))
        if connection.changes():
            transcripts.append(connection, entries)
            crashpoint("session.reset")


def put(connection: Connection, agent: str, record: SessionRecord) -> None:
    """Write what people have set of a session."""
    body = SessionBody(record.created_at, record.title, record.defaults, record.origin)
    row = (safe(agent), safe(record.key), record.ordinal, seconds(record.began_at), seconds(record.used_at),
           bool(record.title or not record.defaults.is_empty), sealed(encode(body)))  # fmt: skip
    connection.execute(_PUT, row)


def forget(connection: Connection, agent: str, key: str) -> int:
    """Delete one batch of what is kept of a session, at last its row; how many rows went."""
    of = safe(agent), safe(key)
    gone = 0
    counts.fold(connection, is_all=True)  # what its cycles add to the counts of the agent stays
    for sql in _FORGET:
        connection.execute(sql, (*of, BATCH))
        gone += connection.changes()
    crashpoint("session.forgetting")
    if not gone:
        connection.execute(_DROP, of)
        gone = connection.changes()
    return gone


def trim(connection: Connection, horizon: float) -> int:
    """Delete one batch of the sessions of which no transcript is kept any more; how many went.

    Args: horizon: those that were last used before it (seconds since 1970) go; of too many also others.
    """
    number = int(str(connection.execute("SELECT count(*) FROM session").get))
    connection.execute(_TRIM, (horizon, number > KEPT, BATCH))
    return connection.changes()


# -- reading


def one(connection: Connection, agent: str, key: str, missed: list[str]) -> SessionRecord | None:
    """Return a session; None for one that is not kept."""
    found = connection.execute(f"{_COLUMNS} WHERE agent = ? AND key = ?", (safe(agent), safe(key))).fetchone()
    return None if found is None else _record(found, missed)


def page(
    connection: Connection, agent: str, limit: int, before: tuple[datetime, str] | None, missed: list[str]
) -> list[SessionRecord]:
    """Return sessions, the one that was used last first; `before` are time and key of one that was seen."""
    seen = () if before is None else (seconds(before[0]), safe(before[1]))
    where = "agent = ? AND (used_at, key) < (?, ?)" if seen else "agent = ?"
    sql = f"{_COLUMNS} WHERE {where} ORDER BY used_at DESC, key DESC LIMIT ?"
    rows = statements.rows(connection, sql, safe(agent), *seen, max(0, min(limit, MOST_PAGE)))
    return [record for row in rows if (record := _record(row, missed)) is not None]


def _record(row: Any, missed: list[str]) -> SessionRecord | None:
    key, ordinal, began, used, text = row
    try:
        body = decode(str(text), SessionBody)
    except (ValueError, RecursionError) as error:
        missed.append(f"session {str(key)[:100]!r}: {error}")
        body = SessionBody(_when(began))
    return SessionRecord(str(key), body.created_at, _when(began), _when(used), int(ordinal), body.title, body.defaults,
                         body.origin)  # fmt: skip


def _when(at: Any) -> datetime:
    return datetime.fromtimestamp(float(at), UTC)
