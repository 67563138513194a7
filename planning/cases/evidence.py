"""Cases: remembered calls vote on the tool to call in a similar situation. Pure.

An experience holds the calls that were tried in a situation, with their results. A call that worked is evidence for its
tool, a call that failed is evidence against it. Its weight grows with the similarity of its situation (its rank among
the recalled ones, and the words in common) and with the number of times it was made. A case in the same situation
weighs more than all cases in similar ones. It fades with each later trial there, so that a repaired tool gets another
chance.

Untrusted text decides nothing about trusted things. An untrusted experience votes only on an untrusted situation. A
case is a call that was made and its result, never a text that claims one. Of another session's experiences only a few
vote, however many it has.

Source: case-based reasoning, Aamodt, Plaza, 1994; retrieval of what worked: Zhao et al., "ExpeL", AAAI 2024.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct, field

from planning.cases.situations import LOOKED_AT, Situation, is_same
from spar.data.learning.situations import wording
from spar.types import Experience, TriedCall

#: Weight of the most similar case, in trials: without and with cases of the same situation.
_ALIKE: Final = 4.0
_BESIDE: Final = 0.05
#: Smallest similarity of the first case: the memory found it by its meaning if not by its words.
_AT_LEAST: Final = 0.02
#: Cosine from which texts count as equal in meaning, and the difference of cosine that divides a case's weight by e.
_MEANT: Final = 0.85
_NEARER: Final = 0.07
#: Factor of a failure's weight in a situation that is only similar: another tool may have been at fault.
_FAILED_ELSEWHERE: Final = 0.7
#: Factor of the weight of earlier evidence for each later trial in the same situation.
_FADES: Final = 0.97
#: Largest number of experiences of another session that may vote, and of calls in an experience that may vote.
_MOST_OF_SESSION: Final = 3
_MOST_CALLS: Final = 8


class Case(Struct, frozen=True):
    """One call of an experience. `is_same`: it was tried in the same situation; `weight` is in trials."""

    experience: Experience
    tried: TriedCall
    has_worked: bool | None
    is_same: bool
    weight: float


class Evidence(Struct):
    """Evidence about a tool: `good` and `bad` are weights in trials; `worked`, `failed` and `tried` count calls;
    `same` counts those in the same situation; `cases` has ids of experiences; `causes` counts failures by cause."""

    good: float = 0.0
    bad: float = 0.0
    worked: int = 0
    failed: int = 0
    tried: int = 0
    same: float = 0.0
    cases: list[str] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)

    @property
    def mean(self) -> float:
        return (1 + self.good) / (2 + self.good + self.bad)

    @property
    def plausible(self) -> float:
        """Return mean plus standard deviation of Beta(1 + good, 1 + bad): an optimistic rate of success."""
        alpha, beta = 1 + self.good, 1 + self.bad
        weight = alpha + beta
        return alpha / weight + math.sqrt(alpha * beta / (weight * weight * (weight + 1)))


NO_EVIDENCE: Final = Evidence()


def cases_of(
    experiences: Iterable[Experience], at: Situation, nearness: Mapping[str, float] | None = None
) -> tuple[Case, ...]:
    """Return the cases that may vote, best first.

    Args: experiences: the recalled ones, best first; nearness: by id, the cosine of their meaning and the situation's;
        None or without an entry if there are no vectors.
    """
    counts: Counter[str] = Counter()
    usable: list[tuple[Experience, bool]] = []
    for experience in experiences:
        if (
            not experience.calls
            or len(experience.calls) > _MOST_CALLS
            or (experience.trust == "untrusted" and at.trust == "trusted")
        ):
            continue
        counts[experience.session] += 1
        if experience.session == at.session or counts[experience.session] <= _MOST_OF_SESSION:
            usable.append((experience, is_same(experience, at)))
    same = [experience for experience, is_in_situation in usable if is_in_situation]
    alike = _BESIDE if same else _ALIKE
    cases = []
    shares = _similarities(at.words, [experience for experience, _ in usable])
    for rank, ((experience, is_in_situation), share) in enumerate(zip(usable, shares, strict=True)):
        if is_in_situation:
            weight = _faded_weight(experience, same)
        else:
            cosine = nearness.get(experience.id) if nearness else None
            near = share / math.sqrt(1 + rank) + _AT_LEAST / (1 + rank) if cosine is None else _similarity(cosine)
            weight = alike * near * (1 + math.log(max(1, experience.count)))
        weight *= worth(experience)
        cases += [
            Case(experience, tried, _has_worked(tried, experience), is_in_situation, weight)
            for tried in experience.calls
        ]
    return tuple(cases)


def evidence_of(cases: Iterable[Case]) -> dict[str, Evidence]:
    """Return the evidence of the cases by tool."""
    evidence: dict[str, Evidence] = {}
    for case in cases:
        tally = evidence.get(case.tried.tool)
        if tally is None:
            tally = evidence[case.tried.tool] = Evidence()
        count = max(1, case.experience.count)
        tally.tried += count
        tally.same += count if case.is_same else 0
        if case.has_worked is None:
            continue
        tally.cases.append(case.experience.id)
        if case.has_worked:
            tally.good += case.weight
            tally.worked += count
        else:
            tally.bad += case.weight if case.is_same else case.weight * _FAILED_ELSEWHERE
            tally.failed += count
            tally.causes[case.tried.cause or "failed"] += count
    return evidence


def _has_worked(tried: TriedCall, experience: Experience) -> bool | None:
    """Return whether a call worked; None if unknown.

    A later judgment of the whole experience decides for a call without a known result. It also turns success into
    failure if no call failed and the whole did.
    """
    if tried.success is None:
        return experience.success
    if tried.success and experience.success is False and all(call.success is not False for call in experience.calls):
        return False
    return tried.success


def worth(experience: Experience) -> float:
    """Return the factor of a case's weight by the decisions that it took part in: 0.25 to 2."""
    return min(2.0, max(0.25, (2 + experience.helped) / (2 + experience.harmed)))


