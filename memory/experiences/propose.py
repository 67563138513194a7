"""Candidates by words: the best rows of the full text index, at a cost that does not grow with the memory.

The index ranks a row in about a microsecond, so at most `BUDGET` rows are ranked. In a small memory these are all rows
with any of the words. In a large one the rows with the rarest words are candidates. Words with too many rows to rank
give candidates only where they occur together; else they add to the score of the other candidates. Counting is cheap,
and bounded too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from memory.experiences.recall import match

if TYPE_CHECKING:
    from apsw import Connection

#: Most rows that are ranked for one query.
BUDGET: Final = 3_000
#: Number up to which the rows with a word are counted; a word with more rows says little.
COUNTED: Final = 5_000
#: Number of the newest rows under a filter that are searched for words that are too common elsewhere.
_FILTERED: Final = 300
#: About the amount that a word of the situation adds to bm25 for each unit of its rarity.
_WEIGHT: Final = 1.5

_COUNT = "SELECT count(*) FROM (SELECT 1 FROM experience_text WHERE experience_text MATCH ? LIMIT ?)"
_HOLDING = "SELECT rowid FROM experience_text WHERE experience_text MATCH ? AND +rowid IN ({})"


def proposed(
    connection: Connection, words: Sequence[str], number: int, condition: str, bindings: Sequence[Any]
) -> dict[int, float]:
    """Return rows with some of the words, the best first, each with the score of its words.

    Args: words: as phrases of the index; number: most rows; condition, bindings: the filter of the rows, as SQL.
    """
    size = int(str(connection.execute("SELECT coalesce(max(seq), 0) FROM experience").get))
    if size <= BUDGET:
        return _ranked(connection, match(words), 0, number, condition, bindings)
    counts = {word: _count(connection, word, COUNTED) for word in words}
    expression, rest, after = _planned(connection, counts, size)
    fits = _ranked(connection, expression, after, number, condition, bindings) if expression else {}
    rarity = {word: max(0.0, math.log(size / (counts[word] + 1))) for word in rest}
    if len(fits) < number and condition != "1" and (rest or after):
        fits |= _under_filter(connection, words, fits, condition, bindings)
    for word in rest:
        if fits and counts[word] < COUNTED:
            marks = ", ".join(map(str, fits))
            for (seq,) in connection.execute(_HOLDING.format(marks), (word,)):
                fits[int(str(seq))] += _WEIGHT * rarity[word]
    return dict(sorted(fits.items(), key=lambda item: -item[1]))


def _planned(connection: Connection, counts: Mapping[str, int], size: int) -> tuple[str, list[str], int]:
    """Return the expression that finds candidates, the words that are not in it, and the row after which it begins."""
    ordered = sorted((word for word in counts if counts[word]), key=counts.__getitem__)
    left, alone = BUDGET, list[str]()
    for word in ordered:
        if counts[word] > left:
            break
        alone.append(word)
        left -= counts[word]
    common = ordered[len(alone) :]
    parts, after = [match(alone)] if alone else [], 0
    if len(common) > 1:
        meeting = f"({common[0]} AND ({match(common[1:])}))"
        many = _count(connection, meeting, COUNTED)
        if many and (many <= left or not alone):
            parts, left = [*parts, meeting], left - many
            common = []
    if not parts and common:
        parts, left, common = [common[0]], left - counts[common[0]], common[1:]
    if left < 0:  # too many rows to rank: take the newest
        after = size - size * BUDGET // (BUDGET - left)
    return " OR ".join(parts), common, after


def _count(connection: Connection, expression: str, most: int) -> int:
    return int(str(connection.execute(_COUNT, (expression, most)).get))


def _ranked(
    connection: Connection, expression: str, after: int, number: int, condition: str, bindings: Sequence[Any]
) -> dict[int, float]:
    join = "" if condition == "1" else "JOIN experience ON experience.seq = experience_text.rowid"
    sql = (
        f"SELECT experience_text.rowid, rank FROM experience_text {join} WHERE experience_text MATCH ? "
        f"AND experience_text.rowid > ? AND {condition} ORDER BY rank LIMIT ?"
    )
    rows = connection.execute(sql, (expression, after, *bindings, number))
    # bm25 is lower for a better fit. Rounded, so that equal texts have equal scores.
    return {int(str(seq)): -round(float(str(fit)), 6) for seq, fit in rows}


def _under_filter(
    connection: Connection,
    words: Sequence[str],
    known: Mapping[int, float],
    condition: str,
    bindings: Sequence[Any],
) -> dict[int, float]:
    """Return the newest rows under the filter with a common word; needed when rare words gave too few rows."""
    newest = f"SELECT seq FROM experience WHERE {condition} ORDER BY at DESC LIMIT {_FILTERED}"
    sql = f"SELECT rowid FROM experience_text WHERE experience_text MATCH ? AND rowid IN ({newest})"
    scores: dict[int, float] = {}
    for word in words:
        for (seq,) in connection.execute(sql, (word, *bindings)):
            if (number := int(str(seq))) not in known:
                scores.setdefault(number, 0.01)
    return scores
