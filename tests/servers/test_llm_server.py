"""The scripted server refuses what a real one would not take. For its faults see tests/planning/resilience."""

from __future__ import annotations

from typing import Any

import pytest

from tests.servers.llm import LlmServer
from tests.servers.llm_replies import says
from tests.servers.llm_requests import misfit

openai = pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")

USER = {"role": "user", "content": "go"}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


async def test_what_a_real_server_would_not_take_is_refused_and_recorded() -> None:
    async with (
        LlmServer(says("hello")) as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="sk", max_retries=0, timeout=5.0) as client,
    ):
        with pytest.raises(openai.BadRequestError, match="must follow a message with 'tool_calls'"):
            await client.chat.completions.create(
                model="m", messages=[USER, {"role": "tool", "tool_call_id": "x", "content": "1"}]
            )

    assert [asked.status for asked in server.requests] == [400]


CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "look"}}]}
OPEN = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {}}}}, "required": ["a"]}

STRICT = {"function": {"name": "a", "parameters": OPEN, "strict": True}}
UNNAMED = {"type": "json_schema", "json_schema": {"schema": {}}}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"messages": [USER]}, "model"),
        ({"model": "m", "messages": []}, "empty array"),
        ({"model": "m", "messages": [CALLED, USER]}, "without a response message: ['a']"),
        ({"model": "m", "messages": [CALLED]}, "without a response message: ['a']"),
        ({"model": "m", "messages": [{"role": "robot"}]}, "'robot'"),
        ({"model": "m", "messages": [{"role": "user"}]}, "got null"),
        ({"model": "m", "messages": [USER], "tools": [{"function": {"name": "a.b"}}]}, "pattern"),
        ({"model": "m", "messages": [USER], "tools": [{"function": {"name": "a", "parameters": {}}}]}, ""),
        ({"model": "m", "messages": [USER], "tools": [STRICT]}, "additionalProperties"),
        ({"model": "m", "messages": [USER], "response_format": UNNAMED}, "response_format.json_schema.name"),
    ],
)  # fmt: skip
def test_a_request_that_breaks_a_rule_is_told_which(body: dict[str, Any], why: str) -> None:
    found = misfit(body)

    assert why in found
    assert bool(found) == bool(why)


async def test_a_conversation_whose_calls_have_their_results_is_taken() -> None:
    result = {"role": "tool", "tool_call_id": "a", "content": "1"}

    assert misfit({"model": "m", "messages": [USER, CALLED, result, USER], "tools": [LOOK]}) == ""
