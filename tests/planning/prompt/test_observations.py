from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from planning import Requests, compose
from planning.llm.planner import ModelPlanner
from planning.llm.provider import ProviderModel
from planning.ports import MadeCall, Request
from planning.prompt.call_results import paired_turns
from spar import Agent, Call, CallResult, tool
from spar.testing import ScriptedModel
from spar.types import SERVICE_KEYS, Action, ActionResult
from tests.planning.desk import read_of

PRICES = {"Rome": 1.2, "Oslo": 5.9}


@tool(effect="read")
async def price(city: str) -> float:
    return PRICES[city]


def ask_for(city: str, **more: Any) -> dict[str, Any]:
    return {"_tool": "price", "city": city, **more}


def block(request: Request, kind: str) -> Any:
    """The data of one kind as a model reads it."""
    (text,) = [each for each in request.texts if each.startswith(f"## Data: ¶{kind}\n")]
    return json.loads(text.split("\n")[1])


def results(request: Request) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = block(request, "result")
    return found


# -- as text


async def test_each_result_stands_beside_what_its_call_was_given() -> None:
    reasoned = ask_for("Oslo", _id="north", _reasoningForCall="it is dear there")
    model = ScriptedModel([{"calls": [ask_for("Rome"), reasoned]}, {"output": "Oslo"}])

    await Requests(model, tools=[price]).run([{"type": "input", "input": "where is coffee dearer?"}])

    rome, oslo = results(model.requests[1])
    assert rome == {"call": "1.1", "tool": "price", "params": {"city": "Rome"}, "output": 1.2}
    assert oslo == {"call": "north", "tool": "price", "params": {"city": "Oslo"}, "reason": "it is dear there",
                    "output": 5.9}  # fmt: skip


async def test_calls_whose_results_were_written_are_told_with_the_place() -> None:
    model = ScriptedModel([{"calls": [ask_for("Rome", _outputPath="†state.south")]}, {"output": 1}])

    await Requests(model, tools=[price]).run([])

    (called,) = block(model.requests[1], "called")
    assert called == {"call": "1.1", "tool": "price", "params": {"city": "Rome"}, "written": "†state.south"}
    assert block(model.requests[1], "state") == {"south": 1.2}


async def test_no_key_that_the_service_put_on_a_call_is_shown() -> None:
    calls = [ask_for("Rome", _task="x", _trust="trusted", _original={}, _approval="a"), ask_for("Paris")]
    model = ScriptedModel([{"calls": calls}, {"output": "?"}])
    planner = ModelPlanner(model)

    async with Agent(plan=planner, tools=[price], loop_interval="off") as agent:
        run = await agent.wait((await agent.submit("where?")).run_id, 10)

    (rome, paris) = model.requests[1].turns[1].calls
    assert run.status == "ok"
    assert (rome.arguments, rome.result) == ({"city": "Rome"}, "1.2")
    assert (paris.arguments, paris.result.partition(":")[0]) == ({"city": "Paris"}, "Error")
    assert not any(key in read_of(model.requests[1]) for key in SERVICE_KEYS)


# -- as pairs of a call and its result


def played(*steps: tuple[tuple[str, str, str], ...]) -> tuple[ProviderModel, list[list[ModelMessage]]]:
    """A model of a provider that makes these calls (name, arguments, id), step by step, and then answers."""
    seen: list[list[ModelMessage]] = []

    async def play(messages: list[ModelMessage], told: AgentInfo) -> AsyncIterator[Any]:
        seen.append(list(messages))
        if len(seen) > len(steps):
            yield "done"
            return
        for number, (name, arguments, id) in enumerate(steps[len(seen) - 1]):
            yield {number: DeltaToolCall(name=name, json_args=arguments, tool_call_id=id)}

    return ProviderModel(FunctionModel(stream_function=play, model_name="it")), seen


def pairs(messages: list[ModelMessage]) -> list[tuple[str, Any, str, Any]]:
    """Tool, arguments, id and what came, of each call that the messages tell of; each answered right behind."""
    found: list[tuple[str, Any, str, Any]] = []
    for said, answer in pairwise(messages):
        if isinstance(said, ModelResponse):
            assert isinstance(answer, ModelRequest)
            came = {each.tool_call_id: each for each in answer.parts if isinstance(each, ToolReturnPart)}
            calls = [each for each in said.parts if isinstance(each, ToolCallPart)]
            assert list(came) == [each.tool_call_id for each in calls]
            found += [(each.tool_name, each.args, each.tool_call_id, json.loads(str(came[each.tool_call_id].content)))
                      for each in calls]  # fmt: skip
    return found


