"""Tools whose reliability drifts: one kind of task, and several tools that each work with a probability that changes.

For each regime a reliability is drawn for each tool. The reliability of the best tool is known, so the regret of each
choice is too.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.environments.environment import Change, Observation, Offer


class DriftingTools:
    """Environment of one task and several tools that work with some probability.

    Args: length: number of tasks; regimes: parts of equal length, each with other reliabilities; tools: number of
    tools; reliabilities: those of each regime, tool by tool; None: they are drawn.
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
        self._length, self._regimes, self._reliabilities = length, regimes, reliabilities
        self._random, self._index = random.Random(0), -1
        self._drawn: Sequence[Sequence[float]] = ()

    @property
    def reliabilities(self) -> Mapping[str, float]:
        """Return the present probability of success of each tool."""
        regime = min(self._regimes - 1, max(0, self._index) * self._regimes // self._length)
        return dict(zip((offer.name for offer in self.offers), self._drawn[regime], strict=True))

    def reset(self, seed: int | None = None) -> Observation:
        if seed is not None or not self._drawn:
            self._random, self._index = random.Random(seed), -1
            draw = self._random.random
            self._drawn = self._reliabilities or [[draw() for _ in self.offers] for _ in range(self._regimes)]
        self._index += 1
        return Observation("a task is to be done", kind="task")

    def step(self, tool: str, params: Mapping[str, Any]) -> Change:
        chances = self.reliabilities
        chance, best = chances.get(tool, 0.0), max(chances.values())
        has_worked = self._random.random() < chance
        error = "" if has_worked else f"{tool or 'nothing'} did not do it"
        return Change(None, float(has_worked), is_done=True, error=error, may_pass=True, regret=best - chance)
