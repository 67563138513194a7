"""Which of several tools to take, by what was learnt of their ability at a kind of task; pure.

Optimism under uncertainty: the tool with the highest plausible ability wins, so one that was hardly tried gets its
chance and one that keeps failing loses it. Equal ones go in the order in which they were written.
Source: upper credible bounds of a posterior as an index, Kaufmann, Cappé, Garivier, "On Bayesian Upper Confidence
Bounds for Bandit Problems", AISTATS 2012; mean plus one standard deviation stands for the Beta quantile here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from spar.protocols import ability_key
from spar.types import Ability

#: The estimate of five trials is the first that a `min_ability` trusts.
ENOUGH_TRIALS = 5

_UNKNOWN = 0.5 + math.sqrt(1 / 12)  # mean and deviation of Beta(1, 1): nothing known


def optimistic(ability: Ability | None) -> float:
    """The ability that is still plausible: mean plus standard deviation; for an unknown tool that of the flat prior."""
    if ability is None:
        return _UNKNOWN
    bound = ability.estimate + ability.uncertainty
    return bound if math.isfinite(bound) else _UNKNOWN


def is_below(ability: Ability | None, least: float) -> bool:
    """Whether enough trials say that the tool does worse than `least` (0..1)."""
    return ability is not None and ability.trials >= ENOUGH_TRIALS and ability.estimate < least


def choose(tools: Sequence[str], task: str, abilities: Mapping[str, Ability], least: float | None = None) -> str | None:
    """The tool to take for this kind of task, or None when all of them are known to do worse than `least`."""
    known = {tool: abilities.get(ability_key(tool, task)) for tool in tools} if abilities else dict.fromkeys(tools)
    able = [tool for tool in tools if least is None or not is_below(known[tool], least)]
    return max(able, key=lambda tool: optimistic(known[tool]), default=None)
