"""Counts of what an agent has learnt in this process: trials, causes of failures, feedback, advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from spar.records.abilities import ability_key, names_of
from spar.types import Ability, Reflection

#: Most kinds of failures with a count of their own; the others share one count.
MOST_KINDS = 50
OTHER_KINDS = "other"


class LearningCounts:
    """Counts of one agent.

    `failures` are by kind of cause, `feedback` by its source and by good or bad, `advised` by the result of asking a
    model.
    """

    __slots__ = ("advised", "failures", "feedback", "trials")

    def __init__(self) -> None:
        self.trials = 0
        self.failures: Counter[str] = Counter()
        self.feedback: Counter[tuple[str, str]] = Counter()
        self.advised: Counter[str] = Counter()

    def add(self, reflection: Reflection, before: Mapping[str, Ability]) -> None:
        """Count what a reflection contains.

        Args: before: the abilities before it.
        """
        for ability in reflection.abilities:
            if ability.task == names_of(ability.task)[-1]:  # each trial counts under several names, once under this one
                known = before.get(ability_key(ability.tool, ability.task))
                self.trials += max(0, ability.trials - (0 if known is None else known.trials))
        for failure in reflection.failures:
            kind = failure.kind or OTHER_KINDS
            self.failures[kind if kind in self.failures or len(self.failures) < MOST_KINDS else OTHER_KINDS] += 1
        for word in reflection.feedback:
            self.feedback[word.by, "good" if word.success else "bad"] += 1
        if reflection.advised:
            self.advised[reflection.advised] += 1
