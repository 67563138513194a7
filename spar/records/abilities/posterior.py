"""The numbers of an ability: a Beta posterior, its evidence, and how the evidence fades.

An `Ability` is a prior that does not fade, plus evidence. The evidence halves with each half-life, and fades with each
trial at the task, of whatever tool. The mean m and the standard deviation s of a Beta distribution give its weight,
m(1-m)/s² - 1, and so the evidence behind an ability.
"""

from __future__ import annotations

import math
from typing import Final

from spar.types import Ability, replace

#: Number of trials from which on the experience with a more exact name is enough.
ENOUGH_TRIALS: Final = 5
#: Weight of a prior, in trials: with a prior of 0.5 it is the flat Beta(1, 1).
PRIOR_WEIGHT: Final = 2.0
#: Least evidence, in trials, for a known ability; with less it has faded.
_LEFT: Final = 1.0
#: Evidence, in trials, that counts as none: an ability that would lose so little with time is left as it is.
_NOTHING: Final = 0.01


def is_known(ability: Ability) -> bool:
    """Return whether enough is known of a tool: it was tried often enough, and not all of the evidence has faded."""
    return ability.trials >= ENOUGH_TRIALS and sum(evidence_of(ability)) >= _LEFT


def mean_of(alpha: float, beta: float) -> float:
    return alpha / (alpha + beta)


def deviation_of(alpha: float, beta: float) -> float:
    weight = alpha + beta
    return math.sqrt(alpha * beta / (weight * weight * (weight + 1)))


def evidence_of(ability: Ability | None, prior: float = 0.5, longest: float = math.inf) -> tuple[float, float]:
    """Return the successes and failures behind an ability, at least 0 and together at most `longest`.

    Never raises: numbers that cannot be a posterior count as no evidence.
    """
    if ability is None or not (0 < ability.estimate < 1 and 0 < ability.uncertainty < 0.5):
        return 0.0, 0.0
    # A deviation below a millionth cannot come from a discounted posterior; its square would be too small a divisor.
    weight = ability.estimate * (1 - ability.estimate) / max(ability.uncertainty, 1e-6) ** 2 - 1
    good = max(0.0, ability.estimate * weight - PRIOR_WEIGHT * prior)
    bad = max(0.0, (1 - ability.estimate) * weight - PRIOR_WEIGHT * (1 - prior))
    shrink = min(1.0, longest / (good + bad)) if good + bad > 0 else 1.0
    return good * shrink, bad * shrink


def share_left(ability: Ability, now: float) -> float:
    """Return the share of an ability's evidence that has not faded with time, 0..1."""
    age = now - ability.at
    if ability.at <= 0 or ability.half_life <= 0 or not 0 < age < math.inf:
        return 1.0
    return float(0.5 ** (age / ability.half_life))


def weakened(ability: Ability, halvings: float, prior: float) -> Ability:
    """Return an ability as it is when the trials at its task have halved evidence `halvings` times since the first."""
    share = 0.5 ** (halvings - ability.halvings)
    return replace(_with_share(ability, share, prior), halvings=halvings)


def aged(ability: Ability, now: float) -> Ability:
    """Return an ability as of `now`; itself if hardly any time has passed.

    Args: now: seconds since 1970.
    """
    share = share_left(ability, now)
    if share == 1 or (1 - share) * sum(evidence_of(ability, ability.prior)) < _NOTHING:
        return ability
    return replace(_with_share(ability, share, ability.prior), at=now)


def merged(ability: Ability, before: Ability | None, known: Ability) -> Ability:
    """Return an ability with the changes of two writers who both began with `before`: `ability` is the one's, `known`
    the other's."""
    alphas, betas = zip(
        *[_posterior_of(version, ability.prior, ability.at) for version in (ability, known, before)], strict=True
    )
    alpha, beta = (max(_NOTHING, one + other - both) for one, other, both in (alphas, betas))
    trials, cost, latency = (0, 0.0, 0.0) if before is None else (before.trials, before.cost, before.latency)
    return replace(
        ability,
        estimate=mean_of(alpha, beta),
        uncertainty=deviation_of(alpha, beta),
        trials=max(ability.trials, ability.trials + known.trials - trials),
        cost=max(0.0, ability.cost + known.cost - cost) if before is not None else max(ability.cost, known.cost),
        latency=max(0.0, ability.latency + known.latency - latency) if before is not None else ability.latency,
    )


def _with_share(ability: Ability, share: float, prior: float) -> Ability:
    good, bad = evidence_of(ability, prior)
    alpha, beta = PRIOR_WEIGHT * prior + share * good, PRIOR_WEIGHT * (1 - prior) + share * bad
    return replace(ability, estimate=mean_of(alpha, beta), uncertainty=deviation_of(alpha, beta), prior=prior)


def _posterior_of(ability: Ability | None, prior: float, now: float) -> tuple[float, float]:
    """Return both parameters of a posterior as of `now`; those of the prior if nothing is known."""
    good, bad = evidence_of(None if ability is None else aged(ability, now), prior)
    return PRIOR_WEIGHT * prior + good, PRIOR_WEIGHT * (1 - prior) + bad
