"""Conditions, and the judgement of a trial by its case."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from spar.evals.cases import EvalCase
from spar.evals.conditions import fits
from spar.evals.judging import judge
from spar.evals.playing import Trial
from spar.evals.stand_ins import CallMade
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
