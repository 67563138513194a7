"""Features of a text: its words, pairs of words and pieces of words, lower case, in any script; pure.

All numbers become one feature, so that a log line is not recognised by its numbers. A text is read up to `LONGEST`
characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import log, sqrt

LONGEST = 2_000  # characters of a text that are read
WORDS, PIECES = 0.8, 1.2  # weights of the words and of the pieces of words, chosen on CLINC150's validation part
SIZES = (3, 4)  # letters of a piece; the blanks around a word count as letters

_TOKENS = re.compile(r"\w+|[^\w\s]")
_DIGITS = re.compile(r"\d+")

Counts = dict[str, int]
Vector = list[tuple[int, float]]


def tokens(text: str) -> list[str]:
    """Return the words and signs of a text in order, lower case, each number as 0."""
    return _TOKENS.findall(_DIGITS.sub("0", text[:LONGEST].lower()))


def normal(text: str) -> str:
    """Return a form of the text that is equal for texts which differ only in case and blanks."""
    return " ".join(text[:LONGEST].casefold().split())


def counts(text: str) -> tuple[Counts, Counts]:
    """Return the counts of each word or pair of words, and of each piece of a word, in a text."""
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

    Args: documents: the number of texts with each feature; total: the number of texts.
    """
    return {feature: log((1 + total) / (1 + number)) + 1 for feature, number in documents.items()}


def vector(text: str, index: Mapping[str, int], rarity: Mapping[str, float], unseen: float) -> Vector:
    """Return a text as numbers of features with their weights.

    Features outside the index are left out, but they count in the norm: a text with few known features has small
    weights.

    Args: unseen: the rarity of a feature outside the index.
    """
    features: Vector = []
    for block, weight in zip(counts(text), (WORDS, PIECES), strict=True):
        known: Vector = []
        whole = 0.0
        for key, number in block.items():
            value = (1 + log(number)) * rarity.get(key, unseen)
            whole += value * value
            if (place := index.get(key)) is not None:
                known.append((place, value))
        scale = weight / sqrt(whole) if whole else 0.0
        features += [(place, value * scale) for place, value in known]
    return features
