"""Linear model over sparse features: softmax regression in plain Python, the same again from the same examples.

It begins at the mean of each class (Rocchio) and goes down the gradient, one example after the other; only classes that
an example may still be mistaken for are corrected, and examples that are known for sure are left out of later rounds.
So weights stay sparse, and the work grows with the examples and not with their number times that of the classes.
Measured beside scikit-learn's on CLINC150 and Banking77: `benchmarks/perception/intents.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, log
from random import Random
from typing import Protocol

from perception.learning.features import Vector, counts, rarities, vector

ROUNDS = 5
RATE = 3.0  # of the first round; it falls to 0 over the rounds
BEGIN = 4.0  # what the mean of a class weighs at the beginning
MISTAKABLE = 0.02  # probability from which on a wrong class is corrected
SURE, KNOWN = 0.98, 0.9  # probability of the right class: nothing is corrected; it is left out of later rounds
UNSEEN = 2.0  # times the rarity of a feature that is in no example: strange words count against all classes
LEAST = 0.05  # weights below are given up at the end


class Scorer(Protocol):
    """A trained model: the scores of a text by class, in the order of `labels`."""

    labels: tuple[str, ...]

    def scores(self, text: str) -> list[float]: ...


class LinearModel:
    """A trained model. `labels` are the classes in the order of the scores.

    Args: examples: texts with their labels; seed: of the order in which they are gone through.
    """

    def __init__(self, examples: Sequence[tuple[str, str]], *, seed: int = 0) -> None:
        self.labels = tuple(sorted({label for _, label in examples}))
        documents: Counter[str] = Counter()
        for text, _ in examples:
            for block in counts(text):
                documents.update(block.keys())
        self._rarity = rarities(documents, len(examples))
        self._unseen = UNSEEN * (log(1 + len(examples)) + 1)
        self._index = {feature: number for number, feature in enumerate(self._rarity)}
        number_of = {label: number for number, label in enumerate(self.labels)}
        known = [(vector(text, self._index, self._rarity, self._unseen), number_of[label]) for text, label in examples]
        self._rows: list[dict[int, float]] = [{} for _ in self._index]
        self._begin(known)
        self._descend(known, Random(seed))
        self._rows = [{c: weight for c, weight in row.items() if abs(weight) > LEAST} for row in self._rows]

    def scores(self, text: str) -> list[float]:
        """Return how much speaks for each label; a text without a known feature has 0 everywhere."""
        return self._scores(vector(text, self._index, self._rarity, self._unseen))

    def _scores(self, features: Vector) -> list[float]:
        scores, rows = [0.0] * len(self.labels), self._rows
        for feature, value in features:
            for label, weight in rows[feature].items():
                scores[label] += weight * value
        return scores

    def _begin(self, known: Sequence[tuple[Vector, int]]) -> None:
        """Set the weights to the mean of each class."""
        size = Counter(label for _, label in known)
        for features, label in known:
            share = BEGIN / size[label]
            for feature, value in features:
                row = self._rows[feature]
                row[label] = row.get(label, 0.0) + share * value

    def _descend(self, known: Sequence[tuple[Vector, int]], order: Random) -> None:
        live = list(known)
        for turn in range(ROUNDS):
            order.shuffle(live)
            rate = RATE * (1 - turn / ROUNDS)
            live = [each for each in live if self._correct(*each, rate) < KNOWN or not turn]

    def _correct(self, features: Vector, label: int, rate: float) -> float:
        """Go one step down the gradient for an example; return how probable its label was before."""
        powers = softmax(self._scores(features))
        right = powers[label]
        if right < SURE:
            steps = [(c, rate * p) for c, p in enumerate(powers) if p > MISTAKABLE and c != label]
            own = rate * (1 - right)
            for feature, value in features:
                row = self._rows[feature]
                row[label] = row.get(label, 0.0) + own * value
                for other, step in steps:
                    row[other] = row.get(other, 0.0) - step * value
        return right


def softmax(scores: Sequence[float]) -> list[float]:
    """Return the probabilities that scores stand for."""
    most = max(scores)
    powers = [exp(score - most) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]