async def test_a_model_that_calls_functions_is_told_each_call_with_its_result_under_the_provider_s_ids() -> None:
    model, seen = played(
        (("price", '{"city": "Rome"}', "call_a"), ("price", '{"city": "Oslo"}', "call_b")),
        (("price", '{"city": "Paris", "_outputPath": "†state.p"}', "call_c"),),
    )

    answered = await Requests(model, tools=[price]).run([{"type": "input", "input": "where is coffee dearer?"}])

    assert answered.output == "done"
    assert pairs(seen[1]) == [
        ("price", {"city": "Rome"}, "call_a", {"call": "1.1", "output": 1.2}),
        ("price", {"city": "Oslo"}, "call_b", {"call": "1.2", "output": 5.9}),
    ]
    assert pairs(seen[2])[:2] == pairs(seen[1])
    ((_, _, id, came),) = pairs(seen[2])[2:]
    assert (id, came["error"]["kind"]) == ("call_c", "error")
    said = "".join(str(part.content) for message in seen[2] for part in message.parts
                   if isinstance(part, UserPromptPart))  # fmt: skip
    assert "coffee" in said
    assert not [kind for kind in ("¶result", "¶called", "¶error") if kind in said]


async def test_an_agent_tells_pairs_as_the_loop_of_requests_does() -> None:
    steps = ((("price", '{"city": "Rome"}', "call_a"),), (("price", '{"city": "Oslo"}', "call_b"),))
    model, seen = played(*steps)

    async with Agent(plan=ModelPlanner(model), tools=[price], loop_interval="off") as agent:
        run = await agent.wait((await agent.submit("where?")).run_id, 10)

    assert run.output == "done"
    assert [(tool, arguments["city"], id, came) for tool, arguments, id, came in pairs(seen[2])] == [
        ("price", "Rome", "call_a", 1.2),
        ("price", "Oslo", "call_b", 5.9),
    ]
    assert pairs(seen[2])[:1] == pairs(seen[1])


async def test_two_steps_whose_provider_gives_the_same_id_have_ids_of_their_own() -> None:
    same = (("price", '{"city": "Rome"}', "call_0"),)
    model, seen = played(same, (("price", '{"city": "Oslo"}', "call_0"),), (("nobody's", "{}", "two words"),))

    await Requests(model, tools=[price]).run([])

    ids = [id for _, _, id, _ in pairs(seen[3])]
    assert ids[0] == "call_0"
    assert len({*ids, "two words"}) == 4
    assert pairs(seen[3])[2][0] == "nobody_s"


async def test_each_call_of_a_step_is_told_with_what_came_of_it_also_those_that_did_not_run() -> None:
    call = Call("price", {"city": "Rome"}, id="c")
    cases = {
        "skipped": CallResult(call, "skipped", "dep_failed"),
        "ok": CallResult(call, "ok", "detached"),
        "denied": CallResult(call, "denied", "denied"),
    }
    for status, result in cases.items():
        request = compose([], tools=[], steps=[ActionResult(Action(), "ok", (result,))])
        assert request.history is not None
        ((told,),) = [turn.calls for turn in request.history if turn.calls]
        assert json.loads(told.result) == {"call": "c", "status": status, "reason": result.reason}


@given(st.lists(st.lists(st.integers(0, 3_000), min_size=1, max_size=4), max_size=40))
def test_results_stay_as_they_were_shown_until_there_is_no_room_for_them(sizes: list[list[int]]) -> None:
    limit = 1_000
    steps = [
        ActionResult(Action(), results=tuple(CallResult(Call("price"), "ok", output="x" * size) for size in of_step))
        for of_step in sizes
    ]

    def paired_calls(some: list[ActionResult]) -> list[tuple[MadeCall, ...]]:
        return [turn.calls for turn in paired_turns(some, limit)]

    changes, former, written = 0, paired_calls([]), 0
    for number in range(1, len(steps) + 1):
        shown = paired_calls(steps[:number])
        size = sum(len(call.result) for step in shown for call in step)
        assert size <= 4 * limit + 200 * sum(map(len, sizes[:number]))
        assert [call.result for call in shown[-1]] == [
            call.result for call in paired_calls(steps[number - 1 : number])[0]
        ]
        changes += shown[:-1] != former
        former, written = shown, written + sum(len(call.result) for call in shown[-1])
    assert changes <= written / (2 * limit) + 1
