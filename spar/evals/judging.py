"""Judgement of a trial: what of its case holds, and a sentence about what does not. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Struct

from spar.evals.cases import ExpectedCall
from spar.evals.conditions import fits, unmet
from spar.evals.playing import Trial
from spar.evals.stand_ins import CallMade


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
