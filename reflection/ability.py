"""Abilities of tools at kinds of tasks: Beta posteriors whose old evidence fades; pure.

Each trial multiplies the evidence so far by `discount` and adds itself, on top of a prior that does not fade. With
0.975 about the last forty trials count, and a tool that was repaired is trusted again. Trials of other tools at the
same task discount the evidence of this tool too: a tool that is no longer used becomes unknown again and gets another
chance. They are counted for the task, and applied when an ability is read. Time also discounts: each half-life removes
half of the evidence (`spar.records.abilities`).

Source: Beta-Bernoulli posterior with discounted counts: Raj, Kalyani, "Taming Non-stationary Bandits: A Bayesian
Approach", 2017.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from reflection.causes import STRUCTURAL, cause_of
from spar.records.abilities import (
    PRIOR_WEIGHT,
    ability_key,
    deviation_of,
    evidence_of,
    halvings_at,
    known_of,
    mean_of,
    names_of,
    share_left,
    tools_at,
    whoever,
)
from spar.types import Ability, CallResult, replace

#: Seconds of a day.
DAY = 86_400.0
#: Share of the evidence that counts as none.
_LEAST_LEFT = 1e-18


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

    @property
    def halvings(self) -> float:
        """Return how often one trial halves the evidence so far."""
        return -math.log2(max(self.discount, _LEAST_LEFT))


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


class Learning:
    """Abilities that trials change, one trial after the other.

    Args: abilities: as they are now; now: in seconds since 1970.
    """

    def __init__(self, abilities: Mapping[str, Ability], *, fading: Fading = FADING, now: float = 0.0) -> None:
        self._abilities, self._fading, self._now = abilities, fading, now
        self._learnt: dict[str, Ability] = {}
        self._halvings: dict[str, float] = {}  # of each task, by all its trials so far

    @property
    def abilities(self) -> tuple[Ability, ...]:
        """Return the updated abilities of the tools that were tried."""
        return tuple(self._learnt.values())

    def add(self, trial: Trial) -> None:
        """Count a trial under each name of its task."""
        learnt, halvings = self._learnt, self._halvings
        for task in names_of(trial.task):
            key = ability_key(trial.tool, task)
            named = trial if task == trial.task else replace(trial, task=task)
            before = learnt.get(key) or self._abilities.get(key)
            so_far = halvings[task] if task in halvings else halvings_at(task, self._abilities)
            ability = updated(before, named, fading=self._fading, now=self._now, halvings=so_far)
            learnt[key], halvings[task] = ability, ability.halvings


def learn(
    trials: Iterable[Trial], abilities: Mapping[str, Ability], *, fading: Fading = FADING, now: float = 0.0
) -> tuple[Ability, ...]:
    """Return the abilities that these trials change, as they are after them."""
    learning = Learning(abilities, fading=fading, now=now)
    for trial in trials:
        learning.add(trial)
    return learning.abilities


def updated(
    before: Ability | None, trial: Trial, *, fading: Fading = FADING, now: float = 0.0, halvings: float = 0.0
) -> Ability:
    """Return the ability after one more trial. Never raises: numbers that cannot be a posterior count as no evidence.

    Args: halvings: how often the trials at the task, of whatever tool, have halved evidence before this one.
    """
    longest = fading.longest
    good, bad = evidence_of(before, fading.prior, longest)
    left = fading.discount**trial.weight
    if before is not None:
        halvings = max(halvings, before.halvings)
        left *= share_left(before, now) * 0.5 ** (halvings - before.halvings)
    alpha = PRIOR_WEIGHT * fading.prior + left * good + trial.weight * trial.success
    beta = PRIOR_WEIGHT * (1 - fading.prior) + left * bad + trial.weight * (1 - trial.success)
    trials = max(0, before.trials) + 1 if before is not None else 1
    number = min(trials, longest)
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
        halvings=halvings + trial.weight * fading.halvings,
        prior=fading.prior,
    )


def best_at(task: str, abilities: Mapping[str, Ability]) -> Sequence[str]:
    """Return the two tools that do best in the situation of a task, whatever its things are; only tools that work in
    more than half of the cases."""
    names = {name for mine in (task, whoever(task)) for name in names_of(mine)[:2]}
    estimates = {
        tool: known.estimate
        for tool in sorted(tools_at(names, abilities))
        if (known := known_of(tool, task, abilities)) is not None and known.task in names and known.estimate > 0.5
    }
    return heapq.nlargest(2, estimates, key=estimates.__getitem__)


def _mean(former: float, new: float | None, number: float) -> float:
    """Return the mean with `new` included; the former mean when `new` is None."""
    former = former if 0 <= former < math.inf else 0.0
    return former if new is None else former + (new - former) / number
