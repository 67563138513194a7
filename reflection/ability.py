"""Abilities of tools at kinds of tasks: Beta posteriors whose old evidence fades; pure.

Each trial multiplies the evidence so far by `discount` and adds itself, on top of a prior that does not fade: with 0.99
the last hundred or so trials count, and a tool that was repaired is believed again. Trials of other tools at the task
discount its evidence too: a tool that is not taken any more becomes unknown again, and so has its next chance. The
state is recovered from what an `Ability` keeps: mean m and standard deviation s of a Beta distribution give its weight,
m(1-m)/s² - 1.
Source: Beta-Bernoulli posterior with discounted counts: Raj, Kalyani, "Taming Non-stationary Bandits: A Bayesian
Approach", 2017.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from reflection.causes import STRUCTURAL
from spar.records.abilities import ability_key, names_of
from spar.types import Ability, CallResult, replace

#: A prior weighs as much as two trials: with a prior of 0.5 it is the flat Beta(1, 1).
PRIOR_WEIGHT = 2.0
#: Evidence of fewer trials than this is none: it need not fade, and be written, any further.
NOTHING = 0.01


class Trial(Struct, frozen=True):
    """One attempt of a tool at a kind of task; `latency` in seconds."""

    tool: str
    task: str
    success: bool
    latency: float = 0.0


def trial_of(item: CallResult, task: str) -> Trial | None:
    """Return the evidence of a result about its tool, or None when the tool was not tried or its success is not known.

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
    trials: Iterable[Trial],
    abilities: Mapping[str, Ability],
    *,
    prior: float = 0.5,
    discount: float = 0.99,
    tools: Collection[str] | None = None,
) -> tuple[Ability, ...]:
    """Return the abilities that these trials change, each as it is now: by each name of the tasks, and for all tools
    there.

    Args: prior: the chance of success that is assumed of a tool before its first trial, 0..1 exclusive;
    discount: what a trial leaves of the evidence before it, 0..1; tools: the names of those that may be known, None to
    look through all abilities for them.
    """
    every = list(trials)
    names = {known.tool for known in abilities.values()} if tools is None else set(tools)
    names |= {trial.tool for trial in every}
    learnt: dict[str, Ability] = {}
    for trial in every:
        for task in names_of(trial.task):
            key = ability_key(trial.tool, task)
            before = learnt.get(key) or abilities.get(key)
            learnt[key] = updated(before, replace(trial, task=task), prior=prior, discount=discount)
            for other in sorted(names - {trial.tool}):
                key = ability_key(other, task)
                known = learnt.get(key) or abilities.get(key)
                if known is not None and (less := faded(known, prior=prior, discount=discount)) is not known:
                    learnt[key] = less
    return tuple(learnt.values())


def faded(before: Ability, *, prior: float = 0.5, discount: float = 0.99) -> Ability:
    """Return the ability after a trial of another tool at the same task; itself when there is nothing left to fade."""
    alpha0, beta0 = PRIOR_WEIGHT * prior, PRIOR_WEIGHT * (1 - prior)
    longest = 1 / (1 - discount) if discount < 1 else math.inf
    good, bad = _evidence(before, alpha0, beta0, longest)
    if discount >= 1 or good + bad < NOTHING:
        return before
    alpha, beta = alpha0 + discount * good, beta0 + discount * bad
    return replace(before, estimate=_mean(alpha, beta), uncertainty=_deviation(alpha, beta))


def updated(before: Ability | None, trial: Trial, *, prior: float = 0.5, discount: float = 0.99) -> Ability:
    """Return the ability after one more trial. Never raises: numbers that cannot be a posterior count as no
    evidence."""
    alpha0, beta0 = PRIOR_WEIGHT * prior, PRIOR_WEIGHT * (1 - prior)
    longest = 1 / (1 - discount) if discount < 1 else math.inf
    good, bad = _evidence(before, alpha0, beta0, longest)
    alpha = alpha0 + discount * good + trial.success
    beta = beta0 + discount * bad + (not trial.success)
    trials = max(0, before.trials) + 1 if before is not None else 1
    latency = before.latency if before is not None and 0 <= before.latency < math.inf else 0.0
    return Ability(
        tool=trial.tool,
        task=trial.task,
        estimate=_mean(alpha, beta),
        uncertainty=_deviation(alpha, beta),
        trials=trials,
        cost=before.cost if before is not None else 0.0,
        latency=latency + (trial.latency - latency) / min(trials, longest),
    )


def _mean(alpha: float, beta: float) -> float:
    return alpha / (alpha + beta)


def _deviation(alpha: float, beta: float) -> float:
    weight = alpha + beta
    return math.sqrt(alpha * beta / (weight * weight * (weight + 1)))


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
