"""Statements on the table `spent`: the amounts used, by window and quantity.

Only the statements; they run in the writer's thread (`SPEND`, `trim`) or a reader's (`all_of`). A row's window names
its kind and start (`hour:2026-11-21T18`), and only the names count here: which of them is now is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from spar.records.journal import Spend

if TYPE_CHECKING:
    from apsw import Connection

#: Windows of each kind that are kept: more than two weeks of hours, a year of days.
KEPT: Final = 400
#: No sum goes beyond: SQLite would go on with a float, which forgets small amounts.
_MOST: Final = 1 << 60

#: Add an amount, which may be negative, to what was used in a window.
SPEND: Final = (
    "INSERT INTO spent (window, quantity, used) VALUES (?1, ?2, max(0, ?3)) "
    f"ON CONFLICT (window, quantity) DO UPDATE SET used = max(0, min({_MOST}, used + ?3))"
)


def all_of(connection: Connection) -> list[Spend]:
    """Return the amounts used, by window and quantity."""
    rows = connection.execute("SELECT window, quantity, used FROM spent ORDER BY window, quantity")
    return [Spend(str(window), str(quantity), int(str(used))) for window, quantity, used in rows]


def trim(connection: Connection, current: Iterable[str] = ()) -> int:
    """Forget all but the newest windows of each kind; returns how many rows went.

    `current` are names that stay in any case: after the clock was wrong for long, what is now may be the oldest.
    """
    windows = [str(window) for (window,) in connection.execute("SELECT DISTINCT window FROM spent ORDER BY window")]
    by_kind: dict[str, list[str]] = {}
    for window in windows:
        by_kind.setdefault(window.partition(":")[0], []).append(window)
    kept = set(current)
    old = [window for found in by_kind.values() for window in found[:-KEPT] if window not in kept]
    gone = 0
    for window in old:
        connection.execute("DELETE FROM spent WHERE window = ?", (window,))
        gone += connection.changes()
    return gone
