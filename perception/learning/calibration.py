"""Calibration: how probable it is that a reading is right, learnt from readings of examples the model had not seen.

Platt's method on the log odds of the best class. Deterministic, plain Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Final

from perception.learning.linear import softmax

Weights = tuple[float, float]

STEPS = 30  # of Newton's method, which has settled long before
RIDGE = 1.0  # of the first step
LEAST = 1e-6
FEWEST = 8  # readings below which nothing is learnt from them
#: What holds before anything was learnt: the probability of the best class as it is.
PLAIN: Final[Weights] = (0.0, 1.0)


def odds(scores: Sequence[float]) -> float:
    """Return the log odds of the best class. Raises: ValueError for no scores."""
    best = min(max(softmax(scores)), 1 - LEAST)
    return log(best / (1 - best))


class Calibration:
    """The probability of being right by the log odds of a reading.

    Args: readings: log odds of readings of unseen texts, each with whether it was right.
    """

    def __init__(self, readings: Sequence[tuple[float, bool]] = ()) -> None:
        self._weights = _fitted(readings) if len(readings) >= FEWEST else PLAIN

    def confidence(self, found: float) -> float:
        """Return how probable it is that this reading is right, 0..1."""
        begin, slope = self._weights
        return _logistic(begin + slope * found)


def _logistic(value: float) -> float:
    return 1 / (1 + exp(-max(-30.0, min(30.0, value))))


def _fitted(readings: Sequence[tuple[float, bool]]) -> Weights:
    """Return the weights of a logistic regression with one figure, by Newton's method, damped."""
    # Neither outcome is ever sure (Platt): ten right ones of ten do not make the next one certain.
    right = sum(is_right for _, is_right in readings)
    yes, no = (right + 1) / (right + 2), 1 / (len(readings) - right + 2)
    aims = [(found, yes if is_right else no) for found, is_right in readings]
    weights, loss, damping = PLAIN, _loss(PLAIN, aims), RIDGE
    for _ in range(STEPS):
        tried = _step(weights, aims, damping)
        if (found := _loss(tried, aims)) < loss:
            weights, loss, damping = tried, found, damping / 4
        else:
            damping *= 8
    return weights[0], max(0.0, weights[1])


def _step(weights: Weights, aims: Sequence[tuple[float, float]], damping: float) -> Weights:
    (begin, slope), to_begin, to_slope = weights, 0.0, 0.0
    a, b, c = damping, 0.0, damping  # the second derivatives: a symmetric matrix of two rows
    for found, aim in aims:
        p = _logistic(begin + slope * found)
        off, spread = aim - p, p * (1 - p)
        to_begin, to_slope = to_begin + off, to_slope + off * found
        a, b, c = a + spread, b + spread * found, c + spread * found * found
    part = a * c - b * b
    return begin + (c * to_begin - b * to_slope) / part, slope + (a * to_slope - b * to_begin) / part


def _loss(weights: Weights, aims: Sequence[tuple[float, float]]) -> float:
    begin, slope = weights
    loss = 0.0
    for found, aim in aims:
        p = _logistic(begin + slope * found)
        loss -= aim * log(p) + (1 - aim) * log(1 - p)
    return loss
