"""Order of recalled experiences: pure functions over scores, no database.

A query becomes words (`terms`); the full text index gives candidates with a score; their neighbours in the session are
candidates too, as an answer stands next to its question. Scores of different kinds (words, meaning) are expressed as
standard deviations from their mean, and added. Of equal scores the more useful one comes first, then the newer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import fsum, sqrt

from msgspec import Struct

MAX_QUERY = 4_000  # characters of a query that are used; a person's question is shorter
MAX_TERMS = 32
#: Parts of a hit's score that its neighbours in the session gain, at a distance of one and two. Chosen on LoCoMo.
BESIDE = (0.3, 0.15)

_WORD = re.compile(r"\w+")
# Scripts written without spaces: each character is a word of its own, when stored and when asked for.
_UNSPACED = re.compile("([\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
# Very common words match nearly every row and cost the most (a hundred times a rare one) for no meaning.
_COMMON = frozenset(
    {"a", "about", "all", "am", "an", "and", "any", "are", "as", "at", "be", "been", "being", "but", "by", "can"}
    | {"could", "d", "did", "do", "does", "doing", "for", "from", "had", "has", "have", "having", "he", "her", "hers"}
    | {"him", "his", "how", "i", "if", "in", "into", "is", "it", "its", "just", "ll", "m", "may", "me", "might", "mine"}
    | {"must", "my", "no", "nor", "not", "of", "on", "or", "our", "ours", "re", "s", "shall", "she", "should", "so"}
    | {"some", "such", "t", "than", "that", "the", "their", "theirs", "them", "then", "there", "these", "they", "this"}
    | {"those", "to", "too", "us", "ve", "was", "we", "were", "what", "when", "where", "which", "who", "whom", "whose"}
    | {"why", "will", "with", "would", "you", "your", "yours"}
)


def words_of(text: str) -> str:
    """Return a text in the form that the index has."""
    return _UNSPACED.sub(r" \1 ", text)


def terms(query: str) -> tuple[str, ...]:
    """Return the different words of a query, in order; very common ones only if there are no others."""
    words = dict.fromkeys(word.casefold() for word in _WORD.findall(words_of(query[:MAX_QUERY])))
    rare = tuple(word for word in words if word not in _COMMON)
    return (rare or tuple(words))[:MAX_TERMS]


class Candidate(Struct, frozen=True):
    """Experience that may be recalled: its time (seconds since 1970), whether it succeeded, whether it has a lesson,
    and how many decisions it helped and harmed."""

    at: float
    success: bool | None = None
    lesson: bool = False
    helped: int = 0
    harmed: int = 0


class Pair(Struct, frozen=True):
    """Two experiences of one session, and their distance in places."""

    first: int
    second: int
    apart: int


def standard(scores: Mapping[int, float]) -> dict[int, float]:
    """Return the scores as standard deviations from their mean; 0 if all are equal."""
    if not scores:
        return {}
    mean = fsum(scores.values()) / len(scores)
    deviation = sqrt(fsum((score - mean) ** 2 for score in scores.values()) / len(scores))
    return {key: (score - mean) / deviation if deviation > 0 else 0.0 for key, score in scores.items()}


def added(scores: Sequence[Mapping[int, float]], keys: Iterable[int]) -> dict[int, float]:
    """Return for each key the sum of its standardized scores; a missing score counts as the mean of its kind."""
    kinds = [standard(of_kind) for of_kind in scores]
    return {key: sum(kind.get(key, 0.0) for kind in kinds) for key in keys}


def beside(scores: Mapping[int, float], pairs: Iterable[Pair]) -> dict[int, float]:
    """Return the scores with the gains from neighbours. Only scores above the mean give a gain."""
    lifted = {key: max(0.0, score + 1) for key, score in scores.items()}
    gained = dict(lifted)
    for pair in pairs:
        share = BESIDE[pair.apart - 1]
        gained[pair.first] += share * lifted[pair.second]
        gained[pair.second] += share * lifted[pair.first]
    return gained


def usefulness(candidate: Candidate) -> float:
    """Return the rank of usefulness: success with a lesson, failure with a lesson, the rest; credits add to it."""
    judged = {True: 1.0, False: 0.5, None: 0.0}[candidate.success]
    tried = candidate.helped + candidate.harmed
    return judged + (0.5 if candidate.lesson else 0.0) + (candidate.helped - candidate.harmed) / (tried + 2)


def order(candidates: Mapping[int, Candidate], scores: Mapping[int, float]) -> list[int]:
    """Return the candidates, best first: by score, then usefulness, then the newer."""

    def rank(key: int) -> tuple[float, float, float, int]:
        candidate = candidates[key]
        return -round(scores[key], 6), -usefulness(candidate), -candidate.at, -key

    return sorted(candidates, key=rank)
