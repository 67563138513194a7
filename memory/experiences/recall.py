"""Which memories come first: pure functions over scores, no database.

A query becomes words (`terms`); the full text index proposes candidates with a score; those beside a hit in its session
come along, as an answer stands next to its question. Scores of different kinds (words, meaning) are compared as so many
standard deviations from their mean, and added. Of equals the more useful one comes first, then the newer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import fsum, sqrt

from msgspec import Struct

MAX_QUERY = 4_000  # characters that are looked at; what a person asks is shorter, a whole document is no query
MAX_TERMS = 32
#: What of a hit's score the one next to it in the same session gains, and the one after that. Fixed on LoCoMo.
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
    """Text as the index sees it."""
    return _UNSPACED.sub(r" \1 ", text)


def terms(query: str) -> tuple[str, ...]:
    """Return the words of a query worth searching for, each once, in order; common ones only if there are no others."""
    found = dict.fromkeys(word.casefold() for word in _WORD.findall(words_of(query[:MAX_QUERY])))
    telling = tuple(word for word in found if word not in _COMMON)
    return (telling or tuple(found))[:MAX_TERMS]


def phrases(words: Iterable[str], column: str = "") -> tuple[str, ...]:
    """Return words in the index's own language, never a syntax error. Args: column: the only one to look in."""
    place = f"{column} : " if column else ""
    return tuple(f'{place}"{word}"' for word in words)


def match(any_of: Iterable[str]) -> str:
    """Return what finds any of these phrases; empty when there are none."""
    return " OR ".join(any_of)


class Candidate(Struct, frozen=True):
    """A memory that may be recalled: when it was made (seconds since 1970), whether it worked, whether it teaches, the
    decisions that went by it and how they went."""

    at: float
    success: bool | None = None
    lesson: bool = False
    helped: int = 0
    harmed: int = 0


class Pair(Struct, frozen=True):
    """Two that stand so many places from each other in one session."""

    first: int
    second: int
    apart: int


def standard(scores: Mapping[int, float]) -> dict[int, float]:
    """Return each score as standard deviations from the mean of all; 0 where they are all the same."""
    if not scores:
        return {}
    mean = fsum(scores.values()) / len(scores)
    deviation = sqrt(fsum((score - mean) ** 2 for score in scores.values()) / len(scores))
    return {key: (score - mean) / deviation if deviation > 0 else 0.0 for key, score in scores.items()}


def added(scores: Sequence[Mapping[int, float]], keys: Iterable[int]) -> dict[int, float]:
    """Return the sum of these scores, each made comparable; who has none of a kind counts as the mean of it."""
    kinds = [standard(each) for each in scores]
    return {key: sum(kind.get(key, 0.0) for kind in kinds) for key in keys}


def beside(scores: Mapping[int, float], pairs: Iterable[Pair]) -> dict[int, float]:
    """Return the scores with what each gains from those beside it. Only what is better than most gives anything."""
    lifted = {key: max(0.0, score + 1) for key, score in scores.items()}
    found = dict(lifted)
    for pair in pairs:
        share = BESIDE[pair.apart - 1]
        found[pair.first] += share * lifted[pair.second]
        found[pair.second] += share * lifted[pair.first]
    return found


def usefulness(candidate: Candidate) -> float:
    """Rank success with a lesson before failure with a lesson, before what nobody judged; what helped counts for it."""
    judged = {True: 1.0, False: 0.5, None: 0.0}[candidate.success]
    tried = candidate.helped + candidate.harmed
    return judged + (0.5 if candidate.lesson else 0.0) + (candidate.helped - candidate.harmed) / (tried + 2)


def order(candidates: Mapping[int, Candidate], scores: Mapping[int, float]) -> list[int]:
    """Return the candidates, best first: by their score, of equals the more useful, then the newer."""

    def rank(key: int) -> tuple[float, float, float, int]:
        each = candidates[key]
        return -round(scores[key], 6), -usefulness(each), -each.at, -key

    return sorted(candidates, key=rank)
