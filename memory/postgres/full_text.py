"""Full text index of PostgreSQL: the words of experiences as `tsvector`, found by a GIN index.

The words are taken apart here and not by the server, so that those of a query are the same. Case and accents do not
count; unlike in SQLite, English endings do. A word counts the more the fewer rows have it, and by its field.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Weight of each indexed field: situation, task, action, outcome, cause, lesson; and what D, C, B, A count.
_WEIGHTS: Final = ("A", "B", "D", "D", "D", "B")
_COUNTS: Final = "'{0.33, 0.33, 0.67, 1.0}'"
#: Bounds of the server: places of a word, the bytes of a word; and words of a row, which fit into its megabyte.
_LAST_PLACE, _LONGEST, _MOST = 16_383, 200, 20_000
_MOST_PLACES = 8  # of a word in a row

_WORD = re.compile(r"\w+")
_INTO = "INSERT INTO experience_text (seq, words)"
_ADD = f"{_INTO} VALUES (?, CAST(? AS tsvector))"
_FITS = "words @@ CAST(? AS tsquery)"
_COUNT = f"SELECT count(*) FROM (SELECT 1 FROM experience_text WHERE {_FITS} LIMIT ?) AS fitting"
#: Rows up to which the rows with a word are counted for its weight.
_COUNTED = 5_000


class TsVectors:
    """Full text index of experiences. The words of a row are deleted with it."""

    def insert(self, connection: Any, sql: str, row: Sequence[Any], texts: Sequence[str]) -> None:
        """Insert the row of an experience, and add its texts. Args: sql: the statement that inserts the row."""
        both = f"WITH new AS ({sql} RETURNING seq) {_INTO} SELECT seq, CAST(? AS tsvector) FROM new"
        connection.later(both, (*row, vector(texts)))

    def add(self, connection: Connection, seq: int, texts: Sequence[str]) -> None:
        """Add the texts of a row, in the order of the indexed fields."""
        connection.execute(_ADD, (seq, vector(texts)))

    def remove(self, connection: Connection, seq: int) -> None:
        """Remove the words of a row."""
        connection.execute("DELETE FROM experience_text WHERE seq = ?", (seq,))

    def phrase(self, word: str, field: str) -> str:
        """Return the expression that finds a word. Args: field: "situation", the only one to search; "" for all."""
        return f"{_quoted(_folded(word)[:_LONGEST])}{':A' if field else ''}"

    def any_of(self, expressions: Sequence[str]) -> str:
        """Return the expression that finds any of these; "" if there are none."""
        return " | ".join(expressions)

    def both(self, first: str, second: str) -> str:
        """Return the expression that finds rows that fit both."""
        return f"({first} & ({second}))"

    def count(self, connection: Connection, expression: str, most: int) -> int:
        """Return the number of rows that fit, counted up to `most`."""
        return int(connection.execute(_COUNT, (expression, most)).get)

    def ranked(
        self, connection: Connection, words: Sequence[str], expression: str, after: int, number: int, condition: str,
        bindings: Sequence[Any],
    ) -> dict[int, float]:  # fmt: skip
        """Return the rows after `after` that fit, the best first, each with its score."""
        if not expression:
            return {}
        rarity = self._rarity(connection, words)
        rank = f"ts_rank({_COUNTS}, experience_text.words, CAST(? AS tsquery), 1)"
        score = " + ".join(f"{weight:.4f} * {rank}" for weight in rarity)
        join = "" if condition == "true" else "JOIN experience ON experience.seq = experience_text.seq"
        sql = (
            f"SELECT experience_text.seq, {score} AS fit FROM experience_text {join} WHERE experience_text.{_FITS} "
            f"AND experience_text.seq > ? AND {condition} ORDER BY fit DESC, experience_text.seq LIMIT ?"
        )
        rows = connection.execute(sql, (*words, expression, after, *bindings, number))
        return {int(seq): round(float(fit), 6) for seq, fit in rows}

    def holding(self, connection: Connection, word: str, rows: str, bindings: Sequence[Any] = ()) -> list[int]:
        """Return those of some rows that fit a word. Args: rows: numbers of rows or a query of them, as SQL."""
        sql = f"SELECT seq FROM experience_text WHERE {_FITS} AND seq IN ({rows})"
        return [int(seq) for (seq,) in connection.execute(sql, (word, *bindings))]

    def merge(self, connection: Connection) -> bool:
        """Do nothing: the server keeps its index in order by itself."""
        return False

    def _rarity(self, connection: Connection, words: Sequence[str]) -> list[float]:
        """Return how rare each word is: the part of bm25 that does not depend on the row."""
        size = int(connection.execute("SELECT coalesce(max(seq), 0) FROM experience").get)
        counts = [self.count(connection, word, _COUNTED) for word in words]
        return [math.log(1 + (max(size, count) - count + 0.5) / (count + 0.5)) for count in counts]


def vector(texts: Sequence[str]) -> str:
    """Return the words of a row's texts with their places and weights, as text of a `tsvector`."""
    places: dict[str, list[str]] = {}
    place = 0
    for text, weight in zip(texts, _WEIGHTS, strict=True):
        for word in _words(text):
            place += 1
            if word in places or len(places) < _MOST:
                known = places.setdefault(word, [])
                if len(known) < _MOST_PLACES:
                    known.append(f"{min(place, _LAST_PLACE)}{weight}")
    return " ".join(f"{_quoted(word)}:{','.join(dict.fromkeys(at))}" for word, at in places.items())


def _words(text: str) -> Iterable[str]:
    return (word[:_LONGEST] for word in _WORD.findall(_folded(text)))


def _folded(text: str) -> str:
    """Return a text without case and accents."""
    folded = text.casefold()
    if folded.isascii():
        return folded
    parts = unicodedata.normalize("NFKD", folded)
    return unicodedata.normalize("NFC", "".join(part for part in parts if not unicodedata.combining(part)))


def _quoted(word: str) -> str:
    quoted = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{quoted}'"
