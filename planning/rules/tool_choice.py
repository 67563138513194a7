"""Which of several tools to take, by what was learnt of their ability at a kind of task; pure.

Optimism under uncertainty: the tool with the highest plausible ability wins, so one that was hardly tried gets its
chance and one that keeps failing loses it. Equal ones go in the order in which they were written.
Source: upper credible bounds of a posterior as an index, Kaufmann, Cappé, Garivier, "On Bayesian Upper Confidence
Bounds for Bandit Problems", AISTATS 2012; mean plus one standard deviation stands for the Beta quantile here.
What is known of a tool at a task that is new is borrowed from tasks like it (`spar.records.abilities`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from spar.records.abilities import ENOUGH_TRIALS, kind_of_task, known_of
from spar.types import Ability

_UNKNOWN = 0.5 + math.sqrt(1 / 12)  # mean and deviation of Beta(1, 1): nothing known


def optimistic(ability: Ability | None) -> float:
    """The ability that is still plausible: mean plus standard deviation; for an unknown tool that of the flat prior."""
    if ability is None:
        return _UNKNOWN
    bound = ability.estimate + ability.uncertainty
    return bound if math.isfinite(bound) else _UNKNOWN


def is_below(ability: Ability | None, least: float) -> bool:
    """Return whether enough trials say that the tool does worse than `least` (0..1)."""
    return ability is not None and ability.trials >= ENOUGH_TRIALS and ability.estimate < least


def choose(tools: Sequence[str], task: str, abilities: Mapping[str, Ability], least: float | None = None) -> str | None:
    """The tool to take for this kind of task, or None when all of them are known to do worse than `least`."""
    known = {tool: known_of(tool, task, abilities) for tool in tools} if abilities else dict.fromkeys(tools)
    own = {task, kind_of_task(task)}  # of other intents one must not conclude that it need not be tried
    able = [
        tool
        for tool, of in known.items()
        if least is None or of is None or of.task not in own or not is_below(of, least)
    ]
    return max(able, key=lambda tool: optimistic(known[tool]), default=None)
