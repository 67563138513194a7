"""Candidates by words: the best of the full text index, at a cost that does not grow with the memory.

The index ranks a row in about a microsecond, so at most `BUDGET` rows are ranked. In a small memory those are all that
hold any of the words. In a large one the rarest words propose; words that more rows hold than can be ranked propose
where they meet, and else only add to the score of what others proposed. Counting is cheap, and bounded too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from memory.experiences.recall import match

if TYPE_CHECKING:
    from apsw import Connection

#: Rows that are ranked for one question.
BUDGET: Final = 3_000
#: Up to where the rows that hold a word are counted: what more hold tells little.
COUNTED: Final = 5_000
#: Rows under a filter, the newest, that are looked through for words that are too common elsewhere.
_FILTERED: Final = 300
#: About what a word adds to bm25 for each unit of its rarity, where it stands in the situation.
_WEIGHT: Final = 1.5

_COUNT = "SELECT count(*) FROM (SELECT 1 FROM experience_text WHERE experience_text MATCH ? LIMIT ?)"
_HOLDING = "SELECT rowid FROM experience_text WHERE experience_text MATCH ? AND +rowid IN ({})"


def proposed(
    connection: Connection, words: Sequence[str], number: int, condition: str, bindings: Sequence[Any]
) -> dict[int, float]:
    """Return those that hold some of the words, the best first, with how well their words fit.

    Args: words: as phrases of the index; number: how many at most; condition, bindings: what must hold of their rows.
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
    """Return the expression that proposes, the words that are not in it, and the row after which it looks."""
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
    if left < 0:  # more than can be ranked hold it: the newest of them
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
    found = connection.execute(sql, (expression, after, *bindings, number))
    # bm25 is lower for better; rounded, so that equal texts are equal whatever the sum's last digits.
    return {int(str(seq)): -round(float(str(fit)), 6) for seq, fit in found}


def _under_filter(
    connection: Connection,
    words: Sequence[str],
    known: Mapping[int, float],
    condition: str,
    bindings: Sequence[Any],
) -> dict[int, float]:
    """Return the newest under the filter that hold a common word, where the rare ones proposed too few."""
    newest = f"SELECT seq FROM experience WHERE {condition} ORDER BY at DESC LIMIT {_FILTERED}"
    sql = f"SELECT rowid FROM experience_text WHERE experience_text MATCH ? AND rowid IN ({newest})"
    found: dict[int, float] = {}
    for word in words:
        for (seq,) in connection.execute(sql, (word, *bindings)):
            if (number := int(str(seq))) not in known:
                found.setdefault(number, 0.01)
    return found
