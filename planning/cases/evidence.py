"""Cases: remembered calls vote on what to call in a situation like theirs; pure.

An experience holds the calls that were tried in a situation and how they went. A call that worked speaks for its tool,
one that failed against it: the more, the more alike its situation (its place among those recalled, and the words in
common) and the more often it was made. What happened in the very same situation weighs more than all that is
only like it, and fades with each trial there, so that a tool that was repaired has its next chance.

What strangers said decides nothing: an untrusted experience votes only on what is untrusted itself; a case is a call
that was made and its result, never the text that claims one; and however many experiences another session made, only
few of them vote.
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
from spar.records.abilities import wording
from spar.types import Experience, TriedCall

#: Weight of the case that is most alike, in trials: where nothing is known of the very situation, and beside it.
_ALIKE: Final = 4.0
_BESIDE: Final = 0.05
#: What the first case has in common with a situation at least: it was found by its meaning, if not by its words.
_AT_LEAST: Final = 0.02
#: Cosine of the meaning of texts that are as good as the same, and by how much less it is where a case weighs a third.
_MEANT: Final = 0.85
_NEARER: Final = 0.07
#: Of a failure, as evidence, where the situation is only alike: another tool may have been at fault.
_FAILED_ELSEWHERE: Final = 0.7
#: What each trial in the same situation leaves of the evidence before it.
_FADES: Final = 0.97
#: Experiences of one other session that may vote, and calls of one experience.
_MOST_OF_SESSION: Final = 3
_MOST_CALLS: Final = 8


class Case(Struct, frozen=True):
    """One call of an experience. `is_same`: it was tried in the very situation; `weight` is in trials."""

    experience: Experience
    tried: TriedCall
    has_worked: bool | None
    is_same: bool
    weight: float


class Evidence(Struct):
    """Trials that speak for and against a tool; counts of how often it worked and failed, and the experiences."""

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
        """Mean plus standard deviation of Beta(1 + good, 1 + bad): the ability that is still plausible."""
        alpha, beta = 1 + self.good, 1 + self.bad
        weight = alpha + beta
        return alpha / weight + math.sqrt(alpha * beta / (weight * weight * (weight + 1)))


NO_EVIDENCE: Final = Evidence()


def cases_of(
    experiences: Iterable[Experience], at: Situation, nearness: Mapping[str, float] | None = None
) -> tuple[Case, ...]:
    """Return the cases that may vote, best first.

    Args: experiences: as they were recalled, best first; nearness: how near their meaning is, a cosine, by id, where
    there are vectors.
    """
    heard: Counter[str] = Counter()
    usable: list[tuple[Experience, bool]] = []
    for each in experiences:
        if not each.calls or len(each.calls) > _MOST_CALLS or (each.trust == "untrusted" and at.trust == "trusted"):
            continue
        heard[each.session] += 1
        if each.session == at.session or heard[each.session] <= _MOST_OF_SESSION:
            usable.append((each, is_same(each, at)))
    same = [each for each, is_one in usable if is_one]
    alike = _BESIDE if same else _ALIKE
    found = []
    shares = _in_common(at.words, [each for each, _ in usable])
    for rank, ((each, is_one), share) in enumerate(zip(usable, shares, strict=True)):
        if is_one:
            weight = _faded(each, same)
        else:
            cosine = nearness.get(each.id) if nearness else None
            near = share / math.sqrt(1 + rank) + _AT_LEAST / (1 + rank) if cosine is None else _near(cosine)
            weight = alike * near * (1 + math.log(max(1, each.count)))
        weight *= worth(each)
        found += [Case(each, tried, _has_worked(tried, each), is_one, weight) for tried in each.calls]
    return tuple(found)


def evidence_of(cases: Iterable[Case]) -> dict[str, Evidence]:
    """Return what the cases say of each tool that was tried in them."""
    found: dict[str, Evidence] = {}
    for case in cases:
        known = found.get(case.tried.tool)
        if known is None:
            known = found[case.tried.tool] = Evidence()
        count = max(1, case.experience.count)
        known.tried += count
        known.same += count if case.is_same else 0
        if case.has_worked is None:
            continue
        known.cases.append(case.experience.id)
        if case.has_worked:
            known.good += case.weight
            known.worked += count
        else:
            known.bad += case.weight if case.is_same else case.weight * _FAILED_ELSEWHERE
            known.failed += count
            known.causes[case.tried.cause or "failed"] += count
    return found


def _has_worked(tried: TriedCall, experience: Experience) -> bool | None:
    """A later word on the whole of it holds for calls that only ended well, or of which nobody knew."""
    if tried.success is None:
        return experience.success
    if tried.success and experience.success is False and all(each.success is not False for each in experience.calls):
        return False
    return tried.success


def worth(experience: Experience) -> float:
    """Return what a case counts for by how decisions went that it was part of: from a quarter to two."""
    return min(2.0, max(0.25, (2 + experience.helped) / (2 + experience.harmed)))


def _in_common(words: str, experiences: Sequence[Experience]) -> list[float]:
    """Return what each has in common with a situation, 0..1: the cosine of their words, the rarer ones counting more.

    Rare is what few of those recalled have: what all of them share says nothing between them.
    """
    asked = set(words.split())
    bags = [set(wording(each.said[:LOOKED_AT] or each.situation).split()) for each in experiences]
    known = Counter(word for bag in bags for word in bag)

    def size(bag: set[str]) -> float:
        return sum(math.log(1 + (len(bags) + 1) / (1 + known[word])) ** 2 for word in bag)

    whole = size(asked)
    return [size(asked & bag) / math.sqrt(whole * size(bag)) if asked and bag else 0.0 for bag in bags]


def _near(cosine: float) -> float:
    """Return how near an experience is by its meaning, 0..1: less and less soon, so that the nearest few decide."""
    return math.exp(min(0.0, cosine - _MEANT) / _NEARER)


def _faded(experience: Experience, same: Sequence[Experience]) -> float:
    """Return the evidence that is left of an experience after all trials in its situation since, in trials."""
    at, count = aware(experience.at), max(1, experience.count)
    later = sum(_after(at, other) for other in same if other is not experience)
    return _FADES**later * (1 - _FADES**count) / (1 - _FADES)


def _after(at: datetime, other: Experience) -> float:
    """Return how many of the times that an experience was made lie after a moment."""
    last, count = aware(other.at), max(1, other.count)
    first = last if other.first_at is None else min(aware(other.first_at), last)
    if last <= at:
        return 0.0
    return count * (last - at) / (last - first) if first < at else float(count)


def aware(at: datetime) -> datetime:
    """Return a time with its zone; where none was kept, that is UTC."""
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
