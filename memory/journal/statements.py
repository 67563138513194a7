"""Statements on the tables with the present state: items, open cycles, calls in doubt, small values.

They run in the writer's thread inside its transaction, and again if the transaction was undone. The statements on facts
are in `memory.events`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.engine.connection import Connection

PUT_ITEM = (
    "INSERT INTO item (id, agent, session, kind, key, at, attempts, state, body) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', ?) ON CONFLICT (id) DO UPDATE SET "
    "attempts = excluded.attempts, body = excluded.body WHERE item.state = 'waiting'"
)
END_ITEM = "UPDATE item SET state = ?, body = ? WHERE id = ? AND state = 'waiting'"
AMEND = "UPDATE item SET body = ? WHERE id = ? AND state = 'done'"
EXHUME = "UPDATE item SET state = ?, attempts = 0, body = ? WHERE id = ? AND agent = ? AND state = 'dead'"
OPEN = (
    "INSERT INTO open_cycle (id, agent, attempts, body) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET attempts = excluded.attempts, body = excluded.body"
)
CLOSE = "DELETE FROM open_cycle WHERE id = ?"
DOUBT = "INSERT INTO doubt (id, agent, at, answer, body) VALUES (?, ?, ?, NULL, ?) ON CONFLICT (id) DO NOTHING"
ANSWER = "UPDATE doubt SET answer = ?, body = ? WHERE id = ? AND answer IS NULL"
SAVE = "INSERT INTO state (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"

#: Delete a batch of finished items, dead letters and answered doubts. Finished items and answered doubts stay for
#: `DAYS_OF_KEYS` days: an item that is sent twice is recognised by the id and key of the first. At most the newest
#: 100,000 finished items and the newest 1,000 dead letters stay.
_FORGET = (
    "DELETE FROM item WHERE id IN (SELECT id FROM item WHERE state = 'done' AND at < ? LIMIT 250)",
    "DELETE FROM item WHERE id IN (SELECT id FROM item WHERE state = 'done' ORDER BY at DESC LIMIT 250 OFFSET 100000)",
    "DELETE FROM item WHERE id IN (SELECT id FROM item WHERE state = 'dead' ORDER BY at DESC LIMIT 250 OFFSET 1000)",
    "DELETE FROM doubt WHERE id IN (SELECT id FROM doubt WHERE answer IS NOT NULL AND at < ? LIMIT 250)",
)
DAYS_OF_KEYS = 30.0  # days for which the key of an accepted item is recognised


def forget(connection: Connection, now: float) -> int:
    """Delete one batch of old finished items, dead letters and answered doubts. Return the number of deleted rows.

    Args: now: the present time, in seconds since 1970.
    """
    deleted = 0
    for sql in _FORGET:
        connection.execute(sql, (now - DAYS_OF_KEYS * 86_400.0,) if "?" in sql else ())
        deleted += connection.changes()
    return deleted


def rows(connection: Connection, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    return list(connection.execute(sql, bindings))
