from __future__ import annotations

import pytest

from spar.runs.text_blocks import line_of
from spar.types import Call, CallResult, CallStatus, Fault


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (CallResult(Call("note", {"text": "a"}), "ok", duration=0.0124), 'note text="a" ✓ 12 ms'),
        (CallResult(Call("look"), "ok", duration=2.25), "look ✓ 2.2 s"),
        (CallResult(Call("look", {"n": 3, "deep": True}), "ok", duration=125.0), "look n=3 deep=true ✓ 2 min 5 s"),
        (CallResult(Call("fetch", {"url": "x"}), "failed", fault=Fault("oserror", "no\nroute"), duration=0.5),
         'fetch url="x" ✗ 500 ms: no route'),
        (CallResult(Call("pay"), "denied", reason="denied"), "pay ✗ denied 0 ms: denied"),
        (CallResult(Call("pay"), "skipped", reason="dep_failed"), "pay –: dep_failed"),
        (CallResult(Call("pay"), "in_doubt"), "pay in_doubt 0 ms"),
    ],
)  # fmt: skip
def test_a_call_that_has_ended_is_one_line(result: CallResult, line: str) -> None:
    assert line_of(result) == line


def test_nothing_in_a_line_looks_like_a_secret() -> None:
    params = {"password": "hunter2", "header": "Authorization: Bearer abcdefghijklmnop1234567890", "text": "x"}

    line = line_of(CallResult(Call("http", params), "ok"))

    assert "hunter2" not in line
    assert "abcdefghijklmnop" not in line
    assert 'text="x"' in line


@pytest.mark.parametrize("status", ["ok", "failed"])
def test_a_line_is_short_and_one_whatever_a_call_holds(status: CallStatus) -> None:
    params = {f"name\n{number}" * 50: {"deep": ["x\u202e" * 10_000]} for number in range(1_000)}
    fault = Fault("odd", "why\n" * 10_000) if status == "failed" else None

    line = line_of(CallResult(Call("t", params), status, fault=fault))

    assert len(line) < 1_200
    assert "\n" not in line
    assert "\u202e" not in line
    assert "(and 994 more)" in line
