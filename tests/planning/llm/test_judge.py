"""One judge for both loops of requests: an agent's run and `Requests` take an answer alike."""

from __future__ import annotations

from typing import Any

import pytest

from planning.llm.judge import MOST_EMPTY, MOST_MISFITS, AnswerFaults, Judgement
from planning.llm.loop import Requests
from planning.llm.response import ModelResponse
from planning.ports import Request
from planning.prompt.prompts import EMPTY, IDLE
from spar.testing import ScriptedModel

CALL = {"_tool": "a"}
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
        ({"calls": [CALL]}, "used", None, ""),
        ({"calls": [CALL], "output": " "}, "used", None, ""),
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


async def test_the_loop_of_a_program_asks_again_for_an_output_beside_a_remark() -> None:
    model = ScriptedModel([TWICE, {"output": "hi"}])

    answered = await Requests(model, verify_output=False).run()

    assert (answered.output, answered.requests) == ("hi", 2)
    told = [message["data"]["error"] for message in model.requests[1].context if message.get("kind") == "error"]
    assert [(error["kind"], REMARK in error["message"]) for error in told] == [("bad_solution", True)]
