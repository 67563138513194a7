"""Statements of small rows by owner and key, for state that grows: one row for each item instead of one large value.

They run in the writer's thread (`KEEP`, `DROP`) or a reader's thread (`all_of`). The name of an owner
says what the rows are for and to whom they belong (`sensor:main:inbox`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from memory.codec import MAX_TEXT, decode, exactly, safe, sealed
from spar.errors import TooLargeError
from spar.records.journal import RowChange

if TYPE_CHECKING:
    from memory.engine.connection import Connection

KEEP: Final = (
    "INSERT INTO own_row (owner, key, value) VALUES (?, ?, ?) "
    "ON CONFLICT (owner, key) DO UPDATE SET value = excluded.value"
)
DROP: Final = "DELETE FROM own_row WHERE owner = ? AND key = ?"

#: Statement and its parameters.
Statement = tuple[str, tuple[str, ...]]


def statements(changes: Iterable[RowChange]) -> list[Statement]:
    """Return the statements that write these changes, in the same order.

    Raises: TooLargeError or ValueError naming the row that cannot be stored.
    """
    rows: list[Statement] = []
    for change in changes:
        if not isinstance(change.key, str):
            raise ValueError(f"a key of {change.owner!r:.100} must be text, found {change.key!r:.100}")
        if len(change.key) > MAX_TEXT:
            raise TooLargeError(
                f"a key of {change.owner!r:.100} is longer than {MAX_TEXT} characters: {change.key:.100}…"
            )
        if change.is_dropped:
            rows.append((DROP, (safe(change.owner), safe(change.key))))
        else:
            value = exactly(change.value, f"row {change.key!r:.100} of {change.owner!r:.100}")
            rows.append((KEEP, (safe(change.owner), safe(change.key), sealed(value))))
    return rows


def all_of(connection: Connection, owner: str, missed: list[str]) -> dict[str, Any]:
    """Return the values of all rows of an owner, by key. Descriptions of rows that cannot be read are added to
    `missed`."""
    values = dict[str, Any]()
    for key, value in connection.execute("SELECT key, value FROM own_row WHERE owner = ? ORDER BY key", (safe(owner),)):
        try:
            values[str(key)] = decode(str(value), object)
        except (ValueError, RecursionError) as error:
            missed.append(f"own_row {owner[:100]!r} {str(key)[:100]!r}: {error}")
    return values
