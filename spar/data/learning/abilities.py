"""Abilities by tool and task: how trials change them, and what they are now.

An `Ability` is a prior that does not fade, plus evidence. Each trial multiplies the evidence so far by `discount` and
adds itself. With 0.975 about the last forty trials count, and a tool that was repaired is trusted again. The evidence
also halves with each half-life. The mean m and the standard deviation s of a Beta distribution give its weight,
m(1-m)/s² - 1, and so the evidence behind an ability.

Trials of other tools at the same task discount the evidence of this tool too: a tool that is no longer used becomes
unknown again and gets another chance. So that a trial costs one row however many tools are known, a task counts how
often its trials have halved evidence, and each ability remembers that number as of its own last trial: the difference
is what it has faded by, and is applied when it is read.

Source: Beta-Bernoulli posterior with discounted counts: Raj, Kalyani, "Taming Non-stationary Bandits: A Bayesian
Approach", 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Reversible, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, Literal

from msgspec import Struct, field

from spar.data.learning.situations import is_exact, is_of_strangers, looked_up, names_of
from spar.types import Ability, Experience, replace

#: Number of trials from which on the experience with a more exact name is enough.
ENOUGH_TRIALS: Final = 5
#: Weight of a prior, in trials: with a prior of 0.5 it is the flat Beta(1, 1).
PRIOR_WEIGHT: Final = 2.0
#: Least evidence, in trials, for a known ability; with less it has faded.
_LEFT: Final = 1.0
#: Evidence, in trials, that counts as none: an ability that would lose so little with time is left as it is.
_NOTHING: Final = 0.01
#: Most tools of one task that are compared: of the others hardly any evidence is left.
MOST_COMPARED: Final = 24
#: The most abilities, one for each tool at each kind of task.
MOST_ABILITIES = 10_000
#: The most abilities for exact situations. Beyond it such an ability replaces only another of its kind.
MOST_EXACT = 5_000
#: The most abilities from trials that untrusted people influenced. They, too, replace only one another.
MOST_OF_STRANGERS = 2_000


# -- the numbers of one ability: a Beta posterior, its evidence, and how that fades


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


# -- trials


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


class ToolTrial(Struct, frozen=True):
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


def updated(
    before: Ability | None, trial: ToolTrial, *, fading: Fading = FADING, now: float = 0.0, halvings: float = 0.0
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


def _mean(former: float, new: float | None, number: float) -> float:
    """Return the mean with `new` included; the former mean when `new` is None."""
    former = former if 0 <= former < math.inf else 0.0
    return former if new is None else former + (new - former) / number


# -- abilities by tool and task


def ability_key(tool: str, task: str) -> str:
    """Return the key of a tool and task in `Context.abilities`."""
    return f"{tool}|{task}"


class _Task(Struct):
    """Task with known abilities: how often its trials have halved evidence, the prior of the last one, and its tools,
    that of the last trial at the end. The number of tasks of a `kind` ("": none) has no bound."""

    kind: Literal["", "exact", "strangers"] = ""
    halvings: float = 0.0
    prior: float = 0.5
    tools: dict[str, None] = field(default_factory=dict)


_NO_TASK = _Task()


class KnownAbilities(MutableMapping[str, Ability]):
    """Abilities by `ability_key`, each as it is after all trials at its task; the oldest trial comes first.

    Attributes: stored: the abilities as they were after their own last trials.
    """

    __slots__ = ("_of_kind", "_tasks", "stored")

    def __init__(self, abilities: Iterable[Ability] = ()) -> None:
        self.stored: dict[str, Ability] = {}
        self._tasks: dict[str, _Task] = {}
        self._of_kind: dict[str, dict[str, None]] = {"exact": {}, "strangers": {}}  # keys, the oldest trial first
        self.put(abilities)

    def put(self, abilities: Iterable[Ability]) -> None:
        """Store abilities under their keys."""
        for ability in abilities:
            self[ability_key(ability.tool, ability.task)] = ability

    def learn(self, abilities: Sequence[Ability], read: ReadAbilities | None = None) -> tuple[list[str], int]:
        """Store the abilities that a reflector returned.

        Args: read: the abilities as the reflector read them.
        Returns: the keys of changed and forgotten abilities; the number of new trials.
        """
        if read is not None:
            abilities = [read.taken(ability) for ability in abilities]
        keys: list[str] = []
        trials = 0
        for ability in abilities:
            if ability.task == names_of(ability.task)[-1]:  # each trial counts under several names, once under this one
                before = self.stored.get(ability_key(ability.tool, ability.task))
                trials += max(0, ability.trials - (0 if before is None else before.trials))
            keys += self.know(ability)
        return keys, trials

    def know(self, ability: Ability) -> Sequence[str]:
        """Store an ability; forget the one with the oldest trial beyond a bound, since the number of situations has
        none. Return the changed keys."""
        key = ability_key(ability.tool, ability.task)
        self[key] = ability
        kind, oldest = self._tasks[ability.task].kind, None
        if kind:
            bounded = self._of_kind[kind]
            bounded.pop(key, None)
            bounded[key] = None
            if len(bounded) > (MOST_EXACT if kind == "exact" else MOST_OF_STRANGERS):
                oldest = next(iter(bounded))
        if oldest is None and len(self.stored) > MOST_ABILITIES:
            oldest = next(iter(self.stored))
        if oldest is None:
            return (key,)
        del self[oldest]
        return key, oldest

    def halvings_of(self, task: str) -> float:
        """Return how often the trials at a task have halved evidence."""
        return self._tasks.get(task, _NO_TASK).halvings

    def tools_of(self, task: str) -> Reversible[str]:
        """Return the tools with an ability at a task, that of the last trial at the end."""
        return self._tasks.get(task, _NO_TASK).tools

    def __getitem__(self, key: str) -> Ability:
        ability = self.stored[key]
        task = self._tasks[ability.task]
        if task.halvings <= ability.halvings:
            return ability
        return weakened(ability, task.halvings, task.prior)

    def __setitem__(self, key: str, ability: Ability) -> None:
        self.stored.pop(key, None)  # the newest trial comes last
        self.stored[key] = ability
        task = self._tasks.get(ability.task)
        if task is None:
            name = ability.task
            kind: Literal["", "exact", "strangers"] = "exact" if is_exact(name) else ""
            task = self._tasks[name] = _Task("strangers" if is_of_strangers(name) else kind)
        task.tools.pop(ability.tool, None)
        task.tools[ability.tool] = None
        task.prior = ability.prior if 0 < ability.prior < 1 else task.prior
        if task.halvings < ability.halvings < math.inf:
            task.halvings = ability.halvings

    def __delitem__(self, key: str) -> None:
        ability = self.stored.pop(key)
        task = self._tasks[ability.task]
        del task.tools[ability.tool]
        if not task.tools:
            del self._tasks[ability.task]
        if task.kind:
            self._of_kind[task.kind].pop(key, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


class AgedAbilities(Mapping[str, Ability]):
    """Abilities as of now: evidence that has faded with trials and with time is left out when one is read."""

    __slots__ = ("_known", "_now")

    def __init__(self, known: KnownAbilities, now: Callable[[], datetime]) -> None:
        self._known, self._now = known, now

    def halvings_of(self, task: str) -> float:
        """Return how often the trials at a task have halved evidence."""
        return self._known.halvings_of(task)

    def tools_of(self, task: str) -> Reversible[str]:
        """Return the tools with an ability at a task, that of the last trial at the end."""
        return self._known.tools_of(task)

    def __getitem__(self, key: str) -> Ability:
        return aged(self._known[key], self._now().timestamp())

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self._known.stored else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class ReadAbilities(AgedAbilities):
    """Abilities that a reflector reads and then changes, while others may change them too."""

    __slots__ = ("_read", "_read_at")

    def __init__(self, known: KnownAbilities, now: Callable[[], datetime]) -> None:
        super().__init__(known, now)
        #: What was read, as it was stored, and as it was after all trials at its task.
        self._read: dict[str, tuple[Ability, Ability] | None] = {}
        self._read_at: dict[str, float] = {}  # the halvings of the tasks that were read

    def halvings_of(self, task: str) -> float:
        return self._read_at.setdefault(task, self._known.halvings_of(task))

    def __getitem__(self, key: str) -> Ability:
        ability = self._known[key]
        self._read[key] = self._known.stored[key], ability
        self.halvings_of(ability.task)
        return aged(ability, self._now().timestamp())

    def get(self, key: str, default: Any = None) -> Any:
        if key in self._known.stored:
            return self[key]
        self._read[key] = None
        return default

    def taken(self, ability: Ability) -> Ability:
        """Return a reflector's new ability, merged with the changes that others made since it was read."""
        key, known = ability_key(ability.tool, ability.task), self._known
        halvings = known.halvings_of(ability.task)
        read_at, stored = self._read_at.get(ability.task, halvings), known.stored.get(key)
        read = self._read.get(key, (stored, stored))
        before, before_faded = read or (None, None)
        is_changed = stored is not before or halvings != read_at
        if stored is not None and is_changed and key in self._read:
            ability = merged(ability, before_faded, known[key])
        own = max(0.0, ability.halvings - read_at)
        halvings = halvings + own if is_changed else max(halvings, ability.halvings)
        return ability if halvings == ability.halvings else replace(ability, halvings=halvings)


