"""Which memories come first: pure functions over ranks, no database.

A query becomes words (`terms`), the full text index proposes candidates with a score, and `order` fuses that
ranking with recency and usefulness. Rankings are fused by reciprocal rank, so a further one (vectors) is one
more entry in the list: scores of different kinds never have to be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

MAX_QUERY = 4_000  # characters that are looked at; what a person asks is shorter, a whole document is no query
MAX_TERMS = 32
_SMOOTHING = 10  # the k of reciprocal rank fusion; 60 in the paper is for hundreds of results, here 50 candidates
WEIGHTS = {"text": 1.0, "recency": 0.3, "usefulness": 0.2}

_WORD = re.compile(r"\w+")
# Scripts written without spaces: each character is a word of its own, when stored and when asked for.
_UNSPACED = re.compile("([\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
# Very common words match nearly every row and cost the most (a hundred times a rare one) for no meaning.
_COMMON = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "by", "did", "do", "does", "for", "from", "has", "have", "how", "i"}
    | {"if", "in", "is", "it", "its", "no", "not", "of", "on", "or", "that", "the", "this", "to", "was", "were"}
    | {"what", "when", "which", "who", "why", "will", "with"}
)


class Candidate(Struct, frozen=True):
    """A memory that may be recalled: when it was made (seconds since 1970), whether it worked, whether it teaches."""

    at: float
    success: bool | None = None
    lesson: bool = False


def words_of(text: str) -> str:
    """Text as the index sees it."""
    return _UNSPACED.sub(r" \1 ", text)


def terms(query: str) -> tuple[str, ...]:
    """Return the words of a query worth searching for, each once, in order; common ones only if there are no others."""
    found = dict.fromkeys(word.casefold() for word in _WORD.findall(words_of(query[:MAX_QUERY])))
    telling = tuple(word for word in found if word not in _COMMON)
    return (telling or tuple(found))[:MAX_TERMS]


def match(query: str) -> str:
    """A query of any text in the index's own language; empty when there is no word in it. Never a syntax error."""
    return " OR ".join(f'"{word}"' for word in terms(query))


def ranks(scores: Mapping[int, float]) -> dict[int, int]:
    """Each key's place from 1, the highest score first; equal scores share a place."""
    places: dict[int, int] = {}
    place, last = 0, None
    for count, (key, score) in enumerate(sorted(scores.items(), key=lambda item: -item[1]), start=1):
        if score != last:
            place, last = count, score
        places[key] = place
    return places


def fuse(rankings: Iterable[tuple[float, Mapping[int, int]]]) -> dict[int, float]:
    """Weighted reciprocal rank fusion: the sum over rankings of weight / (k + place); higher is better.

    Args: rankings: `(weight, {key: place})`; a key may be missing from some of them.
    Source: Cormack, Clarke, Büttcher, "Reciprocal Rank Fusion outperforms Condorcet…", SIGIR 2009.
    """
    fused: dict[int, float] = {}
    for weight, places in rankings:
        for key, place in places.items():
            fused[key] = fused.get(key, 0.0) + weight / (_SMOOTHING + place)
    return fused


def usefulness(candidate: Candidate) -> float:
    """Rank success with a lesson before failure with a lesson, before what nobody judged."""
    judged = {True: 1.0, False: 0.5, None: 0.0}[candidate.success]
    return judged + (0.5 if candidate.lesson else 0.0)


def order(candidates: Mapping[int, Candidate], found: Sequence[Mapping[int, float]]) -> list[int]:
    """Return the candidates, best first.

    Args: found: one mapping of scores (higher is better) for each way of searching: text now, vectors later.
    """
    rankings = [(WEIGHTS["text"], ranks(scores)) for scores in found]
    rankings.append((WEIGHTS["recency"], ranks({key: item.at for key, item in candidates.items()})))
    rankings.append((WEIGHTS["usefulness"], ranks({key: usefulness(item) for key, item in candidates.items()})))
    fused = fuse(rankings)
    return sorted(candidates, key=lambda key: (-fused[key], -candidates[key].at, -key))
