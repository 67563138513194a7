"""Conditions of breakpoints: what holds, what is refused, and that each ends."""

from __future__ import annotations

from typing import Any

import pytest

from spar.breakpoints.condition import LONGEST, Condition

CALL: dict[str, Any] = {
    "session": "x", "tool": "shell", "params": {"command": "ls /etc", "tries": 3, "hosts": ["a", "b"]},
    "status": "failed", "attempts": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        'tool == "shell"', "tool != 'note'", 'tool in ["shell", "http"]', '"/etc" in params.command',
        'params["tries"] >= 3 and attempts < 3', 'not (status == "ok")', 'params.hosts[0] == "a"',
        '"b" in params.hosts',
        '"tries" in params', "params.missing == null", "params.missing.deeper is None", "1 < params.tries < 4",
        "params.tries > -1", 'tool == "note" or status == "failed"', "params.hosts[7] == null", "goal == None",
        '"z" not in params.hosts', "true", 'tool < "zzz"',
    ],
)  # fmt: skip
def test_a_condition_holds(text: str) -> None:
    assert Condition(text).holds([CALL])


@pytest.mark.parametrize(
    "text",
    ['tool == "note"', "params.tries > 3", 'tool > 3', "params.hosts > 3", "null", "attempts in 7", "false", "not tool",
     'params.tries["a"] == 1', "3 in tool"],
)  # fmt: skip
def test_a_condition_does_not_hold(text: str) -> None:
    assert not Condition(text).holds([CALL])


def test_one_of_the_candidates_is_enough() -> None:
    condition = Condition('tool == "shell"')
    assert condition.holds([{"tool": None}, {"tool": "note"}, {"tool": "shell"}])
    assert not condition.holds([])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tol == 1", "no name 'tol' in a condition; known: session, run, .*; did you mean 'tool'"),
        ("tool = 'shell'", "cannot be read"),
        ("tool ==", "cannot be read"),
        ("len(tool) > 3", r"cannot have 'len\(tool\)'; use =="),
        ("tool.__class__.mro()", "cannot have"),
        ("[one for one in params]", "cannot have"),
        ("(lambda: 1)()", "cannot have"),
        ("9 ** 9 ** 9 == 1", "cannot have"),
        ("'a' * 9 == tool", "cannot have"),
        ("b'a' == tool", "cannot have"),
        ("(tool := 1)", "cannot have"),
        ("f'{tool}' == 'a'", "cannot have"),
        ("tool == 1j", "cannot have"),
        ("tool\0", "cannot be read"),
        ("(" * 400 + "1" + ")" * 400, "cannot be read"),
        ("x" * (LONGEST + 1), "1001 characters, at most 1000"),
    ],
)
def test_what_is_no_condition_is_refused_in_one_sentence(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        Condition(text)
    assert "\n" not in str(refused.value)


def test_the_longest_conditions_end() -> None:
    deepest = "not " * 240 + "tool"
    assert Condition(deepest).holds([CALL])
    assert Condition(" or ".join(["tool == 1"] * 77)).holds([CALL]) is False
