"""Statements on the table `spent`: the used amounts of budgets, by window and quantity.

The writer's thread runs `SPEND` and `trim`, a reader's thread `all_of`. A window is a period of a budget, named by its
kind and start (`hour:2026-11-21T18`). These statements compare only the names; they do not read the clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from spar.records.journal import Spend

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Number of windows of each kind that stay stored: more than two weeks of hours, a year of days.
MOST_WINDOWS: Final = 400
#: Upper bound of a sum. Beyond 63 bits SQLite continues with a float, which loses small amounts.
_MOST: Final = 1 << 60

#: Add an amount, which may be negative, to the used amount of a window.
SPEND: Final = (
    'INSERT INTO spent ("window", quantity, used) VALUES (?1, ?2, CASE WHEN ?3 > 0 THEN ?3 ELSE 0 END) '
    'ON CONFLICT ("window", quantity) DO UPDATE SET used = CASE WHEN spent.used + ?3 < 0 THEN 0 '
    f"WHEN spent.used + ?3 > {_MOST} THEN {_MOST} ELSE spent.used + ?3 END"
)


def all_of(connection: Connection) -> list[Spend]:
    """Return the used amounts, by window and quantity."""
    rows = connection.execute('SELECT "window", quantity, used FROM spent ORDER BY "window", quantity')
    return [Spend(str(window), str(quantity), int(str(used))) for window, quantity, used in rows]


def trim(connection: Connection, current: Iterable[str] = ()) -> int:
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
