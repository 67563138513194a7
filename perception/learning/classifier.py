"""Classifier: reads which of the learnt labels a text has, how sure that is, or that it has none of them.

Confidence is calibrated on the examples themselves: each is read once by a model that has not seen it. Where less
speaks for the best label than for most examples that were read so and rightly, a text is out of scope: it has none of
the labels. A text that is an example is known by heart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from perception.learning.calibration import Calibration, odds
from perception.learning.features import normal
from perception.learning.linear import LinearModel, Scorer

FOLDS: Final = 5
#: Examples beyond which one fold has to do for the calibration: training takes its time.
MANY: Final = 3_000
#: How sure it is of a text that is an example itself: a person may have meant it otherwise this time.
BY_HEART: Final = 0.99

#: Share of the usual score that is always enough.
MOST: Final = 1 / 3

Examples = Sequence[tuple[str, str]]
Train = Callable[[Examples], Scorer]


class Reading(Struct, frozen=True):
    """Reading of a text: `label` None means that it has none of the learnt ones; `nearest` came closest.

    `confidence` is the probability that it is `nearest`, if it is any; `score` says how much speaks for that.
    """

    label: str | None
    confidence: float
    nearest: str
    why: str
    score: float = 0.0


class Classifier:
    """A trained classifier; safe from any thread.

    Args:
        examples: texts with their labels; of two with the same text the later one holds.
        keep: the share of texts of learnt labels that shall be answered, at least; the rest is taken for out of scope.
        train: makes the model.
    """

    def __init__(self, examples: Examples, *, keep: float = 0.9, train: Train = LinearModel) -> None:
        self._by_heart = {normal(text): label for text, label in examples}
        distinct = {normal(text): (text, label) for text, label in examples}
        known = list(distinct.values())
        self._model = train(known)
        seen = [(odds(scores), max(scores), is_right) for scores, is_right in _unseen(known, train)]
        self._calibration = Calibration([(found, is_right) for found, _, is_right in seen])
        enough = sorted(score for _, score, is_right in seen if is_right)
        # Examples that are all alike say little of how far a text may be from them.
        self.threshold = min(enough[int((1 - keep) * len(enough))], enough[len(enough) // 2] * MOST) if enough else 0.0

    @property
    def labels(self) -> tuple[str, ...]:
        return self._model.labels

    def read(self, text: str) -> Reading:
        """Return what a text is read as. Raises nothing."""
        if (label := self._by_heart.get(normal(text))) is not None:
            return Reading(label, BY_HEART, label, "an example says so")
        scores = self._model.scores(text)
        score = max(scores)
        nearest = self.labels[scores.index(score)]
        sure = self._calibration.confidence(odds(scores)) if score > 0 else 0.0
        if score < self.threshold or score <= 0:
            why = f"none of the {len(self.labels)} learnt: {nearest!r} comes closest, with a score of {score:.2f}"
            return Reading(None, sure, nearest, f"{why} where {self.threshold:.2f} is needed", score)
        return Reading(nearest, sure, nearest, f"alike to the examples of {nearest!r}", score)


def _unseen(known: Examples, train: Train) -> Iterator[tuple[list[float], bool]]:
    """Read each example (of many, each fifth) by a model that has not seen it; whether that was right."""
    nth: Counter[str] = Counter()
    folds: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for text, label in known:
        folds[nth[label] % FOLDS].append((text, label))
        nth[label] += 1
    for number, fold in sorted(folds.items()):
        rest = [each for other, part in sorted(folds.items()) if other != number for each in part]
        if not rest:
            return
        model = train(rest)
        for text, label in fold:
            scores = model.scores(text)
            yield scores, model.labels[scores.index(max(scores))] == label
        if len(known) > MANY:
            return
