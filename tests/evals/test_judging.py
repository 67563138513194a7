"""Conditions, and the judgement of a trial by its case."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from spar.evals.cases import EvalCase
from spar.evals.conditions import fits
from spar.evals.playing import CallMade, Trial
from spar.evals.summary import Summary, differences, judge, mean, rate, rate_difference
from spar.records.runs import RunStatus


def broken(expect: dict[str, Any], *calls: tuple[str, dict[str, Any]], reply: str = "done", **more: Any) -> list[str]:
    """Return the conditions that a trial with these calls and this answer does not meet."""
    given = {"name": "one", "messages": ["hi"], "expect": expect}
    case = TypeAdapter(EvalCase).validate_python(given)
    trial = Trial(case, [CallMade(tool, params, "ok") for tool, params in calls], **more)
    trial.statuses = [RunStatus("r", "ok", reply=reply or None, silent=not reply)]
    return [finding.key for finding in judge(trial) if finding.why]


@pytest.mark.parametrize(
    ("value", "expected", "holds"),
    [
        ("Graz ", "graz", True),
        ("Graz, Austria", "Graz", False),
        ("Graz, Austria", {"contains": "graz"}, True),
        ("Graz, Austria", {"contains": ["graz", "linz"]}, False),
        ("Graz", {"matches": "^gr.z$", "lacks": "x"}, True),
        (3, {"contains": "3"}, False),
        (3, 3, True),
        (3, 3.0, True),
        (1, True, False),
        (True, True, True),
        ("3", 3, False),
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"b": 2}, {"a": 1}, False),
        ([1, "X"], [1, "x"], True),
        ([1], [1, 2], False),
        (None, None, True),
    ],
)
def test_values_are_as_expected_or_not(value: Any, expected: Any, holds: bool) -> None:
    assert fits(value, expected) is holds


LOOK, GO, FAR = ("look", {"at": "door"}), ("go", {"to": "Graz"}), ("go", {"to": "Linz"})


def test_calls_are_counted_ordered_and_forbidden() -> None:
    both = [{"tool": "look"}, {"tool": "go"}]

    assert broken({"calls": both, "only": True, "in_order": True}, LOOK, GO) == []
    assert broken({"calls": both, "in_order": True}, GO, LOOK) == ["in_order"]
    assert broken({"calls": both}, GO) == ["calls[0]"]
    assert broken({"calls": [{"tool": "go", "times": 1}]}, GO, FAR) == ["calls[0]"]
    assert broken({"calls": [{"tool": "go", "params": {"to": "Graz"}, "times": 1}], "only": True}, GO, FAR) == ["only"]
    assert broken({"calls": [{"tool": "look", "times": 0}]}, GO) == []
    assert broken({"calls": [{"tool": "look", "times": 0}]}, LOOK) == ["calls[0]"]
    assert broken({"only": True}, LOOK) == ["only"]


def test_answers_silence_amounts_approvals_and_summaries_are_judged() -> None:
    assert broken({"answer": {"contains": ["do", "ne"], "lacks": "un", "matches": "^done$"}}) == []
    assert broken({"answer": "Gone"}) == ["answer"]
    assert broken({"silent": True}) == ["silent"]
    assert broken({"silent": True}, reply="") == []
    assert broken({"steps": 2, "tokens": 10, "cost": 0.5}, steps=2, input_tokens=4, output_tokens=6, cost=500_000) == []
    assert broken({"steps": 2, "tokens": 10, "cost": 0.5}, steps=3, input_tokens=11, cost=500_001) == [
        "steps", "tokens", "cost"]  # fmt: skip
    assert broken({"approvals": "pay"}, asked=["pay", "pay"]) == []
    assert broken({"approvals": []}, asked=["pay"]) == ["approvals"]
    assert broken({"compacted": True}, compactions=0) == ["compacted"]
    assert broken({"status": "error"}) == ["status"]


def test_a_trial_that_ended_early_is_judged_by_that_alone() -> None:
    assert broken({"answer": "Gone"}, error="did not end within 1 s") == ["timeout"]


# -- intervals: as published, never empty where nothing was seen to fail, and by cases, not by trials


def test_the_interval_of_a_rate_is_wilsons() -> None:
    estimate = rate([1.0] * 38 + [0.0] * 2)

    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0.95, 0.8350, 0.9862), abs=1e-4)
    assert (rate([1.0] * 40).low, rate([1.0] * 40).high) == pytest.approx((0.9124, 1.0), abs=1e-4)


def test_the_interval_of_a_difference_is_that_of_agresti_and_min() -> None:
    estimate = rate_difference([1.0] * 5 + [-1.0] + [0.0] * 34)  # 4/42 ± 1.96 · √(7 − 16/42) / 42

    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0.1, -0.0248, 0.2153), abs=1e-4)
    same = rate_difference([0.0] * 40)
    assert same.low == pytest.approx(-0.0467, abs=1e-4) == -(same.high or 0)


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=1, max_size=60))
def test_a_difference_lies_within_bounds_and_turns_with_its_sides(pairs: list[float]) -> None:
    one, other = rate_difference(pairs), rate_difference([-pair for pair in pairs])

    assert -1 <= (one.low or 0) < (one.high or 0) <= 1
    assert (one.low, one.high) == (pytest.approx(-(other.high or 0)), pytest.approx(-(other.low or 0)))


def test_a_mean_of_few_cases_has_no_interval() -> None:
    assert (mean([1, 2, 3, 4]).value, mean([1, 2, 3, 4]).low) == (2.5, None)
    estimate = mean([1, 2, 3, 4, 5])
    assert (estimate.low, estimate.high) == (pytest.approx(3 - 1.386, abs=1e-3), pytest.approx(3 + 1.386, abs=1e-3))


def summary(name: str, *passed: tuple[str, bool, int]) -> Summary:
    """Return the summary of trials: the name of the case, whether it passed, its steps."""
    trials = []
    for case, is_passed, steps in passed:
        given = {"name": case, "group": "g", "messages": ["hi"], "expect": {"answer": "yes"}}
        trial = Trial(TypeAdapter(EvalCase).validate_python(given), steps=steps)
        trial.statuses = [RunStatus("r", "ok", reply="yes" if is_passed else "no")]
        trials.append(trial)
    return Summary.of(name, trials)


def test_several_trials_of_a_case_count_as_one_case() -> None:
    one = summary("one", ("a", True, 2), ("a", False, 4), ("b", True, 1), ("b", True, 1))
    other = summary("other", ("a", True, 2), ("a", True, 2), ("b", True, 1), ("b", True, 2))

    assert one.by_case("passed") == {"a": 0.5, "b": 1.0}
    assert one.estimate("passed") == rate([0.5, 1.0])
    assert one.groups() == {"g": (3, 4)}
    assert differences(one, other)["passed"] == rate_difference([0.5, 0.0])
    assert differences(one, other)["steps"].value == -0.25
