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

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct, field

from spar.data.scrub import MASK, scrub
from spar.data.text import safe_line
from spar.records.abilities import thing_named, things_of, wording
from spar.types import Experience, Perception, Remedy, TriedCall, Trust

#: Stands where something of a kept parameter is left out, and begins references in parameters.
_LEFT_OUT: Final = "…"
_REFERENCE: Final = "†"
#: How many experiences are recalled for a decision.
RECALLED: Final = 30
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
#: Evidence of a failure below which it is forgiven, in trials.
_FORGIVEN: Final = 0.5
#: How long a failure that does not pass stands at first; it doubles each time it comes again, up to the last.
_STANDS: Final = timedelta(minutes=10)
_STANDS_AT_MOST: Final = timedelta(days=1)
#: Experiences of one other session that may vote, and calls of one experience.
_MOST_OF_SESSION: Final = 3
_MOST_CALLS: Final = 8
#: Kinds of failure that pass by themselves: the same may work the next time.
_PASSING: Final = frozenset({"", "transient", "timeout", "io", "resources", "cancelled", "steered"})
#: Kinds of failure that come again for sure where nothing is changed.
_CERTAIN: Final = frozenset(
    {
        "permission",
        "bad_input",
        "bad_parameters",
        "not_found",
        "unknown_tool",
        "too_large",
        "output_too_large",
        "contract",
    }
)
#: Failures in a row from which a call that worked before is known to fail.
_IN_A_ROW: Final = 3
#: Characters of a text by which a situation is known, as experiences keep them.
_WORDS: Final = 160
_LOOKED_AT: Final = 2_000


class Situation(Struct, frozen=True):
    """Subject of a decision. `key` is its name, `words` its text in the form in which it is compared."""

    key: str
    words: str
    trust: Trust
    session: str
    now: datetime
    incident: str = ""


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


def situation(perception: Perception, key: str, now: datetime) -> Situation:
    """Return the situation that a perception tells of, by its name."""
    incident = perception.attributes.get("incident")
    return Situation(
        key,
        wording(safe_line(scrub(perception.text[:_LOOKED_AT]), _WORDS)),
        perception.trust,
        perception.session,
        now,
        incident if isinstance(incident, str) and not perception.kind.endswith(".closed") else "",
    )


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
        weight *= _worth(each)
        found += [Case(each, tried, _has_worked(tried, each), is_one, weight) for tried in each.calls]
    return tuple(found)


def is_same(experience: Experience, at: Situation) -> bool:
    """Return whether an experience was made in this very situation: its name is the same, and so are its words."""
    if experience.key and at.key and experience.key != at.key:
        return False
    if not at.words:
        return bool(experience.key)
    if experience.said and wording(safe_line(scrub(experience.said[:_LOOKED_AT]), _WORDS)) == at.words:
        return True
    return f" {wording(experience.situation)} ".endswith(f" {at.words} ")


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


# -- known failures and their remedies


class KnownFailure(Struct, frozen=True):
    """A failure that would come again: the same call in the same situation.

    `seconds` until it may be tried again; `times` it has failed so since it worked last, over all experiences of it.
    """

    case: Case
    seconds: float
    times: int = 1

    @property
    def remedy(self) -> Remedy:
        return self.case.tried.remedy or Remedy("none")

    @property
    def is_certain(self) -> bool:
        """Return whether it would come again for sure, as far as its cause says; else one more try is no folly."""
        return self.case.tried.cause in _CERTAIN or self.times > 1

    @property
    def sentence(self) -> str:
        """Return why it is not tried again, in our own words."""
        tried = self.case.tried
        times = f"{self.times} times" if self.times > 1 else "once"
        cause = f" ({tried.cause})" if tried.cause else ""
        return f"{tried.tool} failed {times} in this situation with these parameters{cause}"


def known_failure(cases: Sequence[Case], tool: str, params: Mapping[str, Any], at: Situation) -> KnownFailure | None:
    """Return the failure that a call would only repeat; None when it never failed so, works at times, or enough time or
    enough other trials have passed."""
    same = [each for each in cases if each.is_same and each.tried.tool == tool and like(each.tried.params, params)]
    failures = [each for each in same if each.has_worked is False]
    if not failures:
        return None
    last = max(failures, key=lambda each: _aware(each.experience.at))
    worked = max((_aware(each.experience.at) for each in same if each.has_worked), default=None)
    began = _aware(last.experience.first_at or last.experience.at)
    if worked is not None and (worked >= began or sum(each.experience.count for each in failures) < _IN_A_ROW):
        return None  # it works at times: its ability says how often
    since = [each for each in failures if worked is None or _aware(each.experience.at) > worked]
    times = sum(max(1, each.experience.count) for each in since)
    until = _until(last, at, times)
    if until is None or until <= at.now or last.weight < _FORGIVEN * _worth(last.experience):
        return None
    return KnownFailure(last, (until - at.now).total_seconds(), times)


def other_value(cases: Iterable[Case], failure: KnownFailure, params: Mapping[str, Any]) -> tuple[Any, Case] | None:
    """Return the value of the parameter at fault with which the same call worked in the same situation, and where.

    Only from calls that are trusted at least as much as the failed one: no stranger's value enters a call of ours.
    """
    name, tool = failure.remedy.parameter, failure.case.tried.tool
    for case in cases:
        tried = case.tried
        if not (case.is_same and case.has_worked and tried.tool == tool and name in tried.params and name in params):
            continue
        if failure.case.tried.trust == "trusted" and "untrusted" in (tried.trust, case.experience.trust):
            continue
        if tried.params[name] != params[name] and like({**tried.params, name: 0}, {**params, name: 0}):
            return tried.params[name], case
    return None


