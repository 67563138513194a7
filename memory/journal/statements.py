"""Statements on the tables with the present state: items, open cycles, calls in doubt, small values, budgets.

They run in the writer's thread inside its transaction, and again if the transaction was undone. The statements on facts
are in `memory.events`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from spar.records.journal import Spend

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Number of windows of each kind that stay stored: more than two weeks of hours, a year of days.
MOST_WINDOWS: Final = 400
#: Upper bound of a sum. Beyond 63 bits SQLite continues with a float, which loses small amounts.
_MOST: Final = 1 << 60


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
#: Add an amount, which may be negative, to the used amount of a window.
SPEND: Final = (
    'INSERT INTO spent ("window", quantity, used) VALUES (?1, ?2, CASE WHEN ?3 > 0 THEN ?3 ELSE 0 END) '
    'ON CONFLICT ("window", quantity) DO UPDATE SET used = CASE WHEN spent.used + ?3 < 0 THEN 0 '
    f"WHEN spent.used + ?3 > {_MOST} THEN {_MOST} ELSE spent.used + ?3 END"
)

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


# -- budgets: the used amounts of windows. A window is a period of a budget, named by its kind and start
# (`hour:2026-11-21T18`). These functions compare only the names; they do not read the clock.


def spent(connection: Connection) -> list[Spend]:
    """Return the used amounts, by window and quantity."""
    rows = connection.execute('SELECT "window", quantity, used FROM spent ORDER BY "window", quantity')
    return [Spend(str(window), str(quantity), int(str(used))) for window, quantity, used in rows]


def trim_spent(connection: Connection, current: Iterable[str] = ()) -> int:
    """Delete all but the newest windows of each kind. Return the number of deleted rows.

    Args: current: names of windows that are never deleted. If the clock was in the future for a long time, the
        current window may sort as the oldest.
    """
    windows = [str(window) for (window,) in connection.execute('SELECT DISTINCT "window" FROM spent ORDER BY "window"')]
    by_kind: dict[str, list[str]] = {}
    for window in windows:
        by_kind.setdefault(window.partition(":")[0], []).append(window)
    protected = set(current)
    old = [name for names in by_kind.values() for name in names[:-MOST_WINDOWS] if name not in protected]
    deleted = 0
    for window in old:
        connection.execute('DELETE FROM spent WHERE "window" = ?', (window,))
        deleted += connection.changes()
    return deleted
