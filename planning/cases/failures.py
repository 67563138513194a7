"""Failures that a call would only repeat, how long they hold, and values that worked instead. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from planning.cases.evidence import Case, aware, worth
from planning.cases.situations import Situation, has_same_params
from spar.types import Remedy

#: Weight of a failure, in trials, below which it no longer holds.
_FORGIVEN: Final = 0.5
#: How long a permanent failure holds the first time. Each repetition doubles it, up to this number of doublings and
#: this longest time.
_STANDS: Final = timedelta(minutes=10)
_MOST_DOUBLINGS: Final = 7
_STANDS_AT_MOST: Final = timedelta(days=1)
#: Number of failures in a row after which a call that worked before counts as failing.
_IN_A_ROW: Final = 3
#: Causes of failure that end by themselves: the same call may work the next time.
_PASSING: Final = frozenset({"", "transient", "timeout", "io", "resources", "cancelled", "steered"})
#: Causes of failure that return for sure if nothing changes.
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
    """A failure that the same call in the same situation would repeat.

    `seconds` is the time until the call may be tried again; `times` counts its failures since it last worked.
    """

    case: Case
    seconds: float
    times: int = 1

    @property
    def remedy(self) -> Remedy:
        return self.case.tried.remedy or Remedy("none")

    @property
    def is_certain(self) -> bool:
        """Return whether the failure would come again for sure; if not, one more try is reasonable."""
        return self.case.tried.cause in _CERTAIN or self.times > 1

    @property
    def sentence(self) -> str:
        """Return the reason why the call is not tried again, without text from the failure's message."""
        tried = self.case.tried
        times = f"{self.times} times" if self.times > 1 else "once"
        cause = f" ({tried.cause})" if tried.cause else ""
        return f"{tried.tool} failed {times} in this situation with these parameters{cause}"


def known_failure(cases: Sequence[Case], tool: str, params: Mapping[str, Any], at: Situation) -> KnownFailure | None:
    """Return the failure that a call would only repeat.

    Returns: None if the call never failed like this, works at times, or if enough time or other trials have passed.
    """
    same_calls = [
        case
        for case in cases
        if case.is_same and case.tried.tool == tool and has_same_params(case.tried.params, params)
    ]
    failures = [case for case in same_calls if case.has_worked is False]
    if not failures:
        return None
    latest = max(failures, key=lambda case: aware(case.experience.at))
    worked_at = max((aware(case.experience.at) for case in same_calls if case.has_worked), default=None)
    began = aware(latest.experience.first_at or latest.experience.at)
    if worked_at is not None and (worked_at >= began or sum(case.experience.count for case in failures) < _IN_A_ROW):
        return None  # the call works at times: the tool's ability has its rate of success
    since = [case for case in failures if worked_at is None or aware(case.experience.at) > worked_at]
    times = sum(max(1, case.experience.count) for case in since)
    until = _until(latest, at, times)
    if until is None or until <= at.now or latest.weight < _FORGIVEN * worth(latest.experience):
        return None
    return KnownFailure(latest, (until - at.now).total_seconds(), times)


def other_value(cases: Iterable[Case], failure: KnownFailure, params: Mapping[str, Any]) -> tuple[Any, Case] | None:
    """Return a value of the parameter at fault with which the call worked in the same situation, and its case.

    Only calls that are trusted at least as much as the failed one count: no untrusted value enters a trusted call.
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
    """Return the time until which a failure that came so often holds; None for one that ends by itself."""
    tried, remedy, failed_at = case.tried, case.tried.remedy, aware(case.experience.at)
    action = remedy.action if remedy is not None else "none"
    if remedy is not None and action == "retry":
        return None if remedy.after is None else failed_at + timedelta(seconds=remedy.after)
    if remedy is not None and action == "wait" and remedy.until:
        return failed_at + _STANDS_AT_MOST if at.incident == remedy.until else None
    if tried.cause in _PASSING and action == "none":
        return None
    return failed_at + min(_STANDS * (1 << min(times - 1, _MOST_DOUBLINGS)), _STANDS_AT_MOST)
