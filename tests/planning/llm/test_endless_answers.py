"""An answer is read no further than it can be used, and what was not taken of it is told to the model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import chain, repeat
from typing import Any

import pytest

from planning import Requests
from planning.llm.planner import ModelPlanner
from planning.llm.provider.native_tools import Calls, NativeFunction
from planning.llm.response import MOST_CALLS, ModelResponse
from planning.llm.streaming_json import LONGEST
from planning.ports import Request, TextDelta
from spar import Agent, tool
from spar.testing import ScriptedModel
from tests.planning.desk import read_of


class Endless:
    """A model whose answer begins with `head` and goes on with `piece` until it is closed."""

    def __init__(self, head: Any, piece: Any) -> None:
        self.pieces = chain([head], repeat(piece))
        self.read = 0
        self.is_closed = False

    def __call__(self, request: Request) -> AsyncIterator[Any]:
        return self._answer()

    async def _answer(self) -> AsyncIterator[Any]:
        try:
            for piece in self.pieces:
                self.read += 1
                assert self.read <= 10_000, "it is read for ever"
                yield piece
        finally:
            self.is_closed = True


@pytest.mark.parametrize(
    ("head", "piece", "most"),
    [
        ('{"calls": [', '{"_tool": "x", "a": 1},', MOST_CALLS + 2),
        ('{"output": "', "word " * 2_000, LONGEST // 10_000 + 2),
        ("<think>", "hm " * 2_000, LONGEST // 6_000 + 2),
        ('{"calls": [{"_tool" "x"}', "and so on", 1),
        ('{"output": "done"}', " and another thing", 2),
        ('{"output": "done"}', " \n" * 5_000, LONGEST // 10_000 + 2),
        ({"_tool": "x"}, {"_tool": "x"}, MOST_CALLS + 1),
        (TextDelta("a"), TextDelta("word " * 2_000), LONGEST // 10_000 + 2),
        (5, 5, 1),
    ],
    ids=["calls", "text", "thoughts", "no JSON", "prose behind", "blanks behind", "functions", "told", "junk"],
)
async def test_an_answer_without_end_is_left_once_nothing_more_of_it_can_be_used(
    head: Any, piece: Any, most: int
) -> None:
    model = Endless(head, piece)

    async with ModelResponse(model, Request()) as response:
        async for _ in response:
            pass

    assert model.is_closed
    assert model.read <= most
    assert response.problem or response.remark


async def test_no_more_is_read_than_calls_are_allowed() -> None:
    model = Endless('{"calls": [', '{"_tool": "x", "a": 1},')

    answered = await Requests(model, tools=[], max_calls=7).run([])

    assert answered.reason == "max_calls"
    assert model.is_closed
    assert model.read == 9


@pytest.mark.parametrize("pieces", [["{}", "```\n"], ["```json\n{}\n", "```"], ["{}", " \n\n"]])
async def test_blanks_and_the_end_of_a_fence_behind_a_solution_are_nothing(pieces: list[str]) -> None:
    async def answer(request: Request) -> AsyncIterator[str]:
        for piece in pieces:
            yield piece

    async with ModelResponse(answer, Request()) as response:  # type: ignore[arg-type]
        async for _ in response:
            pass

    assert (response.problem, response.remark) == ("", "")


# -- what was not taken

TWICE = '{"_tool": "number", "n": 1, "n": 2}'
NAN = '{"_tool": "number", "n": NaN}'
LARGE = '{"_tool": "number", "n": 1e999}'
ONE = '{"_tool": "number", "n": 1}'


async def as_text(wires: list[str]) -> list[dict[str, Any]]:
    async with ModelResponse(ScriptedModel([f'{{"calls": [{", ".join(wires)}]}}']), Request()) as response:
        return [item async for item in response if not isinstance(item, TextDelta)]


async def as_functions(wires: list[str]) -> list[dict[str, Any]]:
    calls = Calls([NativeFunction("number", "number", "", {})])
    for index, wire in enumerate(wires):
        calls.take(index, "number", wire.replace('"_tool": "number", ', ""))
    return [dict(call) for call in calls.ready(is_over=True)]


@pytest.mark.parametrize("read", [as_text, as_functions])
async def test_both_modes_refuse_the_same_calls_and_say_why(read: Callable[[list[str]], Any]) -> None:
    good, *bad = await read([ONE, TWICE, NAN, LARGE])

    assert good == {"_tool": "number", "n": 1}
    assert [set(call) for call in bad] == [{"_tool", "_bad"}] * 3
    for call, why in zip(bad, ("the key 'n' is there twice", "NaN is no JSON", "the number 1e999 is"), strict=True):
        assert why in call["_bad"]


@pytest.mark.parametrize(
    ("text", "ran", "why"),
    [
        (f'{{"calls": [{NAN}]}}', [], "NaN is no JSON"),
        (f'{{"calls": [{TWICE}]}}', [], "is there twice"),
        (f"[{ONE}, {TWICE}]", [1], "there is more behind the solution"),
        (f'{{"calls": [{ONE}]}} {{"calls": [{ONE}]}}', [1], "there is more behind the solution"),
        (f'{{"calls": [{ONE}], "meta": {{"a": 1, "a": 2}}}}', [1], "the key 'a' is there twice"),
        (f'{{"calls": [{ONE}], "output": null, "output": null}}', [1], "'output' is there twice"),
    ],
)
@pytest.mark.parametrize("driver", ["requests", "agent"])
async def test_what_was_not_taken_of_an_answer_is_told_to_the_model(
    text: str, ran: list[int], why: str, driver: str
) -> None:
    done: list[Any] = []

    @tool(effect="read")
    async def number(n: int) -> int:
        done.append(n)
        return n

    model = ScriptedModel([text, {"output": "done"}])
    if driver == "requests":
        answered = await Requests(model, tools=[number]).run([])
        assert [why in each["error"]["message"] for each in answered.errors] == [True]
    else:
        async with Agent(plan=ModelPlanner(model), tools=[number], loop_interval="off") as agent:
            answered = await agent.wait((await agent.submit("go")).run_id, 10)  # type: ignore[assignment]

    assert done == ran
    assert answered.output == "done"
    assert why in read_of(model.requests[1])


@pytest.mark.parametrize("driver", ["requests", "agent"])
async def test_an_output_with_more_behind_it_is_asked_for_once_again_and_then_stands(driver: str) -> None:
    said = '{"calls": [], "output": "done"} Hope this helps!'
    model = ScriptedModel([said, said])
    if driver == "requests":
        output = (await Requests(model, tools=[]).run([])).output
    else:
        async with Agent(plan=ModelPlanner(model), loop_interval="off") as agent:
            output = (await agent.wait((await agent.submit("go")).run_id, 10)).output

    assert output == "done"
    assert len(model.requests) == 2
    assert "Hope this helps" in read_of(model.requests[1])
