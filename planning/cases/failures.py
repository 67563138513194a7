"""Failures that a call would only repeat, until when each stands, and which value worked in its place; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from planning.cases.evidence import Case, aware, worth
from planning.cases.situations import Situation, has_same_params
from spar.types import Remedy

#: Evidence of a failure below which it is forgiven, in trials.
_FORGIVEN: Final = 0.5
#: How long a failure that does not pass stands at first; it doubles each time it comes again, so often, up to the last.
_STANDS: Final = timedelta(minutes=10)
_MOST_DOUBLINGS: Final = 7
_STANDS_AT_MOST: Final = timedelta(days=1)
#: Failures in a row from which a call that worked before is known to fail.
_IN_A_ROW: Final = 3
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
    same = [
        each
        for each in cases
        if each.is_same and each.tried.tool == tool and has_same_params(each.tried.params, params)
    ]
    failures = [each for each in same if each.has_worked is False]
    if not failures:
        return None
    last = max(failures, key=lambda each: aware(each.experience.at))
    worked = max((aware(each.experience.at) for each in same if each.has_worked), default=None)
    began = aware(last.experience.first_at or last.experience.at)
    if worked is not None and (worked >= began or sum(each.experience.count for each in failures) < _IN_A_ROW):
        return None  # it works at times: its ability says how often
    since = [each for each in failures if worked is None or aware(each.experience.at) > worked]
    times = sum(max(1, each.experience.count) for each in since)
    until = _until(last, at, times)
    if until is None or until <= at.now or last.weight < _FORGIVEN * worth(last.experience):
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
        if tried.params[name] != params[name] and has_same_params({**tried.params, name: 0}, {**params, name: 0}):
            return tried.params[name], case
    return None


def _until(case: Case, at: Situation, times: int) -> datetime | None:
    """Return until when a failure that came so often stands; None for one that passes by itself."""
    tried, remedy, made = case.tried, case.tried.remedy, aware(case.experience.at)
    action = remedy.action if remedy is not None else "none"
    if remedy is not None and action == "retry":
        return None if remedy.after is None else made + timedelta(seconds=remedy.after)
    if remedy is not None and action == "wait" and remedy.until:
        return made + _STANDS_AT_MOST if at.incident == remedy.until else None
    if tried.cause in _PASSING and action == "none":
        return None
    return made + min(_STANDS * (1 << min(times - 1, _MOST_DOUBLINGS)), _STANDS_AT_MOST)