def like(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two sets of parameters are the same, as far as they can be compared."""
    return _plain(one) == _plain(other)


# -- sequences of calls


class KnownCall(Struct, frozen=True):
    """One call of a sequence: its tool, the parameters that can be given again, and how far these are trusted."""

    tool: str
    params: Mapping[str, Any] = {}
    trust: Trust = "trusted"


class KnownSequence(Struct, frozen=True):
    """Calls that led to success from a situation on, without those that failed on the way, and where it is known."""

    calls: tuple[KnownCall, ...]
    experience_id: str
    score: float

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(call.tool for call in self.calls)


def sequence_of(experiences: Iterable[Experience], at: Situation) -> KnownSequence | None:
    """Return the sequence of calls that began in this situation and worked, the best and then the shortest of them.

    A parameter is given again if it is one of the things that the situation is about, or was the same each time that
    these calls worked here.
    """
    found: dict[tuple[str, ...], list[tuple[Experience, list[TriedCall]]]] = {}
    for each in experiences:
        if each.success is not True or len(each.calls) < 2 or not is_same(each, at):
            continue
        if each.trust == "untrusted" and at.trust == "trusted":
            continue
        calls = [call for call in each.calls if call.success is not False]
        found.setdefault(tuple(call.tool for call in calls), []).append((each, calls))
    best = [(max(alike, key=lambda one: _score_of(one[0])), [calls for _, calls in alike]) for alike in found.values()]
    if not best:
        return None
    (experience, calls), alike = min(best, key=lambda one: (-_score_of(one[0][0]), len(one[0][1])))
    known = [_known_call(call, experience, [one[place] for one in alike], at) for place, call in enumerate(calls)]
    return KnownSequence(tuple(known), experience.id, _score_of(experience))


def _score_of(experience: Experience) -> float:
    return 1.0 if experience.score is None else experience.score


def _known_call(call: TriedCall, experience: Experience, alike: Sequence[TriedCall], at: Situation) -> KnownCall:
    """Return a call as it can be made again; no text of a stranger enters one about something trusted."""
    trust: Trust = "untrusted" if "untrusted" in (call.trust, experience.trust) else "trusted"
    if trust == "untrusted" and at.trust == "trusted":
        return KnownCall(call.tool)
    things = things_of(at.key)
    params = {
        name: value
        for name, value in call.params.items()
        if _is_whole(value)
        and (
            (isinstance(value, str) and thing_named(value) in things)
            or all(name in each.params and like({"": each.params[name]}, {"": value}) for each in alike)
        )
    }
    return KnownCall(call.tool, params, trust)


def _is_whole(value: Any) -> bool:
    """Return whether a kept parameter is what was given: nothing of it is masked or left out, and it is no
    reference."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return not any(sign in text for sign in (MASK, _LEFT_OUT, _REFERENCE))


# -- weights


def _has_worked(tried: TriedCall, experience: Experience) -> bool | None:
    """A later word on the whole of it holds for calls that only ended well, or of which nobody knew."""
    if tried.success is None:
        return experience.success
    if tried.success and experience.success is False and all(each.success is not False for each in experience.calls):
        return False
    return tried.success


def _worth(experience: Experience) -> float:
    """Return what a case counts for by how decisions went that it was part of: from a quarter to two."""
    return min(2.0, max(0.25, (2 + experience.helped) / (2 + experience.harmed)))


def _in_common(words: str, experiences: Sequence[Experience]) -> list[float]:
    """Return what each has in common with a situation, 0..1: the cosine of their words, the rarer ones counting more.

    Rare is what few of those recalled have: what all of them share says nothing between them.
    """
    asked = set(words.split())
    bags = [set(wording(each.said[:_LOOKED_AT] or each.situation).split()) for each in experiences]
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
    at, count = _aware(experience.at), max(1, experience.count)
    later = sum(_after(at, other) for other in same if other is not experience)
    return _FADES**later * (1 - _FADES**count) / (1 - _FADES)


def _after(at: datetime, other: Experience) -> float:
    """Return how many of the times that an experience was made lie after a moment."""
    last, count = _aware(other.at), max(1, other.count)
    first = last if other.first_at is None else min(_aware(other.first_at), last)
    if last <= at:
        return 0.0
    return count * (last - at) / (last - first) if first < at else float(count)


def _until(case: Case, at: Situation, times: int) -> datetime | None:
    """Return until when a failure that came so often stands; None for one that passes by itself."""
    tried, remedy, made = case.tried, case.tried.remedy, _aware(case.experience.at)
    action = remedy.action if remedy is not None else "none"
    if remedy is not None and action == "retry":
        return None if remedy.after is None else made + timedelta(seconds=remedy.after)
    if remedy is not None and action == "wait" and remedy.until:
        return made + _STANDS_AT_MOST if at.incident == remedy.until else None
    if tried.cause in _PASSING and action == "none":
        return None
    return made + min(_STANDS * (1 << (min(times, _MOST_CALLS) - 1)), _STANDS_AT_MOST)


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _plain(params: Mapping[str, Any]) -> str:
    return json.dumps(params, sort_keys=True, default=str)