def _similarities(words: str, experiences: Sequence[Experience]) -> list[float]:
    """Return the similarity of each experience to a situation, 0..1: the cosine of their words, weighted by rarity.

    A word is rare if few of the recalled experiences have it. A word that all have does not tell them apart.
    """
    words_of_situation = set(words.split())
    bags = [set(wording(experience.said[:LOOKED_AT] or experience.situation).split()) for experience in experiences]
    occurrences = Counter(word for bag in bags for word in bag)

    def size(bag: set[str]) -> float:
        return sum(math.log(1 + (len(bags) + 1) / (1 + occurrences[word])) ** 2 for word in bag)

    total = size(words_of_situation)
    return [
        size(words_of_situation & bag) / math.sqrt(total * size(bag)) if words_of_situation and bag else 0.0
        for bag in bags
    ]


def _similarity(cosine: float) -> float:
    """Return the similarity of an experience by its meaning, 0..1. It falls steeply, so that the nearest few decide."""
    return math.exp(min(0.0, cosine - _MEANT) / _NEARER)


def _faded_weight(experience: Experience, same: Sequence[Experience]) -> float:
    """Return the weight of an experience, in trials, faded by all later trials in its situation."""
    at, count = aware(experience.at), max(1, experience.count)
    later = sum(_trials_after(at, other) for other in same if other is not experience)
    return _FADES**later * (1 - _FADES**count) / (1 - _FADES)


def _trials_after(at: datetime, other: Experience) -> float:
    """Return how many trials of an experience lie after a time, as if they were spread evenly."""
    last, count = aware(other.at), max(1, other.count)
    first = last if other.first_at is None else min(aware(other.first_at), last)
    if last <= at:
        return 0.0
    return count * (last - at) / (last - first) if first < at else float(count)


def aware(at: datetime) -> datetime:
    """Return a time with its zone; UTC if it has none."""
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
