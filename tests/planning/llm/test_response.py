from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from planning.llm.response import MOST_EMPTY, MOST_MISFITS, AnswerFaults, Judgement, ModelResponse
from planning.ports import Request, TextDelta
from planning.prompt.prompts import EMPTY, IDLE
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


# -- one judge for both loops of requests: an agent's run and `Requests` take an answer alike


LOOK = {"_tool": "a"}
TWICE = '{"output": "a", "output": "b"}'
REMARK = "'output' is there twice"


def checked(output: Any) -> tuple[Any, str]:
    return (output, "") if output != "bad" else (None, "it is bad")


async def judged(answer: Any, faults: AnswerFaults | None = None, **more: Any) -> Judgement:
    response = ModelResponse(ScriptedModel([answer]), Request())
    async with response:
        async for _ in response:
            pass
    return (faults or AnswerFaults()).judge(response, response.output, checked, **more)


@pytest.mark.parametrize(
    ("answer", "kind", "output", "why"),
    [
        ({"output": "hi"}, "used", "hi", ""),
        ({"calls": [LOOK]}, "used", None, ""),
        ({"calls": [LOOK], "output": " "}, "used", None, ""),
        ({"output": "bad"}, "misfit", None, "it is bad"),
        ({"meta": 5, "output": "hi"}, "misfit", None, "meta is an object, found 5"),
        (TWICE, "misfit", None, REMARK),
        (None, "empty", None, EMPTY),
        ({"output": " "}, "empty", None, EMPTY),
        ({"output": None}, "idle", None, IDLE),
    ],
)
async def test_an_answer_is_used_or_the_model_is_told_why_not(answer: Any, kind: str, output: Any, why: str) -> None:
    judgement = await judged(answer)

    assert (judgement.kind, judgement.output) == (kind, output)
    assert judgement.why.startswith(why) or why in judgement.why
    assert not judgement.is_last


async def test_an_output_beside_a_remark_is_asked_for_again_once_where_there_is_a_run() -> None:
    faults = AnswerFaults()

    assert [(await judged(TWICE, faults)).kind for _ in range(2)] == ["misfit", "used"]
    assert (await judged(TWICE, is_asked_again=False)).kind == "used"


async def test_answers_of_no_use_are_counted_in_a_row_and_an_idle_one_is_as_empty() -> None:
    faults = AnswerFaults()

    assert [(await judged({"output": "bad"}, faults)).is_last for _ in range(MOST_MISFITS + 1)][-2:] == [False, True]
    assert [(await judged(answer, faults)).is_last for answer in (None, {"output": None})] == [False, MOST_EMPTY == 2]
    assert (await judged({"output": "hi"}, faults)).kind == "used"
    assert (faults.misfits, faults.empty) == (0, 0)
