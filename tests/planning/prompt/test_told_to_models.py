"""Errors, remarks and refusals as models are told of them, and what their bookkeeping costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planning import Requests
from planning.llm.provider.native_tools import native_functions
from planning.prompt.history import conversation
from planning.prompt.plans.deadlock import circle
from spar import tool
from spar.records.transcript import Entry
from spar.testing import ScriptedModel
from tests.effort import growth

NOTE = {"type": "object", "properties": {"_tool": {"const": "think"}, "_output": {"type": "string"}, "x": {}}}
LAZY = {"type": "plan", "mode": "lazy", "plan": {"calls": []}}


@tool(effect="read")
async def add(a: int, b: int = 0) -> int:
    return a + b


# -- every error has a call, if only none


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (["no solution", {"output": 1}], "bad_solution"),
        ([{"calls": []}, {"output": 1}], "idle"),
        ([{}, {"output": 1}], "empty"),
        ([{"output": "text"}, {"output": 1}], "invalid_output"),
        ([{"calls": [{"_tool": "add", "a": "x"}], "output": 1}, {"output": 1}], "unverified"),
    ],
)
async def test_an_error_that_is_about_no_call_says_so(answers: list[Any], kind: str) -> None:
    model = ScriptedModel(answers)

    await Requests(model, tools=[add]).run([], {"type": "integer"})

    errors = [each["data"] for each in model.requests[1].context if each.get("kind") == "error"]
    assert [each["call"] for each in errors if each["error"]["kind"] == kind] == [None]
    assert all("call" in each for each in errors)


# -- what is refused


@pytest.mark.parametrize("approval", ["ask", "auto"])
async def test_a_plan_that_nobody_can_approve_is_refused_if_one_of_its_calls_needs_that(approval: Any) -> None:
    done: list[int] = []

    @tool(approval=approval)
    async def pay(amount: int) -> int:
        done.append(amount)
        return amount

    model = ScriptedModel([{"calls": [{"_tool": "add", "a": 1}, {"_tool": "pay", "amount": 5}]}, {"output": "x"}])

    answered = await Requests(model, tools=[add, pay]).run([LAZY])

    kinds = [each["data"]["error"]["kind"] for each in answered.context if each.get("kind") == "error"]
    assert (kinds, done) == (["plan_denied"], []) if approval == "ask" else ([], [5])


@pytest.mark.parametrize("context", [[], [{"type": "plan", "plan": {"calls": []}}]])
async def test_a_thought_that_names_no_branch_alone_is_refused_where_planning_is_acting(context: list[Any]) -> None:
    calls = [{"_tool": "think", "x": 1, "_output": "good", "_outputPath": "†state.a || †state.b"}]
    model = ScriptedModel([{"calls": calls}, {"output": "x"}])

    answered = await Requests(model, tools=[NOTE]).run(context)

    (error,) = answered.errors
    assert error["error"]["kind"] == "bad_call"
    assert "names that one alone" in error["error"]["message"]


async def test_an_output_is_judged_by_the_schema_that_was_sent() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    model = ScriptedModel([{"output": {"a": 1, "extra": 2}}, {"output": {"a": 1}}])

    answered = await Requests(model, tools=[]).run([], schema)

    assert answered.output == {"a": 1}
    assert model.requests[0].schema["properties"]["output"]["additionalProperties"] is False
    (answer,) = native_functions(model.requests[0].schema, model.requests[0].answer)
    assert answer.parameters["properties"]["output"]["additionalProperties"] is False
    open_schema = {**schema, "additionalProperties": True}
    assert (await Requests(ScriptedModel([{"output": {"b": 1}}]), tools=[]).run([], open_schema)).output == {"b": 1}


# -- who says what


@pytest.mark.parametrize(
    ("body", "role"),
    [
        ({"reply": "hello"}, "assistant"),
        ({"reply": "I could not finish this: no", "fallback": True, "error": "no"}, "context"),
        ({"reply": None, "error": "no"}, "context"),
        ({"reply": None, "silent": True}, "assistant"),
        ({"reply": None}, "context"),
    ],
)
def test_what_the_service_says_of_a_run_stands_in_nobodys_mouth(body: dict[str, Any], role: str) -> None:
    (turn,) = conversation([Entry("end", body, "r", 1)]).turns

    assert turn.role == role


# -- what it costs


def chain(size: int) -> list[dict[str, Any]]:
    return [{"_tool": "t", "_id": f"{n}", "x": f"†state.a{n}", "_outputPath": f"†state.a{n + 1}"} for n in range(size)]


@pytest.mark.parametrize(
    "work",
    [
        lambda size: circle(chain(size), lambda path, instance: False),
        lambda size: circle(chain(size)[::-1], lambda path, instance: False),
        lambda size: conversation([Entry("turn", {"output": "x" * 50}, f"{n}", n) for n in range(size)]),
    ],
    ids=["a chain", "a chain from its end", "one role that speaks long"],
)
def test_bookkeeping_grows_with_what_it_is_about(work: Callable[[int], object]) -> None:
    assert growth(work, 200) < 2.2
