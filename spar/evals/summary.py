"""Judgement of a trial, summary of the trials of a configuration, and the difference of two, with intervals. Pure.

A case is the unit: several trials of one are a share between 0 and 1, because they are more alike than trials of
different cases. The interval of a rate is Wilson's (1927). The interval of the difference of two rates over the same
cases is that of Agresti and Min (2005): Wald's after adding two pairs of cases, half of one in each cell. Both hold for
few cases, and are not empty where all cases pass. Those of means are normal, and there is none below five cases.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import sqrt
from statistics import NormalDist, fmean, stdev
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from spar.evals.cases import ExpectedCall
from spar.evals.conditions import fits, unmet
from spar.evals.playing import CallMade, Trial


class CaseFinding(Struct, frozen=True):
    """One condition of a case, by its key in `expect`; `why` says why it does not hold, "" if it does."""

    key: str
    why: str = ""


def judge(trial: Trial) -> list[CaseFinding]:
    """Return a finding for each condition of a trial's case; only one if the trial ended early."""
    return [CaseFinding("timeout", trial.error)] if trial.error else list(_findings(trial))


def _findings(trial: Trial) -> Iterator[CaseFinding]:
    expect, calls = trial.case.expect, trial.calls
    bad = [status for status in trial.statuses if status.status != expect.status]
    yield CaseFinding("status", f"a run ended {bad[0].status!r}: {bad[0].error or 'without an error'}" if bad else "")
    for number, expected in enumerate(expect.calls):
        yield CaseFinding(f"calls[{number}]", _uncalled(expected, calls))
    if expect.only:
        others = [call for call in calls if not any(is_call(call, expected) for expected in expect.calls)]
        yield CaseFinding("only", f"other calls were made: {listed(others)}" if others else "")
    if expect.in_order:
        yield CaseFinding("in_order", "" if _in_order(expect.calls, calls) else f"the order was {listed(calls)}")
    last = trial.statuses[-1]
    answer = last.reply or ""
    if why := unmet(answer, expect.answer):
        yield CaseFinding("answer", f"{why}: {answer!r:.200}")
    elif expect.answer.contains or expect.answer.lacks or expect.answer.matches:
        yield CaseFinding("answer")
    if expect.silent is not None:
        is_as_expected = last.silent == expect.silent
        yield CaseFinding(
            "silent", "" if is_as_expected else f"the answer is {answer!r:.200}" if answer else "no answer came"
        )
    if expect.approvals is not None:
        is_as_expected = set(trial.asked) == set(expect.approvals)
        yield CaseFinding("approvals", "" if is_as_expected else f"asked for: {', '.join(trial.asked) or 'none'}")
    if expect.compacted is not None:
        is_as_expected = bool(trial.compactions) == expect.compacted
        yield CaseFinding("compacted", "" if is_as_expected else f"it was summed up {trial.compactions} times")
    for key, used, most in (("steps", trial.steps, expect.steps), ("tokens", trial.tokens, expect.tokens),
                            ("cost", trial.cost / 1e6, expect.cost)):  # fmt: skip
        if most is not None:
            yield CaseFinding(key, f"{used:g}, more than {most:g}" if used > most else "")


def is_call(call: CallMade, expected: ExpectedCall) -> bool:
    """Return whether a call is an expected one."""
    return call.tool == expected.tool and fits(call.params, expected.params)


def _uncalled(expected: ExpectedCall, calls: list[CallMade]) -> str:
    number = sum(is_call(call, expected) for call in calls)
    if number == expected.times or (number and expected.times is None):
        return ""
    owed = "at least once" if expected.times is None else f"{expected.times} times"
    params = f" with {json.dumps(expected.params, ensure_ascii=False)}" if expected.params else ""
    return f"{expected.tool}{params} must be called {owed}, was called {number} times; calls: {listed(calls)}"


def _in_order(expected: tuple[ExpectedCall, ...], calls: list[CallMade]) -> bool:
    remaining = iter(calls)
    return all(any(is_call(call, one) for call in remaining) for one in expected if one.times != 0)


def listed(calls: list[CallMade]) -> str:
    """Return calls as one line, at most ten of them."""
    lines = [f"{call.tool}({json.dumps(call.params, ensure_ascii=False, default=str)[1:-1]})"
             + (f" {call.status}" if call.status != "ok" else "") for call in calls]  # fmt: skip
    more = f" and {len(lines) - 10} more" if len(lines) > 10 else ""
    return ", ".join(lines[:10]) + more or "none"


_Z: Final = NormalDist().inv_cdf(0.975)
#: Fewest cases for the interval of a mean.
FEWEST: Final = 5
#: Figures of a trial; "passed" is 1 or 0, and over several trials the rate.
FIGURES: Final = ("passed", "steps", "tokens", "cost", "seconds")