def halvings_at(task: str, abilities: Mapping[str, Ability]) -> float:
    """Return how often the trials at a task have halved evidence; 0 where these abilities do not count them."""
    return abilities.halvings_of(task) if isinstance(abilities, (AgedAbilities, KnownAbilities)) else 0.0


def tools_at(tasks: Iterable[str], abilities: Mapping[str, Ability]) -> set[str]:
    """Return the tools with an ability at one of these tasks, of each task the `MOST_COMPARED` of the last trials."""
    if isinstance(abilities, (KnownAbilities, AgedAbilities)):
        return {tool for task in tasks for tool in islice(reversed(abilities.tools_of(task)), MOST_COMPARED)}
    names = set(tasks)
    return {ability.tool for ability in abilities.values() if ability.task in names}


def known_of(tool: str, task: str, abilities: Mapping[str, Ability]) -> Ability | None:
    """Return the ability of a tool at a task: for the most exact name with enough evidence, or else the one with most.

    None when the tool was never tried at anything of the kind.
    """
    candidates = [known for name in looked_up(task) if (known := abilities.get(ability_key(tool, name))) is not None]
    return next(filter(is_known, candidates), None) or max(
        candidates, key=lambda known: sum(evidence_of(known)), default=None
    )


class ChangedAbilities:
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

    def add(self, trial: ToolTrial) -> None:
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
    trials: Iterable[ToolTrial], abilities: Mapping[str, Ability], *, fading: Fading = FADING, now: float = 0.0
) -> tuple[Ability, ...]:
    """Return the abilities that these trials change, as they are after them."""
    learning = ChangedAbilities(abilities, fading=fading, now=now)
    for trial in trials:
        learning.add(trial)
    return learning.abilities


# -- what experiences changed


class Case(Struct, frozen=True):
    """Experience that a decision used; None if it is not stored any more."""

    id: str
    experience: Experience | None


class MemoryDecision(Struct, frozen=True):
    """Decision that memory changed, or would have changed (`is_used` false)."""

    why: str
    call_id: str
    instead_of: str
    is_used: bool
    cases: list[Case]
