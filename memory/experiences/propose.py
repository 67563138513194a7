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

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Most rows that are ranked for one query.
BUDGET: Final = 3_000
#: Number up to which the rows with a word are counted; a word with more rows says little.
COUNTED: Final = 5_000
#: Number of the newest rows under a filter that are searched for words that are too common elsewhere.
_FILTERED: Final = 300
#: About the amount that a word of the situation adds to bm25 for each unit of its rarity.
_WEIGHT: Final = 1.5


def proposed(
    connection: Connection, words: Sequence[str], number: int, condition: str, bindings: Sequence[Any]
) -> dict[int, float]:
    """Return rows with some of the words, the best first, each with the score of its words.

    Args: words: as expressions of the index; number: most rows; condition, bindings: the filter of the rows, as SQL.
    """
    size, text = int(connection.execute("SELECT coalesce(max(seq), 0) FROM experience").get), connection.full_text
    if size <= BUDGET:
        return text.ranked(connection, words, text.any_of(words), 0, number, condition, bindings)
    counts = {word: text.count(connection, word, COUNTED) for word in words}
    expression, rest, after = _planned(connection, counts, size)
    fits = text.ranked(connection, words, expression, after, number, condition, bindings) if expression else {}
    rarity = {word: max(0.0, math.log(size / (counts[word] + 1))) for word in rest}
    if len(fits) < number and condition != "true" and (rest or after):
        fits |= _under_filter(connection, words, fits, condition, bindings)
    for word in rest:
        if fits and counts[word] < COUNTED:
            for seq in text.holding(connection, word, ", ".join(map(str, fits))):
                fits[seq] += _WEIGHT * rarity[word]
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
    text = connection.full_text
    parts, after = [text.any_of(alone)] if alone else [], 0
    if len(common) > 1:
        meeting = text.both(common[0], text.any_of(common[1:]))
        many = text.count(connection, meeting, COUNTED)
        if many and (many <= left or not alone):
            parts, left = [*parts, meeting], left - many
            common = []
    if not parts and common:
        parts, left, common = [common[0]], left - counts[common[0]], common[1:]
    if left < 0:  # too many rows to rank: take the newest
        after = size - size * BUDGET // (BUDGET - left)
    return text.any_of(parts), common, after


def _under_filter(
    connection: Connection,
    words: Sequence[str],
    known: Mapping[int, float],
    condition: str,
    bindings: Sequence[Any],
) -> dict[int, float]:
    """Return the newest rows under the filter with a common word; needed when rare words gave too few rows."""
    newest = f"SELECT seq FROM experience WHERE {condition} ORDER BY at DESC LIMIT {_FILTERED}"
    scores: dict[int, float] = {}
    for word in words:
        for seq in connection.full_text.holding(connection, word, newest, bindings):
            if seq not in known:
                scores.setdefault(seq, 0.01)
    return scores
