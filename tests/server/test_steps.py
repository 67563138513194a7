"""What a step is given as JSON: actions, lists of calls, calls in their fields and on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from spar.operations.agent import step_input
from spar.types import ActionResult, Call, Perception

WIRE = {"_tool": "note", "text": "hello", "_id": "c1", "_outputPath": "†state.note", "_detach": True}
FIELDS = {
    "tool": "note",
    "params": {"text": "hello"},
    "id": "c1",
    "output_path": "†state.note",
    "meta": {"_detach": True},
}
CALL = Call("note", {"text": "hello"}, id="c1", output_path="†state.note", meta={"_detach": True})


@pytest.mark.parametrize(
    "given",
    [WIRE, [WIRE], [FIELDS], {"calls": [WIRE]}, {"calls": [FIELDS]}],
    ids=["a call", "a list", "a list of fields", "an action of the wire", "an action"],
)
def test_an_action_may_be_given_in_every_form_of_the_docs(given: Any) -> None:
    assert step_input("act", given).calls == (CALL,)


def test_an_action_keeps_what_else_it_says() -> None:
    action = step_input("act", {"calls": [WIRE, FIELDS], "reason": "because", "trust": "untrusted"})
    assert (len(action.calls), action.reason, action.trust) == (2, "because", "untrusted")
    assert step_input("act", {"output": 42}).output == 42
    assert step_input("act", []).calls == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"_tool": 5}], r"calls\[0\]: 'tool' of a call must be text, found 5"),
        ([WIRE, 7], r"calls\[1\]: Expected `object`, got `int`"),
        ({"calls": [{"params": {}}]}, r"calls\[0\]: Object missing required field `tool`"),
        ("note", "Expected `object`, got `str`"),
        ({"calls": 5}, "the given value does not fit"),
    ],
)
def test_what_is_no_action_is_refused_with_its_place(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        step_input("act", given)


def test_the_other_phases_take_what_the_step_before_brought() -> None:
    (perception,) = step_input("plan", [{"content": "disk full", "kind": "message"}])
    assert isinstance(perception, Perception)
    assert isinstance(step_input("reflect", {"action": {"calls": []}}), ActionResult)
    with pytest.raises(ValueError, match="does not fit"):
        step_input("plan", {"no": "list"})
