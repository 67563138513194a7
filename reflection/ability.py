"""How able a tool is at a kind of task, as a Beta posterior whose old evidence fades; pure.

Each trial multiplies the evidence so far by `discount` and adds itself, on top of a prior that does not fade: with 0.99
the last hundred or so trials count, and a tool that was repaired is believed again. The state is recovered from what an
`Ability` keeps: mean m and standard deviation s of a Beta distribution give its weight, m(1-m)/s² - 1.
Source: Beta-Bernoulli posterior with discounted counts: Raj, Kalyani, "Taming Non-stationary Bandits: A Bayesian
Approach", 2017.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from reflection.causes import STRUCTURAL
from spar.protocols import ability_key
from spar.types import Ability, CallResult

#: A prior weighs as much as two trials: with a prior of 0.5 it is the flat Beta(1, 1).
PRIOR_WEIGHT = 2.0


class Trial(Struct, frozen=True):
    """One attempt of a tool at a kind of task; `latency` in seconds."""

    tool: str
    task: str
    success: bool
    latency: float = 0.0


def trial_of(item: CallResult, task: str) -> Trial | None:
    """What a result says about its tool, or None when the tool was not tried or its success is not known.

    A throw that the plan handles is a trial that failed, all the same.
    """
    if item.status == "ok" and item.reason != "detached":
        success = True
    elif item.status in ("failed", "timeout") and not (item.fault is not None and item.fault.kind in STRUCTURAL):
        success = False
    else:
        return None
    return Trial(item.call.tool, task, success, item.duration if 0 <= item.duration < math.inf else 0.0)


def learn(
    trials: Iterable[Trial], abilities: Mapping[str, Ability], *, prior: float = 0.5, discount: float = 0.99
) -> tuple[Ability, ...]:
    """The abilities that these trials change, each as it is now, in the order of their first trial.

    Args: prior: the chance of success that is assumed of a tool before its first trial, 0..1 exclusive;
    discount: what a trial leaves of the evidence before it, 0..1.
    """
    learnt: dict[str, Ability] = {}
    for trial in trials:
        key = ability_key(trial.tool, trial.task)
        before = learnt.get(key) or abilities.get(key)
        learnt[key] = updated(before, trial, prior=prior, discount=discount)
    return tuple(learnt.values())


def updated(before: Ability | None, trial: Trial, *, prior: float = 0.5, discount: float = 0.99) -> Ability:
    """The ability after one more trial. Never raises: numbers that cannot be a posterior count as no evidence."""
    alpha0, beta0 = PRIOR_WEIGHT * prior, PRIOR_WEIGHT * (1 - prior)
    longest = 1 / (1 - discount) if discount < 1 else math.inf
    good, bad = _evidence(before, alpha0, beta0, longest)
    alpha = alpha0 + discount * good + trial.success
    beta = beta0 + discount * bad + (not trial.success)
    weight = alpha + beta
    trials = max(0, before.trials) + 1 if before is not None else 1
    latency = before.latency if before is not None and 0 <= before.latency < math.inf else 0.0
    return Ability(
        tool=trial.tool,
        task=trial.task,
        estimate=alpha / weight,
        uncertainty=math.sqrt(alpha * beta / (weight * weight * (weight + 1))),
        trials=trials,
        cost=before.cost if before is not None else 0.0,
        latency=latency + (trial.latency - latency) / min(trials, longest),
    )


def _evidence(before: Ability | None, alpha0: float, beta0: float, longest: float) -> tuple[float, float]:
    """Discounted successes and failures behind an ability, at least 0 and together at most `longest`."""
    if before is None or not (0 < before.estimate < 1 and 0 < before.uncertainty < 0.5):
        return 0.0, 0.0
    # A deviation below a millionth is no discounted posterior of ours; its square would be no number to divide by.
    weight = before.estimate * (1 - before.estimate) / max(before.uncertainty, 1e-6) ** 2 - 1
    good = max(0.0, before.estimate * weight - alpha0)
    bad = max(0.0, (1 - before.estimate) * weight - beta0)
    shrink = min(1.0, longest / (good + bad)) if good + bad > 0 else 1.0
    return good * shrink, bad * shrink
