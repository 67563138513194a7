"""Features of a text: its words, pairs of words and pieces of words, lower case, in any script; pure.

Numbers are all one, so that a line of a log is not known by its numbers. A text is read up to `LONGEST` characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import log, sqrt

LONGEST = 2_000  # characters of a text that are looked at
WORDS, PIECES = 0.8, 1.2  # what the words weigh, and what the pieces of words do: chosen on CLINC150's validation part
SIZES = (3, 4)  # letters of a piece, the blanks around a word being letters

_TOKENS = re.compile(r"\w+|[^\w\s]")
_DIGITS = re.compile(r"\d+")

Counts = dict[str, int]
Vector = list[tuple[int, float]]


def tokens(text: str) -> list[str]:
    """Return the words and signs of a text in order, lower case, each number as 0."""
    return _TOKENS.findall(_DIGITS.sub("0", text[:LONGEST].lower()))


def normal(text: str) -> str:
    """Return what two texts have in common that differ in case and blanks alone."""
    return " ".join(text[:LONGEST].casefold().split())


def counts(text: str) -> tuple[Counts, Counts]:
    """Return how often each word or pair of words, and each piece of a word, stands in a text."""
    words, pieces, former = Counts(), Counts(), "^"
    for token in tokens(text):
        for word in (token, f"{former} {token}"):
            words[word] = words.get(word, 0) + 1
        former, padded = token, f" {token} "
        for size in SIZES:
            for at in range(len(padded) - size + 1):
                piece = "#" + padded[at : at + size]
                pieces[piece] = pieces.get(piece, 0) + 1
    pair = f"{former} $"
    words[pair] = words.get(pair, 0) + 1
    return words, pieces


def rarities(documents: Mapping[str, int], total: int) -> dict[str, float]:
    """Return the inverse document frequency of each feature.

    Args: documents: in how many texts each feature stands; total: how many texts there are.
    """
    return {feature: log((1 + total) / (1 + number)) + 1 for feature, number in documents.items()}


def vector(text: str, index: Mapping[str, int], rarity: Mapping[str, float], unseen: float) -> Vector:
    """Return a text as numbers of features and their weights.

    Features that are not in the index are left out, but have their share of the whole: a text of which little is known
    has small weights.

    Args: unseen: the rarity of a feature that is not in the index.
    """
    found: Vector = []
    for block, weight in zip(counts(text), (WORDS, PIECES), strict=True):
        known: Vector = []
        whole = 0.0
        for key, number in block.items():
            value = (1 + log(number)) * rarity.get(key, unseen)
            whole += value * value
            if (place := index.get(key)) is not None:
                known.append((place, value))
        scale = weight / sqrt(whole) if whole else 0.0
        found += [(place, value * scale) for place, value in known]
    return found