class Estimate(Struct, frozen=True):
    """Estimated value with its interval of 95 %; `low` and `high` are None where there are too few cases for one."""

    value: float
    low: float | None = None
    high: float | None = None


class JudgedTrial(Struct, frozen=True):
    """Trial with its findings."""

    trial: Trial
    findings: tuple[CaseFinding, ...]

    @property
    def why(self) -> str:
        """Return why it did not pass, "" if it passed."""
        return "; ".join(f"{finding.key}: {finding.why}" for finding in self.findings if finding.why)

    def figure(self, name: str) -> float:
        """Return a figure: 1 or 0 for "passed", money for "cost", or a count."""
        if name == "passed":
            return float(not self.why)
        value: float = getattr(self.trial, name)
        return value / 1e6 if name == "cost" else value


class Summary(Struct, frozen=True):
    """All trials of a configuration."""

    name: str
    judged: tuple[JudgedTrial, ...]

    @classmethod
    def of(cls, name: str, trials: Iterable[Trial]) -> Summary:
        """Return the summary of trials."""
        return cls(name, tuple(JudgedTrial(trial, tuple(judge(trial))) for trial in trials))

    def by_case(self, figure: str) -> dict[str, float]:
        """Return a figure by the name of the case, the mean over its trials."""
        values: defaultdict[str, list[float]] = defaultdict(list)
        for judged in self.judged:
            values[judged.trial.case.name].append(judged.figure(figure))
        return {name: fmean(several) for name, several in values.items()}

    def estimate(self, figure: str) -> Estimate:
        """Return a figure over all cases."""
        values = list(self.by_case(figure).values())
        return rate(values) if figure == "passed" else mean(values)

    def groups(self) -> Mapping[str, tuple[int, int]]:
        """Return the number of passed trials, and of all, by group."""
        counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for judged in self.judged:
            counts[judged.trial.case.group][0] += not judged.why
            counts[judged.trial.case.group][1] += 1
        return {group: (passed, number) for group, (passed, number) in counts.items()}

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "configuration": self.name,
            "figures": {figure: asdict(self.estimate(figure)) for figure in FIGURES},
            "groups": {
                group: {"passed": passed, "trials": number} for group, (passed, number) in self.groups().items()
            },
            "trials": [_row(judged) for judged in self.judged],
        }


def differences(one: Summary, other: Summary) -> dict[str, Estimate]:
    """Return what the other configuration has more of each figure, over the same cases."""
    by_figure: dict[str, Estimate] = {}
    for figure in FIGURES:
        before, after = one.by_case(figure), other.by_case(figure)
        pairs = [after[name] - before[name] for name in before]
        by_figure[figure] = rate_difference(pairs) if figure == "passed" else mean(pairs)
    return by_figure


def rate(shares: Sequence[float]) -> Estimate:
    """Return the mean of shares with Wilson's interval."""
    number, value = len(shares), fmean(shares)
    scale = 1 + _Z**2 / number
    center = (value + _Z**2 / (2 * number)) / scale
    half = _Z * sqrt(value * (1 - value) / number + _Z**2 / (4 * number**2)) / scale
    return Estimate(value, max(0.0, center - half), min(1.0, center + half))


def rate_difference(pairs: Sequence[float]) -> Estimate:
    """Return the mean difference of paired shares with the interval of Agresti and Min."""
    number, total = len(pairs) + 2, sum(pairs)
    squares = sum(pair * pair for pair in pairs) + 1  # half a pair is added to both cells in which they differ
    half = _Z * sqrt(max(0.0, squares - total**2 / number)) / number
    return Estimate(fmean(pairs), max(-1.0, total / number - half), min(1.0, total / number + half))


def mean(values: Sequence[float]) -> Estimate:
    """Return a mean with its normal interval."""
    value = fmean(values)
    if len(values) < FEWEST:
        return Estimate(value)
    half = _Z * stdev(values) / sqrt(len(values))
    return Estimate(value, value - half, value + half)


def _row(judged: JudgedTrial) -> dict[str, Any]:
    trial = judged.trial
    last = trial.statuses[-1] if trial.statuses else None
    return {
        "name": trial.case.name,
        "group": trial.case.group,
        "passed": not judged.why,
        "findings": [{"key": finding.key, "holds": not finding.why, "why": finding.why} for finding in judged.findings],
        "answer": last.reply if last else None,
        "calls": [{"tool": call.tool, "params": call.params, "status": call.status} for call in trial.calls],
        "approvals": trial.asked,
        "compactions": trial.compactions,
        "steps": trial.steps,
        "tokens": {"input": trial.input_tokens, "cached": trial.cached_tokens, "output": trial.output_tokens},
        "cost": trial.cost / 1e6,
        "seconds": round(trial.seconds, 3),
    }
