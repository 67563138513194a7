from __future__ import annotations

from typing import Any

import pytest

from planning import Request, Requests, Usage
from spar.testing import ScriptedModel, stream

TEXT = {"type": "string"}


def schema(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"_tool": {"const": name}, **properties}}


ASK = schema("ask", city=TEXT, _output=TEXT)
THINK = schema("think", about=TEXT, _output=TEXT)
FETCH = schema("fetch", _output=TEXT)


async def fetch(call: Any, tool: Any, context: Any) -> str:
    return "the page"


class Model:
    """Answers by the kind of request; remembers all of them."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {kind: list(given) for kind, given in answers.items()}
        self.requests: list[Request] = []

    async def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        given = self.answers[request.kind]
        answer = given.pop(0) if len(given) > 1 else given[0]
        return answer(request) if callable(answer) else answer

    def of(self, kind: str) -> list[Request]:
        return [request for request in self.requests if request.kind == kind]


def call(tool: str = "ask", **more: Any) -> dict[str, Any]:
    return {"_tool": tool, "_outputPath": "†state.answer", **more}


DEFINITION = {
    "context": [{"type": "text", "text": "You know the weather."}, {"type": "input", "input": {}, "schema": {"a": 1}}],
    "schema": TEXT,
}


async def test_a_delegate_sees_its_definition_its_parameters_and_its_scopes_only() -> None:
    asked = call(city="Oslo", _delegate="weather", _scopes=["state"])
    model = Model(main=[{"calls": [asked], "output": "†state.answer"}],
                  delegate=[{"output": "rain"}])  # fmt: skip
    context = [{"type": "state", "state": {"unit": "C"}, "_instance": "x"}, {"type": "state", "state": {"k": 1}},
               {"type": "input", "input": {"secret": 1}}]  # fmt: skip

    answered = await Requests(model, tools=[ASK], definitions={"weather": DEFINITION}).run(context)

    assert answered.output == "rain"
    (request,) = model.of("delegate")
    assert list(request.context) == [
        *DEFINITION["context"],
        {"type": "state", "state": {"k": 1}},
        {"type": "input", "input": {"city": "Oslo"}},
    ]
    assert request.answer == TEXT


async def test_an_anonymous_delegate_begins_with_nothing_and_fits_the_tools_result() -> None:
    model = Model(main=[{"calls": [call(city="Oslo", _delegate="anonymous")], "output": "†state.answer"}],
                  delegate=[{"output": 5}, {"output": "rain"}])  # fmt: skip

    answered = await Requests(model, tools=[ASK]).run([{"type": "input", "input": {"secret": 1}}])

    assert answered.output == "rain"
    assert model.of("delegate")[0].context == ({"type": "input", "input": {"city": "Oslo"}},)
    assert model.of("delegate")[0].answer == TEXT


async def test_definitions_may_be_looked_up_by_a_function() -> None:
    async def find(path: str) -> Any:
        return DEFINITION if path == "a/b" else None

    calls = [call(city="x", _delegate="a/b"), call(city="x", _delegate="c")]
    model = Model(main=[{"calls": calls, "output": "†state.answer"}],
                  delegate=[{"output": "rain"}])  # fmt: skip

    answered = await Requests(model, tools=[ASK], definitions=find, verify_output=False).run()

    assert answered.output == "rain"
    assert [each["error"]["message"] for each in answered.errors] == ["no definition of the delegate 'c'"]


async def test_a_delegate_that_comes_to_nothing_is_a_failed_call() -> None:
    model = Model(main=[{"calls": [call(city="x", _delegate="anonymous")]}, {"output": "well"}], delegate=[None])

    answered = await Requests(model, tools=[ASK]).run()

    assert answered.output == "well"
    assert "came to no output (empty)" in answered.errors[0]["error"]["message"]


async def test_delegates_nest_five_deep_and_no_deeper() -> None:
    ask = {"calls": [call(city="x", _delegate="anonymous")]}
    model = Model(main=[ask, {"output": "end"}],
                  delegate=[lambda request: ask if len(request.context) == 1 else {"output": "back"}])  # fmt: skip

    answered = await Requests(model, tools=[ASK], max_requests=100).run()

    assert answered.output == "end"
    depths = [request for request in model.of("delegate") if len(request.context) == 1]
    assert len(depths) == 5


async def test_what_is_nested_lives_off_what_the_outermost_is_allowed() -> None:
    model = Model(
        main=[{"calls": [call(city=str(n), _delegate="anonymous") for n in range(9)]}], delegate=[{"output": "x"}]
    )

    answered = await Requests(model, tools=[ASK], max_requests=4).run()

    assert (answered.reason, len(model.requests)) == ("max_requests", 4)
    assert len(answered.errors) == 6


async def test_what_is_nested_counts_as_taken_by_who_asked() -> None:
    asked = {"calls": [call(city="x", _delegate="anonymous")]}
    model = ScriptedModel(
        [stream([asked, Usage("m", 1, 1)]), stream([{"output": "x"}, Usage("m", 2, 2)]), {"output": 1}]
    )

    assert (await Requests(model, tools=[ASK]).run()).usage == Usage("m", 3, 3)


async def test_a_thought_about_what_was_not_there_yet_is_thought_again() -> None:
    calls = [{"_tool": "fetch", "_outputPath": "†state.page"}, call("think", about="†state.page", _output="made up")]
    model = Model(main=[{"calls": calls, "output": "†state.answer"}], latent=[{"output": "it is about tea"}])

    answered = await Requests(model, tools=[THINK, FETCH], activities={"fetch": fetch}).run()

    assert answered.output == "it is about tea"
    (request,) = model.of("latent")
    assert request.context == ({"type": "input", "input": {"about": "the page"}},)
    assert list(request.schema["properties"]) == ["output"]


async def test_who_is_to_think_cannot_call() -> None:
    calls = [{"_tool": "fetch", "_outputPath": "†state.page"}, call("think", about="†state.page", _output="x")]
    model = Model(main=[{"calls": calls, "output": "†state.answer"}],
                  latent=[{"calls": [{"_tool": "fetch"}]}, {"output": "tea"}])  # fmt: skip

    await Requests(model, tools=[THINK, FETCH], activities={"fetch": fetch}).run()

    assert [each["data"]["error"]["kind"] for each in model.of("latent")[1].context if each.get("kind") == "error"] == [
        "unknown_tool"
    ]


async def test_thoughts_of_a_lazy_plan_are_thought_when_it_is_carried_out() -> None:
    model = Model(main=[{"calls": [call("think", about="tea", _output="too early")]}, {"output": "†state.answer"}],
                  latent=[{"output": "warm"}])  # fmt: skip

    answered = await Requests(model, tools=[THINK]).run([{"type": "plan", "plan": {"calls": []}, "mode": "lazy"}])

    assert answered.output == "warm"
    offered = model.of("main")[0].schema["properties"]["calls"]["items"]["anyOf"]
    assert [each for each in offered if "_output" in each["properties"]] == []


# -- advisors

CRITIC = {"type": "advisor", "id": "critic", "role": "finds faults", "schema": schema("x", fault=TEXT)}


async def test_what_advisors_say_is_collected_and_strangers_are_not() -> None:
    said = [{"id": "critic", "fault": "none"}, {"id": "stranger", "fault": "all"}]
    model = ScriptedModel([{"advisors": said, "output": 1}])

    answered = await Requests(model).run([{**CRITIC, "on": "request"}])

    assert answered.advice == ({"id": "critic", "fault": "none"},)
    assert "advisors" in model.requests[0].schema["properties"]


async def test_an_advisor_without_an_occasion_is_consulted() -> None:
    advisor = {**CRITIC, "schema": {"properties": {"fault": TEXT}, "required": ["fault"]}, "scopes": ["state"]}
    consult = {"_tool": "ConsultAdvisor", "advisor": "critic", "question": "well?", "_outputPath": "†state.said"}
    model = Model(main=[{"calls": [consult]}, {"output": "†state.said.fault"}], latent=[{"output": {"fault": "typo"}}])

    answered = await Requests(model).run([{"type": "state", "state": {"draft": "teh"}}], advisors=[advisor])

    assert answered.output == "typo"
    assert answered.advice == ({"id": "critic", "fault": "typo"},)
    (request,) = model.of("latent")
    assert request.context == (
        {"type": "state", "state": {"draft": "teh"}},
        {"type": "input", "input": {"question": "well?"}},
    )
    assert "critic" in request.instructions
    assert "finds faults" in request.instructions


async def test_consulting_nobody_is_an_error_of_the_call() -> None:
    model = ScriptedModel([{"calls": [{"_tool": "ConsultAdvisor", "advisor": "x", "question": "?"}]}, {"output": 1}])

    answered = await Requests(model).run()

    assert answered.errors[0]["error"]["message"] == "no advisor 'x'; known: none"


async def test_outside_of_a_run_they_ask_on_their_own() -> None:
    requests = Requests(Model(delegate=[{"output": "rain"}]), tools=[ASK])
    result = await requests.executor.run([{"_tool": "ask", "city": "x", "_delegate": "anonymous"}])

    assert result.results[0].output == "rain"


@pytest.mark.parametrize("context", ["text", {"type": "text"}, 5])
async def test_a_definition_that_is_none_fails_the_call(context: Any) -> None:
    model = Model(main=[{"calls": [call(city="x", _delegate="bad")]}, {"output": 1}], delegate=[{"output": "x"}])

    answered = await Requests(model, tools=[ASK], definitions={"bad": {"context": context}}).run()

    assert "no list of messages" in answered.errors[0]["error"]["message"]
