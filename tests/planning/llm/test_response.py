from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from planning.llm.response import MOST_CALLS, ModelResponse, added
from planning.ports import Request, TextDelta, Usage
from spar.errors import TransientError
from spar.testing import Fail, Hang, ScriptedModel, stream
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


async def test_a_call_is_handed_out_while_the_model_still_writes() -> None:
    hang = Hang()
    response = ModelResponse(ScriptedModel([stream(['{"calls": [{"_tool": "a"}', hang])]), Request())

    async with response, asyncio.timeout(5):
        async for item in response:
            assert item == {"_tool": "a"}
            break


async def test_the_models_stream_is_closed_when_it_is_left() -> None:
    ended = []

    async def model(request: Request) -> AsyncIterator[Any]:
        try:
            while True:
                yield CALL
        finally:
            ended.append(request)

    async with ModelResponse(model, Request()) as response:  # type: ignore[arg-type]
        async for _ in response:
            break

    assert len(ended) == 1


async def test_what_the_model_raises_is_raised_and_what_came_stays() -> None:
    response = ModelResponse(
        ScriptedModel([stream([CALL, Usage(input_tokens=3), Fail(TransientError("gone"))])]), Request()
    )

    with pytest.raises(TransientError, match="gone"):
        async with response:
            assert [item async for item in response]

    assert (response.calls, response.usage) == ([CALL], Usage(input_tokens=3))


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


async def test_a_call_that_is_none_is_handed_on_to_fail_like_any_other() -> None:
    _, items = await solved({"calls": [5, CALL]})

    assert items == [{"_found": "5"}, CALL]


async def test_empty_is_not_silent_and_not_null() -> None:
    empties = [(await solved(answer))[0].is_empty for answer in (None, "", {}, "{}", {"output": " \n"}, stream([]))]
    others = [
        (await solved(answer))[0].is_empty
        for answer in ({"output": "NO_REPLY"}, {"calls": [], "output": None}, {"output": 0}, {"output": {}})
    ]

    assert empties == [True] * 6
    assert others == [False] * 4


async def test_a_flood_of_calls_is_cut_and_said() -> None:
    response, items = await solved({"calls": [CALL] * (MOST_CALLS + 10)})

    assert len(items) == MOST_CALLS
    assert response.problem == f"a solution has at most {MOST_CALLS} calls, the rest was left out"


async def test_usage_adds_up_and_a_price_that_is_not_known_stays_so() -> None:
    one, other = Usage("m", 1, 2, 1, 10), Usage("n", 3, 4, 0, 20)

    response, _ = await solved(stream([one, {"output": 1}, other]))

    assert response.usage == Usage("n", 4, 6, 1, 30)
    assert added(one, Usage()).cost is None


async def test_what_no_encoder_takes_is_gone_from_calls_and_output() -> None:
    response, items = await solved({"calls": [{"_tool": "a", "x": float("nan")}], "output": "\ud83d"})

    assert items[0] == {"_tool": "a", "x": None}
    assert response.output == "\ufffd"
