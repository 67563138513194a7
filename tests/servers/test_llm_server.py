"""The scripted server speaks as a real one does, well and badly: judged by OpenAI's own client and by pydantic-ai."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from spar.testing import VirtualClock
from tests.servers.llm import LlmServer
from tests.servers.llm_replies import FAULTS, says
from tests.servers.llm_requests import misfit

openai = pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")

USER = {"role": "user", "content": "go"}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@asynccontextmanager
async def client_of(url: str, **options: Any) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(base_url=url, api_key="sk", max_retries=0, timeout=5.0, **options) as client:
        yield client


async def asked(client: Any, **options: Any) -> Any:
    return await client.chat.completions.create(model="m", messages=[USER], **options)


OUTCOMES = {
    "limited": "RateLimitError",
    "quota": "RateLimitError",
    "payment": "APIStatusError",
    "key": "AuthenticationError",
    "forbidden": "PermissionDeniedError",
    "no such model": "NotFoundError",
    "too long": "BadRequestError",
    "unfit": "BadRequestError",
    "filtered before": "BadRequestError",
    "broken": "InternalServerError",
    "gateway": "InternalServerError",
    "unavailable": "InternalServerError",
    "overloaded": "InternalServerError",
    "reset before": "APIConnectionError",
    "closed before": "APIConnectionError",
    "silent before": "APITimeoutError",
    "silent after headers": "APITimeoutError",
    "silent in the middle": "APITimeoutError",
    "reset in the middle": "APIConnectionError",
    "closed in the middle": "APIConnectionError",
    "garbage": "JSONDecodeError",
    "no UTF-8": "UnicodeDecodeError",
    "an error in the stream": "APIError",
    "comments only": "no end",
    "byte by byte": "no end",
    "endless": "no end",
    "filtered": "content_filter",
    "too many tokens": "length",
    "nothing said": "stop",
    "unfit arguments": "tool_calls",
    "garbage lines": "JSONDecodeError",
    "garbage for an answer": "nothing",
    "empty": "nothing",
    "truncated": "no reason",
    "truncated in a call": "no reason",
}


async def outcome(client: Any) -> str:
    """What a client sees: the name of what it raises, the reason why it is over, or that it never is."""
    chunks: list[Any] = []
    try:
        async with asyncio.timeout(20):
            async for chunk in await asked(client, stream=True):
                chunks.append(chunk)  # noqa: PERF401 - what came before the error counts
    except TimeoutError:
        return "no end"
    except Exception as error:
        return type(error).__name__
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    return (reasons[-1] or "no reason") if reasons else "nothing"


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_on_the_wire_what_its_name_says(clock: VirtualClock, name: str) -> None:
    async with LlmServer(FAULTS[name]) as server, client_of(server.url) as client:
        found = await outcome(client)
        await server.until(lambda server: server.requests[0].is_over)

    assert found == OUTCOMES[name.partition(",")[0]]
    assert server.requests[0].is_aborted == (found in ("no end", "APITimeoutError"))


async def test_what_a_real_server_would_not_take_is_refused_and_recorded() -> None:
    async with LlmServer(says("hello")) as server, client_of(server.url) as client:
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
