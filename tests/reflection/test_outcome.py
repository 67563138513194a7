from __future__ import annotations

from typing import Any

import pytest

from reflection.lessons import judge
from spar.types import Action, ActionResult, Call, CallResult, Fault

CALL = Call("note", {"text": "x"})


def result(*results: CallResult, **fields: Any) -> ActionResult:
    calls = tuple(item.call for item in results)
    return ActionResult(action=Action(calls=calls), results=results, **fields)


OK = CallResult(CALL, "ok")
VERIFIED = CallResult(Call("note", meta={"_expect": {"state": "up"}}), "ok", verified=True)
FAILED = CallResult(CALL, "failed", fault=Fault("error", "boom"))
DEPENDENT = CallResult(CALL, "skipped", "dep_failed")
BRANCH = CallResult(CALL, "skipped", "branch")
DENIED = CallResult(CALL, "denied", "denied")
HANDLED = CallResult(CALL, "failed", "handled")
DOUBT = CallResult(CALL, "in_doubt")
DETACHED = CallResult(CALL, "ok", "detached")


@pytest.mark.parametrize(
    ("given", "score", "success"),
    [
        (result(OK), 1.0, True),
        (result(OK, VERIFIED), 1.0, True),
        (result(OK, BRANCH), 1.0, True),
        (result(OK, HANDLED), 1.0, True),
        (result(OK, FAILED, status="partial"), 0.5, False),
        (result(OK, FAILED, DEPENDENT, status="partial"), 1 / 3, False),
        (result(FAILED, status="failed"), 0.0, False),
        (result(OK, DENIED, status="partial"), 1.0, True),
        (result(DENIED, status="failed"), 0.0, False),
        (result(DOUBT, status="partial"), 0.5, None),
        (result(OK, DOUBT, status="partial"), 0.75, None),
        (result(DETACHED), 1.0, None),
        (result(OK, CallResult(CALL, "cancelled"), status="interrupted"), 1.0, None),
        (result(OK, fault=Fault("error", "boom")), 0.0, False),
        (ActionResult(), 1.0, None),
        (ActionResult(action=Action(output="hello")), 1.0, True),
        (ActionResult(status="failed"), 0.0, False),
    ],
)
def test_score_and_success_follow_what_became_of_the_calls(
    given: ActionResult, score: float, success: bool | None
) -> None:
    outcome = judge(given)

    assert outcome.score == pytest.approx(score)
    assert outcome.success is success


def test_finished_and_verified_are_told_apart() -> None:
    assert judge(result(OK)).text == "ok: 1 of 1 calls finished"
    assert judge(result(OK, VERIFIED)).text == "ok: 2 of 2 calls finished, 1 verified"
    assert judge(result(FAILED, DENIED, OK, status="partial")).text == (
        "partial: 1 of 3 calls finished, 1 failed, 1 denied"
    )
    assert judge(ActionResult(action=Action(output="x"))).text == "ok: answered"
