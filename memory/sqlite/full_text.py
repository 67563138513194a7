"""Full text index of SQLite, FTS5: its query language, and the statements on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.engine.connection import Connection

_ADD = (
    "INSERT INTO experience_text (rowid, situation, task, action, outcome, cause, lesson) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM experience_text WHERE experience_text MATCH ? LIMIT ?)"
_HOLDING = "SELECT rowid FROM experience_text WHERE experience_text MATCH ? AND {} IN ({})"
_MERGE_PAGES = 200  # pages of the text index merged at once in idle time; a search of a merged index costs a fifth


class Fts5:
    """Full text index of experiences. Triggers remove the words of a row that is deleted."""

    def insert(self, connection: Connection, sql: str, row: Sequence[Any], texts: Sequence[str]) -> None:
        """Insert the row of an experience, and add its texts. Args: sql: the statement that inserts the row."""
        self.add(connection, int(str(connection.execute(f"{sql} RETURNING seq", row).get)), texts)

    def add(self, connection: Connection, seq: int, texts: Sequence[str]) -> None:
        """Add the texts of a row, in the order of the indexed fields."""
        connection.execute(_ADD, (seq, *texts))

    def remove(self, connection: Connection, seq: int) -> None:
        """Remove the words of a row."""
        connection.execute("DELETE FROM experience_text WHERE rowid = ?", (seq,))

    def phrase(self, word: str, field: str) -> str:
        """Return the expression that finds a word. Args: field: the only field to search; "" for all."""
        return f'{field} : "{word}"' if field else f'"{word}"'

    def any_of(self, expressions: Sequence[str]) -> str:
        """Return the expression that finds any of these; "" if there are none."""
        return " OR ".join(expressions)

    def both(self, first: str, second: str) -> str:
        """Return the expression that finds rows that fit both."""
        return f"({first} AND ({second}))"

    def count(self, connection: Connection, expression: str, most: int) -> int:
        """Return the number of rows that fit, counted up to `most`."""
        return int(str(connection.execute(_COUNT, (expression, most)).get))

    def ranked(
        self, connection: Connection, words: Sequence[str], expression: str, after: int, number: int, condition: str,
        bindings: Sequence[Any],
    ) -> dict[int, float]:  # fmt: skip
        """Return the rows after `after` that fit, the best first, each with its score; bm25 needs no `words`."""
        join = "" if condition == "true" else "JOIN experience ON experience.seq = experience_text.rowid"
        sql = (
            f"SELECT experience_text.rowid, rank FROM experience_text {join} WHERE experience_text MATCH ? "
            f"AND experience_text.rowid > ? AND {condition} ORDER BY rank LIMIT ?"
        )
        rows = connection.execute(sql, (expression, after, *bindings, number))
        # bm25 is lower for a better fit. Rounded, so that equal texts have equal scores.
        return {int(str(seq)): -round(float(str(fit)), 6) for seq, fit in rows}

    def holding(self, connection: Connection, word: str, rows: str, bindings: Sequence[Any] = ()) -> list[int]:
        """Return those of some rows that fit a word. Args: rows: numbers of rows or a query of them, as SQL."""
        # With numbers the word is looked up for all rows: `+` keeps SQLite from searching once for each of them.
        column = "rowid" if rows.startswith("SELECT") else "+rowid"
        return [int(str(seq)) for (seq,) in connection.execute(_HOLDING.format(column, rows), (word, *bindings))]

    def merge(self, connection: Connection) -> bool:
        """Merge a part of the index. Return whether more is left."""
        before = connection.total_changes()
        connection.execute("INSERT INTO experience_text (experience_text, rank) VALUES ('merge', ?)", (_MERGE_PAGES,))
        return connection.total_changes() - before >= 2  # FTS5's manual: fewer than 2 mean that nothing was merged
