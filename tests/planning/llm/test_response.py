from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from planning.llm.response import ModelResponse
from planning.ports import Request, TextDelta
from spar.testing import ScriptedModel, stream
from spar.types import Call

CALL = {"_tool": "a", "x": 1}


async def solved(answer: Any) -> tuple[ModelResponse, list[Any]]:
    response = ModelResponse(ScriptedModel([answer]), Request())
    async with response:
        return response, [item async for item in response]


@pytest.mark.parametrize(
    "answer",
    [
        {"calls": [CALL], "output": "hi"},
        stream(['{"calls": [{"_tool": "a", ', '"x": 1}], "out', 'put": "hi"}']),
        stream([CALL, {"output": "hi"}]),
        stream([Call("a", {"x": 1}, id="1"), {"output": "hi"}]),
        stream([{"calls": [CALL]}, TextDelta("h"), TextDelta("i"), {"output": "hi"}]),
        '```json\n{"calls": [{"_tool": "a", "x": 1}], "output": "hi"}```',
    ],
)
async def test_every_shape_of_an_answer_comes_to_the_same(answer: Any) -> None:
    response, items = await solved(answer)

    calls = [item for item in items if not isinstance(item, TextDelta)]
    assert [{key: call[key] for key in ("_tool", "x")} for call in calls] == [CALL]
    assert (response.output, response.text, response.problem) == ("hi", "hi", "")
    assert response.calls == calls
    assert not response.is_empty


async def test_a_model_may_be_an_async_generator_or_a_plain_function() -> None:
    async def streaming(request: Request) -> AsyncIterator[Any]:
        yield CALL

    for model in (streaming, lambda request: CALL):
        async with ModelResponse(model, Request()) as response:  # type: ignore[arg-type]
            assert [item async for item in response] == [CALL]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("Hello!", "it holds no JSON object, found 'Hello!'"),
        ([5], "an answer is a solution or pieces of one, found [5]"),
        (stream([object()]), "an answer is a solution or pieces of one, found "),
        ({"thoughts": "none"}, "it has none of the members that a solution has, found ['thoughts']"),
        ({"calls": {"_tool": "a"}}, "calls is a list, found {'_tool': 'a'}"),
        ('{"calls": {"_tool": "a"}}', "calls is a list, found {'_tool': 'a'}"),
        ({"meta": 5, "output": 1}, "meta is an object, found 5"),
        ({"advisors": "me", "output": 1}, "advisors is a list, found 'me'"),
    ],
)
async def test_junk_becomes_a_problem_in_words(answer: Any, problem: str) -> None:
    response, _ = await solved(answer)

    assert response.problem.startswith(problem)
    assert not response.is_empty
