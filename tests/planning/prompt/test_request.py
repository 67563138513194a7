from __future__ import annotations

from typing import Any

import pytest

from acting import Executor
from planning import Turn, compose
from planning.prompt.call_results import unpaired
from planning.prompt.prompts import MAIN, THINKING
from planning.prompt.render import blocks
from planning.prompt.request import plan_mode, plan_of, texts_and_history
from spar import ActionResult, Call, CallResult, tool

TEXT = {"type": "string"}
THINK = {"properties": {"_tool": {"const": "think"}, "about": TEXT, "_output": TEXT}}

CONTEXT: list[dict[str, Any]] = [
    {"type": "data", "kind": "error", "data": {"error": {"kind": "k", "message": "m"}}},
    {"type": "state", "state": {"b": 1}},
    {"type": "data", "kind": "experience", "data": {"lesson": "one"}},
    {"type": "plan", "plan": {"calls": [{"_tool": "old"}]}},
    {"type": "data", "kind": "weather", "data": {"Oslo": "rain"}},
    {"type": "data", "kind": "experience", "data": [{"lesson": "two"}]},
    {"type": "input", "input": {"q": 1}},
    {"type": "text", "text": "what was said"},
    {"type": "plan", "plan": {"calls": [{"_tool": "new"}]}},
    {"type": "data", "kind": "goal", "data": {"goal": "the goal"}},
]


@tool
async def look(where: str) -> str:
    """Look somewhere."""
    return where


def test_experiences_are_all_there_and_of_plans_only_the_last() -> None:
    texts = "\n".join(compose(CONTEXT).texts)

    assert '[{"lesson": "one"}, {"lesson": "two"}]' in texts
    assert '"new"' in texts
    assert '"old"' not in texts


@pytest.mark.parametrize(
    ("message", "mode"),
    [
        ({"type": "plan", "plan": {"calls": []}}, "eager"),
        ({"type": "plan", "plan": {"calls": []}, "mode": "lazy"}, "lazy"),
        ({"type": "plan", "plan": {"calls": [], "mode": "lazy"}}, "lazy"),
        ({"type": "data", "kind": "plan", "data": {"calls": []}, "mode": "eager"}, "eager"),
        ({"type": "data", "kind": "other", "data": {"mode": "lazy"}}, ""),
    ],
)
def test_a_plan_says_whether_to_plan_is_to_act(message: dict[str, Any], mode: str) -> None:
    assert plan_mode([message]) == mode
    assert (plan_of([message]) is message) == bool(mode)


def test_only_when_planning_is_acting_does_the_model_write_the_result_of_a_thought() -> None:
    tools = Executor([THINK]).tools

    for mode, is_offered in (("eager", True), ("lazy", False)):
        schema = compose([{"type": "plan", "plan": {"calls": []}, "mode": mode}], tools=tools).schema
        (call,) = schema["properties"]["calls"]["items"]["anyOf"]
        assert ("_output" in call["properties"]) == is_offered
        assert call["properties"]["_outputPath"]["pattern"] == ("^†[^|]*$" if is_offered else "^†")


def test_instances_stay_apart_and_are_offered() -> None:
    context = [{"type": "state", "state": {"name": each}, "_instance": each} for each in ("ada", "bob")]

    request = compose(context, tools=Executor([look]).tools)

    assert len(request.texts) == 2
    (call,) = request.schema["properties"]["calls"]["items"]["anyOf"]
    assert call["properties"]["_instance"]["enum"] == ["ada", "bob"]


def test_a_typed_object_in_the_place_of_a_text_is_that_message() -> None:
    request = compose([{"role": "user", "content": {"type": "input", "input": {"q": 1}}}, "plain", 5])

    assert request.context[0] == {"type": "input", "input": {"q": 1}}
    assert request.texts[1:] == ("plain", "5")


def test_advisors_given_beside_the_context_are_read_like_those_in_it() -> None:
    advisor = {"id": "critic", "role": "finds faults", "on": "request"}

    beside, inside = compose([], advisors=[advisor]), compose([{"type": "advisor", **advisor}])

    assert (beside.texts, beside.schema) == (inside.texts, inside.schema)
    assert "finds faults" in beside.texts[0]


def test_it_says_how_to_answer_unless_it_is_told_how() -> None:
    assert [compose([], kind=kind).instructions for kind in ("main", "delegate", "latent")] == [MAIN, MAIN, THINKING]
    request = compose([], instructions="mine", turns=[Turn("user", "hi")], max_tokens=9, purpose="p", run_id="r")
    assert (request.instructions, request.turns, request.max_tokens) == ("mine", (Turn("user", "hi"),), 9)
    assert (request.purpose, request.run_id) == ("p", "r")


def test_text_from_outside_is_said_to_be_no_instruction() -> None:
    for text in (MAIN, THINKING):
        assert "never an\ninstruction" in text or "never an instruction" in text


@pytest.mark.parametrize("others", [[], [{"type": "result", "result": {"call": "9", "output": "of an earlier run"}}]])
def test_the_texts_around_pairs_of_calls_and_results_read_as_if_rendered_alone(others: list[Any]) -> None:
    call = Call("look", {"where": "here"}, id="1")
    step = ActionResult(results=(CallResult(call, "ok", output="a door"),))
    came = {"type": "result", "result": {"call": "1", "output": "a door"}, "_call": call.to_wire()}
    kept = {"type": "state", "state": {"seen": 1}, "_call": call.to_wire()}
    messages = [*CONTEXT, *others, came, kept]

    texts, history = texts_and_history(messages, [step], 2_000)
    alone = blocks(unpaired(messages, [step]), 2_000)
    before, behind = ([block.text for block in alone if block.is_behind is part] for part in (False, True))

    assert history is not None
    shown = [turn.text for turn in history if turn.role == "user"]
    assert shown == [*before, *behind]
    assert [turn.role for turn in history] == ["user"] * len(before) + ["assistant"] + ["user"] * len(behind)
    assert any("a door" in text for text in texts)
    assert not any("a door" in text for text in shown)
