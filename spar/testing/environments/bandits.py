"""Tools whose reliability drifts: one kind of task, three tools, each works so often, and at times that changes.

In each regime a reliability is drawn for each tool. What the most reliable tool would have brought is known, and so is
the regret of each choice.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from spar.testing.environments.environment import Change, Observation, Offer


class DriftingTools:
    """An environment of one task and several tools that work with some probability.

    Args: length: tasks in all; regimes: parts of equal length, each with other reliabilities; tools: how many;
    reliabilities: those of each regime, tool by tool; None: they are drawn.
    """

    name = "tasks"
    seconds = 10.0

    def __init__(
        self,
        length: int,
        regimes: int = 1,
        *,
        tools: int = 3,
        reliabilities: Sequence[Sequence[float]] | None = None,
    ) -> None:
        self.offers = [Offer(f"way_{number}", "One way to do the task.") for number in range(1, tools + 1)]
        self._length, self._regimes, self._given = length, regimes, reliabilities
        self._random, self._seen = random.Random(0), -1
        self._drawn: Sequence[Sequence[float]] = ()

    @property
    def reliabilities(self) -> Mapping[str, float]:
        """Return how often each tool works now."""
        regime = min(self._regimes - 1, max(0, self._seen) * self._regimes // self._length)
        return dict(zip((offer.name for offer in self.offers), self._drawn[regime], strict=True))

    def reset(self, seed: int | None = None) -> Observation:
        if seed is not None or not self._drawn:
            self._random, self._seen = random.Random(seed), -1
            draw = self._random.random
            self._drawn = self._given or [[draw() for _ in self.offers] for _ in range(self._regimes)]
        self._seen += 1
        return Observation("a task is to be done", kind="task")

    def step(self, tool: str, params: Mapping[str, Any]) -> Change:
        chances = self.reliabilities
        chance, best = chances.get(tool, 0.0), max(chances.values())
        has_worked = self._random.random() < chance
        error = "" if has_worked else f"{tool or 'nothing'} did not do it"
        return Change(None, float(has_worked), is_done=True, error=error, may_pass=True, regret=best - chance)
