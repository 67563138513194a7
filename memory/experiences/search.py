"""Recall: finds the experiences that fit a query, with reasons.

The full text index gives candidates by their words, and their neighbours in the session are candidates too. Vectors
rank only the candidates: to rank a few hundred of them by meaning finds more than to compare all vectors, and the cost
does not grow with the memory. For a decision only words of situations count, not those of actions, and neighbours are
left out; the newest experiences of the same situation whose meaning is nearest are candidates too, since texts with the
same meaning need not share a word.

Candidates by words are the best rows of the full text index, at a cost that does not grow with the memory. The index
ranks a row in about a microsecond, so at most `BUDGET` rows are ranked. In a small memory these are all rows with any
of the words. In a large one the rows with the rarest words are candidates. Words with too many rows to rank give
candidates only where they occur together; else they add to the score of the other candidates. Counting is cheap, and
bounded too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from memory.experiences import recall
from memory.experiences.recall import Candidate, Pair
from memory.experiences.rows import ExperienceFilter, read_rows
from spar.types import Experience, replace

if TYPE_CHECKING:
    from memory.engine.connection import Connection


#: Number of candidates that the index gives, by bm25.
CANDIDATES = 200
#: Of what was lived in a situation: how many, the newest, are looked through by their meaning alone, and how many of
#: those come first. For a decision what is meant alike says more than words in common.
BY_MEANING = 2_000
_NEAREST = 20
#: Number of candidates whose neighbours are candidates too.
_WITH_NEIGHBOURS = 50
_ROW = "seq, at, success, lesson, helped, harmed, session"
_BESIDE = (
    f"SELECT * FROM (SELECT {_ROW}, 1 FROM experience WHERE session = ?1 AND (at, seq) > (?2, ?3) AND {{0}} "
    "ORDER BY at, seq LIMIT 2) AS later UNION ALL "
    f"SELECT * FROM (SELECT {_ROW}, -1 FROM experience WHERE session = ?1 AND (at, seq) < (?2, ?3) AND {{0}} "
    "ORDER BY at DESC, seq DESC LIMIT 2) AS earlier"
)


class Recalled(Struct, frozen=True):
    """Recalled experience: its score in comparison with the others, and the reasons as sentences.

    `nearness` is the cosine of its vector and that of the query; None if one of them is missing.
    """

    experience: Experience
    score: float = 0.0
    reasons: tuple[str, ...] = ()
    nearness: float | None = None


#: Function that returns the nearness of rows to the query; rows without a vector are left out.
Nearness = Callable[["Connection", Sequence[int]], Mapping[int, float]]


def search(
    connection: Connection,
    query: str,
    k: int,
    where: ExperienceFilter,
    nearness: Nearness | None = None,
    situation: str | None = None,
) -> tuple[list[Recalled], int]:
    """Return the k best experiences, and the number of rows that could not be read.

    A query without words gives the newest. Args: situation: the key of the situation of a decision; None without one.
    """
    condition, bindings = where.sql()
    terms = recall.terms(query)
    if not terms:
        return _recalled(connection, _newest(connection, condition, bindings, k), {}, {}, (), {})
    if k <= 0:
        return [], 0
    words = [connection.full_text.phrase(term, "" if situation is None else "situation") for term in terms]
    fits = proposed(connection, words, max(CANDIDATES, 2 * k), condition, bindings)
    places: dict[int, tuple[str, float]] = {}
    candidates: dict[int, Candidate] = {}
    for row in _rows(connection, fits):
        _take(row, places, candidates)
    fits = {seq: fit for seq, fit in fits.items() if seq in candidates}
    hits = fits if situation is None else ()
    pairs = _neighbours(connection, hits, places, candidates, condition, bindings)
    there = None if situation is None else replace(where, key=situation)
    near, nearest = ({}, []) if nearness is None else _by_meaning(connection, nearness, candidates, there)
    for row in _rows(connection, nearest):
        _take(row, places, candidates)
    text = {seq: fits.get(seq, 0.0) for seq in candidates}
    scores = recall.beside(recall.added([text, near], candidates), pairs)
    ordered = list(dict.fromkeys([*nearest, *recall.order(candidates, scores)]))
    chosen = _that_answer(connection, ordered, {*fits, *nearest}, k)
    return _recalled(connection, chosen, scores, _reasons(chosen, fits, near, pairs), terms, near)


def _by_meaning(
    connection: Connection, nearness: Nearness, candidates: Iterable[int], there: ExperienceFilter | None
) -> tuple[dict[int, float], list[int]]:
    """Return the nearness of all candidates, and the nearest rows of a situation, which become candidates."""
    newest = [] if there is None else _newest(connection, *there.sql(), BY_MEANING)
    near = nearness(connection, list({*candidates, *newest}))
    nearest = nlargest(_NEAREST, [seq for seq in newest if seq in near], key=near.__getitem__)
    return {seq: near[seq] for seq in {*candidates, *nearest} if seq in near}, nearest


def _newest(connection: Connection, condition: str, bindings: Sequence[Any], number: int) -> list[int]:
    sql = f"SELECT seq FROM experience WHERE {condition} ORDER BY at DESC, seq DESC LIMIT ?"
    return [int(str(seq)) for (seq,) in connection.execute(sql, (*bindings, number))]


def _that_answer(connection: Connection, ordered: Sequence[int], hits: Collection[int], k: int) -> list[int]:
    """Return the first k rows, without neighbours in which no person said anything.

    A question has its answer beside it, an alert has not.
    """
    chosen: list[int] = []
    for seq in ordered:
        if seq in hits or next((experience.said for _, experience in read_rows(connection, [seq])), ""):
            chosen.append(seq)
        if len(chosen) == k:
            break
    return chosen


def _rows(connection: Connection, seqs: Iterable[int]) -> Iterable[tuple[Any, ...]]:
    wanted = list(seqs)
    marks = ", ".join("?" * len(wanted))
    return connection.execute(f"SELECT {_ROW} FROM experience WHERE seq IN ({marks})", wanted) if wanted else ()


def _take(row: tuple[Any, ...], places: dict[int, tuple[str, float]], candidates: dict[int, Candidate]) -> int:
    seq, at, success, lesson, helped, harmed, session = row
    candidates[seq] = Candidate(at, None if success is None else bool(success), bool(lesson), helped, harmed)
    places[seq] = session, at
    return int(seq)


def _neighbours(
    connection: Connection,
    hits: Iterable[int],
    places: dict[int, tuple[str, float]],
    candidates: dict[int, Candidate],
    condition: str,
    bindings: Sequence[Any],
) -> tuple[Pair, ...]:
    """Add the neighbours of the hits to the candidates. Return the pairs of neighbours."""
    pairs: set[tuple[int, int, int]] = set()
    for seq in list(hits)[:_WITH_NEIGHBOURS]:
        apart = {1: 0, -1: 0}
        for *row, side in connection.execute(_BESIDE.format(condition), (*places[seq], seq, *bindings, *bindings)):
            other = _take(tuple(row), places, candidates)
            apart[side] += 1
            pairs.add((min(seq, other), max(seq, other), apart[side]))
    return tuple([Pair(*pair) for pair in sorted(pairs)])


def _reasons(
    chosen: Sequence[int], fits: Mapping[int, float], near: Mapping[int, float], pairs: Sequence[Pair]
) -> dict[int, list[str]]:
    wanted = set(chosen)
    reasons: dict[int, list[str]] = {seq: [] for seq in chosen}
    ranks = {seq: place for place, seq in enumerate(fits, start=1)}
    for seq in chosen:
        if seq in ranks:
            reasons[seq].append(f"its words fit: place {ranks[seq]} of {len(ranks)}")
        if seq in near:
            reasons[seq].append(f"its meaning is near: {near[seq]:.2f}")
    for pair in pairs:
        for seq, other in ((pair.first, pair.second), (pair.second, pair.first)):
            if seq in wanted and other in ranks and (seq not in ranks or ranks[other] < ranks[seq]):
                reasons[seq].append(f"it stands {pair.apart} beside the hit at place {ranks[other]} in its session")
    return reasons


def _recalled(
    connection: Connection,
    chosen: Sequence[int],
    scores: Mapping[int, float],
    reasons: Mapping[int, Sequence[str]],
    terms: Sequence[str],
    near: Mapping[int, float],
) -> tuple[list[Recalled], int]:
    recalled = []
    for seq, experience in read_rows(connection, chosen):
        why = [*reasons.get(seq, ())]
        if words := _in_common(terms, experience):
            why.append(f"words in common: {', '.join(words)}")
        if experience.count > 1:
            why.append(f"made {experience.count} times")
        if experience.lesson and experience.is_retired:
            experience = replace(experience, lesson="")
            why.append(f"its lesson is retired: it harmed {experience.harmed} times, helped {experience.helped}")
        score = scores.get(seq, 0.0)
        score = round(score, 4) if math.isfinite(score) else 0.0
        recalled.append(Recalled(experience, score, tuple(why), near.get(seq)))
    return recalled, len(chosen) - len(recalled)


def _in_common(terms: Sequence[str], experience: Experience) -> list[str]:
    texts = (experience.situation, experience.said, experience.answer, experience.task, experience.action,
             experience.outcome, experience.cause, experience.lesson)  # fmt: skip
    text = " ".join(field[:2_000] for field in texts).casefold()
    return [term for term in terms if term in text]


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
