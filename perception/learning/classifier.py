"""Classifier: reads which of the learnt labels a text has and with which confidence, or that it has none of them.

The confidence is calibrated on the examples themselves: each is read once by a model that was trained without it. A
text is out of scope, so it has none of the labels, when the score of the best label is lower than that of most
examples that were read rightly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import exp, log
from typing import Final

from msgspec import Struct

from perception.learning.features import normal
from perception.learning.linear import LinearModel, Scorer, softmax

FOLDS: Final = 5
#: Number of examples above which the calibration uses only one fold, because training takes long.
MANY: Final = 3_000

#: Share of the median score that is always enough.
MOST: Final = 1 / 3

Examples = Sequence[tuple[str, str]]
Train = Callable[[Examples], Scorer]


class Reading(Struct, frozen=True):
    """Reading of a text: `label` is None when it has none of the learnt labels; `nearest` is the most similar label.

    `confidence` is the probability that the label is `nearest`, if the text has any; `score` is the model's score for
    it.
    """

    label: str | None
    confidence: float
    nearest: str
    why: str
    score: float = 0.0


class Classifier:
    """Trained classifier; safe from any thread.

    Args: examples: texts with their labels; of two equal texts the later one counts. keep: the least share of texts of
    learnt labels that must be answered; the others count as out of scope. train: makes the model.
    """

    def __init__(self, examples: Examples, *, keep: float = 0.9, train: Train = LinearModel) -> None:
        distinct = {normal(text): (text, label) for text, label in examples}
        known = list(distinct.values())
        self._model = train(known)
        readings = [(odds(scores), max(scores), is_right) for scores, is_right in _unseen(known, train)]
        self._calibration = Calibration([(log_odds, is_right) for log_odds, _, is_right in readings])
        enough = sorted(score for _, score, is_right in readings if is_right)
        # If all examples are similar, they say little about the distance that a text may have. So the threshold is
        # never above a share of the median.
        self.threshold = min(enough[int((1 - keep) * len(enough))], enough[len(enough) // 2] * MOST) if enough else 0.0

    @property
    def labels(self) -> tuple[str, ...]:
        return self._model.labels

    def read(self, text: str) -> Reading:
        """Return the reading of a text. Raises nothing."""
        scores = self._model.scores(text)
        score = max(scores)
        nearest = self.labels[scores.index(score)]
        confidence = self._calibration.confidence(odds(scores)) if score > 0 else 0.0
        if score < self.threshold or score <= 0:
            why = f"none of the {len(self.labels)} learnt: {nearest!r} comes closest, with a score of {score:.2f}"
            return Reading(None, confidence, nearest, f"{why} where {self.threshold:.2f} is needed", score)
        return Reading(nearest, confidence, nearest, f"alike to the examples of {nearest!r}", score)


def _unseen(known: Examples, train: Train) -> Iterator[tuple[list[float], bool]]:
    """Yield the scores of each example from a model trained without it, and whether the best label was right. Of more
    than `MANY` examples only a fifth is read."""
    nth: Counter[str] = Counter()
    folds: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for text, label in known:
        folds[nth[label] % FOLDS].append((text, label))
        nth[label] += 1
    for number, fold in sorted(folds.items()):
        others = [example for other, part in sorted(folds.items()) if other != number for example in part]
        if not others:
            return
        model = train(others)
        for text, label in fold:
            scores = model.scores(text)
            yield scores, model.labels[scores.index(max(scores))] == label
        if len(known) > MANY:
            return


# -- calibration: Platt's method on the log odds of the best class, deterministic and plain Python

Weights = tuple[float, float]

STEPS = 30  # bound of the steps of Newton's method, which converges long before
RIDGE = 1.0  # damping of the first step
LEAST = 1e-6  # distance of a probability from 1, at least
FEWEST = 8  # readings that are needed to learn from them
#: Weights without learning: the probability of the best class stays as it is.
PLAIN: Final[Weights] = (0.0, 1.0)


def odds(scores: Sequence[float]) -> float:
    """Return the log odds of the best class. Raises: ValueError for no scores."""
    best = min(max(softmax(scores)), 1 - LEAST)
    return log(best / (1 - best))


class Calibration:
    """Probability of being right, by the log odds of a reading.

    Args: readings: log odds of readings of unseen texts, each with whether the reading was right.
    """

    def __init__(self, readings: Sequence[tuple[float, bool]] = ()) -> None:
        self._weights = _fitted(readings) if len(readings) >= FEWEST else PLAIN

    def confidence(self, log_odds: float) -> float:
        """Return the probability 0..1 that a reading with these log odds is right."""
        begin, slope = self._weights
        return _logistic(begin + slope * log_odds)


def _logistic(value: float) -> float:
    return 1 / (1 + exp(-max(-30.0, min(30.0, value))))


def _fitted(readings: Sequence[tuple[float, bool]]) -> Weights:
    """Return the weights of a logistic regression with one feature, by Newton's method with damping."""
    # The targets are not 0 and 1 (Platt): ten right readings of ten do not make the next one certain.
    right = sum(is_right for _, is_right in readings)
    yes, no = (right + 1) / (right + 2), 1 / (len(readings) - right + 2)
    aims = [(log_odds, yes if is_right else no) for log_odds, is_right in readings]
    weights, loss, damping = PLAIN, _loss(PLAIN, aims), RIDGE
    for _ in range(STEPS):
        tried = _step(weights, aims, damping)
        if (new_loss := _loss(tried, aims)) < loss:
            weights, loss, damping = tried, new_loss, damping / 4
        else:
            damping *= 8
    return weights[0], max(0.0, weights[1])


def _step(weights: Weights, aims: Sequence[tuple[float, float]], damping: float) -> Weights:
    (begin, slope), to_begin, to_slope = weights, 0.0, 0.0
    a, b, c = damping, 0.0, damping  # the second derivatives: a symmetric matrix of two rows
    for log_odds, aim in aims:
        p = _logistic(begin + slope * log_odds)
        off, spread = aim - p, p * (1 - p)
        to_begin, to_slope = to_begin + off, to_slope + off * log_odds
        a, b, c = a + spread, b + spread * log_odds, c + spread * log_odds * log_odds
    part = a * c - b * b
    return begin + (c * to_begin - b * to_slope) / part, slope + (a * to_slope - b * to_begin) / part


def _loss(weights: Weights, aims: Sequence[tuple[float, float]]) -> float:
    begin, slope = weights
    loss = 0.0
    for log_odds, aim in aims:
        p = _logistic(begin + slope * log_odds)
        loss -= aim * log(p) + (1 - aim) * log(1 - p)
    return loss
