"""Abilities of tools at kinds of tasks: Beta posteriors whose old evidence fades; pure.

Each trial multiplies the evidence so far by `discount` and adds itself, on top of a prior that does not fade. With
0.975 about the last forty trials count, and a tool that was repaired is trusted again. Trials of other tools at the
same task discount the evidence of this tool too: a tool that is no longer used becomes unknown again and gets another
chance. Time also discounts: each half-life removes half of the evidence (`spar.records.abilities`).

Source: Beta-Bernoulli posterior with discounted counts: Raj, Kalyani, "Taming Non-stationary Bandits: A Bayesian
Approach", 2017.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from reflection.causes import STRUCTURAL, cause_of
from spar.records.abilities import (
    NOTHING,
    PRIOR_WEIGHT,
    ability_key,
    deviation_of,
    evidence_of,
    mean_of,
    names_of,
    share_left,
)
from spar.types import Ability, CallResult, replace

#: Seconds of a day.
DAY = 86_400.0


class Fading(Struct, frozen=True):
    """Prior and fading of abilities.

    `prior` is the chance of success that is assumed of a tool before its first trial, 0..1 exclusive. `discount` is
    the share of the earlier evidence that remains after a trial, 0..1. After `half_life` seconds half of the evidence
    remains; 0: evidence does not fade with time.
    """

    prior: float = 0.5
    discount: float = 0.975
    half_life: float = 30 * DAY

    @property
    def longest(self) -> float:
        """Return the largest number of trials that the evidence can be worth."""
        return 1 / (1 - self.discount) if self.discount < 1 else math.inf


FADING = Fading()


class Trial(Struct, frozen=True):
    """One attempt of a tool at a kind of task; `latency` in seconds.

    `success` is a share, 0..1, because a call may get only a part of the credit. `weight` is the number of attempts
    that this one counts for. `cost` is the number of calls taken from the budget. `cost` and `latency` are None where
    they are unknown or already counted.
    """

    tool: str
    task: str
    success: float
    latency: float | None = 0.0
    weight: float = 1.0
    cost: float | None = None


def trial_of(item: CallResult, task: str) -> Trial | None:
    """Return the evidence that a result gives about its tool; None when the tool was not tried or its success is
    unknown.

    An exception that the plan handles is still a failed trial. A call is no evidence when its parameters came from
    untrusted text and the tool rejected them.
    """
    if item.status == "ok" and item.reason != "detached":
        success = True
    elif item.status in ("failed", "timeout") and not (item.fault is not None and item.fault.kind in STRUCTURAL):
        success = False
        if item.call.meta.get("_trust") == "untrusted" and cause_of(item).action == "other_parameter":
            return None
    else:
        return None
    cost = float(item.attempts) if item.attempts > 0 else None
    return Trial(item.call.tool, task, success, item.duration if 0 <= item.duration < math.inf else 0.0, cost=cost)


def learn(
    trials: Iterable[Trial],
    abilities: Mapping[str, Ability],
    *,
    fading: Fading = FADING,
    tools: Collection[str] | None = None,
    now: float = 0.0,
) -> tuple[Ability, ...]:
    """Return the updated abilities that these trials change: under each name of each task, for the tool of the trial
    and for all other tools known at that task.

    Args: tools: names of the tools that may have abilities, None to collect them from `abilities`; now: in seconds
    since 1970.
    """
    every = list(trials)
    names = {known.tool for known in abilities.values()} if tools is None else set(tools)
    names |= {trial.tool for trial in every}
    learnt: dict[str, Ability] = {}
    for trial in every:
        for task in names_of(trial.task):
            key = ability_key(trial.tool, task)
            before = learnt.get(key) or abilities.get(key)
            learnt[key] = updated(before, replace(trial, task=task), fading=fading, now=now)
            for other in sorted(names - {trial.tool}):
                key = ability_key(other, task)
                known = learnt.get(key) or abilities.get(key)
                if known is not None and (weaker := faded(known, trial.weight, fading=fading, now=now)) is not known:
                    learnt[key] = weaker
    return tuple(learnt.values())


def faded(before: Ability, weight: float = 1.0, *, fading: Fading = FADING, now: float = 0.0) -> Ability:
    """Return the ability after a trial of another tool at the same task; the same object when no evidence is left to
    fade."""
    good, bad = evidence_of(before, fading.prior, fading.longest)
    left = fading.discount**weight * share_left(before, now)
    if left >= 1 or good + bad < NOTHING:
        return before
    alpha, beta = PRIOR_WEIGHT * fading.prior + left * good, PRIOR_WEIGHT * (1 - fading.prior) + left * bad
    return replace(
        before,
        estimate=mean_of(alpha, beta),
        uncertainty=deviation_of(alpha, beta),
        at=now or before.at,
        half_life=fading.half_life,
    )


def updated(before: Ability | None, trial: Trial, *, fading: Fading = FADING, now: float = 0.0) -> Ability:
    """Return the ability after one more trial. Never raises: numbers that cannot be a posterior count as no
    evidence."""
    good, bad = evidence_of(before, fading.prior, fading.longest)
    left = fading.discount**trial.weight * (1.0 if before is None else share_left(before, now))
    alpha = PRIOR_WEIGHT * fading.prior + left * good + trial.weight * trial.success
    beta = PRIOR_WEIGHT * (1 - fading.prior) + left * bad + trial.weight * (1 - trial.success)
    trials = max(0, before.trials) + 1 if before is not None else 1
    number = min(trials, fading.longest)
    return Ability(
        tool=trial.tool,
        task=trial.task,
        estimate=mean_of(alpha, beta),
        uncertainty=deviation_of(alpha, beta),
        trials=trials,
        cost=_mean(before.cost if before is not None else 0.0, trial.cost, number),
        latency=_mean(before.latency if before is not None else 0.0, trial.latency, number),
        at=now,
        half_life=fading.half_life,
    )


def _mean(former: float, new: float | None, number: float) -> float:
    """Return the mean with `new` included; the former mean when `new` is None."""
    former = former if 0 <= former < math.inf else 0.0
    return former if new is None else former + (new - former) / number
