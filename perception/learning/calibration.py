"""Calibration: the probability that a reading is right, learnt from readings of examples that the model had not seen.

The method is Platt's, on the log odds of the best class. It is deterministic and plain Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Final

from perception.learning.linear import softmax

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
