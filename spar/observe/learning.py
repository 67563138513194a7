"""Counts of what an agent has learnt in this process: trials, causes of failures, words on how things went, advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from spar.records.abilities import ability_key, names_of
from spar.types import Ability, Reflection

#: Kinds of failures that are told apart; the rest is counted together.
MOST_KINDS = 50
OTHER_KINDS = "other"


class LearningCounts:
    """Counts of one agent. `failures` are by kind of cause, `feedback` by who said it and whether it was good,
    `advised` by what came of asking a model."""

    __slots__ = ("advised", "failures", "feedback", "trials")

    def __init__(self) -> None:
        self.trials = 0
        self.failures: Counter[str] = Counter()
        self.feedback: Counter[tuple[str, str]] = Counter()
        self.advised: Counter[str] = Counter()

    def add(self, reflection: Reflection, before: Mapping[str, Ability]) -> None:
        """Count what a reflection says.

        Args: before: the abilities as they were.
        """
        for ability in reflection.abilities:
            if ability.task == names_of(ability.task)[-1]:  # each trial is learnt under several names, once under this
                known = before.get(ability_key(ability.tool, ability.task))
                self.trials += max(0, ability.trials - (0 if known is None else known.trials))
        for failure in reflection.failures:
            kind = failure.kind or OTHER_KINDS
            self.failures[kind if kind in self.failures or len(self.failures) < MOST_KINDS else OTHER_KINDS] += 1
        for word in reflection.feedback:
            self.feedback[word.by, "good" if word.success else "bad"] += 1
        if reflection.advised:
            self.advised[reflection.advised] += 1
