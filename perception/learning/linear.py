"""Linear model over sparse features: softmax regression in plain Python, which gives the same model for the same
examples.

The weights begin at the mean of each class (Rocchio) and follow the gradient, one example after the other. Only
classes that an example may still be mistaken for are corrected, and examples that are recognised surely are left out
of later rounds. So the weights stay sparse, and the work grows with the number of examples, not with its product with
the number of classes. `benchmarks/perception/intents.py` compares it with scikit-learn's on CLINC150 and Banking77.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, log
from random import Random
from typing import Protocol

from perception.learning.features import Vector, counts, rarities, vector

ROUNDS = 5
RATE = 3.0  # learning rate of the first round; it falls to 0 over the rounds
BEGIN = 4.0  # weight of the mean of a class at the beginning
MISTAKABLE = 0.02  # probability from which a wrong class is corrected
SURE, KNOWN = 0.98, 0.9  # probability of the right class for: no correction; leaving the example out of later rounds
UNSEEN = 2.0  # factor for the rarity of a feature in no example: unknown words count against all classes
LEAST = 0.05  # smaller weights are removed at the end


class Scorer(Protocol):
    """Trained model: the scores of a text by class, in the order of `labels`."""

    labels: tuple[str, ...]

    def scores(self, text: str) -> list[float]: ...


class LinearModel:
    """Trained model. `labels` are the classes in the order of the scores.

    Args: examples: texts with their labels; seed: seed of the order of the examples in training.
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
        """Return the score of each label; a text without a known feature has 0 everywhere."""
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
            live = [pair for pair in live if self._correct(*pair, rate) < KNOWN or not turn]

    def _correct(self, features: Vector, label: int, rate: float) -> float:
        """Go one step down the gradient for an example; return the probability of its label before that."""
        powers = softmax(self._scores(features))
        right = powers[label]
        if right < SURE:
            steps = [(c, rate * p) for c, p in enumerate(powers) if p > MISTAKABLE and c != label]
            right_step = rate * (1 - right)
            for feature, value in features:
                row = self._rows[feature]
                row[label] = row.get(label, 0.0) + right_step * value
                for other, step in steps:
                    row[other] = row.get(other, 0.0) - step * value
        return right


def softmax(scores: Sequence[float]) -> list[float]:
    """Return the probabilities for scores."""
    most = max(scores)
    powers = [exp(score - most) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]
