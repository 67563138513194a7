"""The scripted server speaks as a real one does, well and badly: judged by OpenAI's own client and by pydantic-ai."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from spar.testing import VirtualClock
from tests.effort import hang_guard
from tests.servers.llm import LlmServer, nowhere, served
from tests.servers.llm_replies import FAULTS, TWO_CALLS, ToolCall, says, solves
from tests.servers.llm_requests import Asked, misfit

openai = pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")

ROOT = Path(__file__).parents[2]
USER = {"role": "user", "content": "go"}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@asynccontextmanager
async def client_of(url: str, **options: Any) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(base_url=url, api_key="sk", max_retries=0, timeout=5.0, **options) as client:
        yield client


async def streamed(client: Any, **options: Any) -> list[Any]:
    return [chunk async for chunk in await asked(client, stream=True, **options)]


async def asked(client: Any, **options: Any) -> Any:
    return await client.chat.completions.create(model="m", messages=[USER], **options)


async def test_text_and_calls_are_the_same_streamed_and_whole() -> None:
    calls = ToolCall("look", {"at": "the door"}), ToolCall("look", {"at": "the window"}, id="w")
    async with LlmServer(says("Let me see.", *calls, usage=(30, 10, 0))) as server, client_of(server.url) as client:
        chunks = await streamed(client, stream_options={"include_usage": True})
        whole = await asked(client)

    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    parts = [part for delta in deltas for part in delta.tool_calls or ()]
    message = whole.choices[0].message
    assert "".join(delta.content or "" for delta in deltas) == message.content == "Let me see."
    for place, call in enumerate(calls):
        own = [part for part in parts if part.index == place]
        assert (
            "".join(part.function.arguments for part in own)
            == call.text
            == message.tool_calls[place].function.arguments
        )
        assert own[0].id == message.tool_calls[place].id
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"
    assert chunks[-1].usage == whole.usage
    assert (whole.usage.prompt_tokens, whole.usage.prompt_tokens_details.cached_tokens) == (30, 10)
    assert server.connections == 1


async def test_calls_that_come_together_are_told_apart_by_their_index() -> None:
    calls = ToolCall("look", {"at": "a"}), ToolCall("look", '{"at": "b, which is further"}')
    async with LlmServer(says("", *calls, together=True, size=3)) as server, client_of(server.url) as client:
        chunks = await streamed(client)

    parts = [part for chunk in chunks if chunk.choices for part in chunk.choices[0].delta.tool_calls or ()]
    assert [part.index for part in parts[:6]] == [0, 1, 0, 1, 0, 1]
    assert "".join(part.function.arguments for part in parts if part.index == 1) == calls[1].text


async def test_pydantic_ai_reads_calls_and_usage_from_it() -> None:
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.messages import ModelRequest, ToolCallPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.tools import ToolDefinition

    tools = [ToolDefinition(name="look", parameters_json_schema={"type": "object"})]
    async with LlmServer(TWO_CALLS) as server, client_of(server.url) as client:
        model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
        parameters = ModelRequestParameters(function_tools=tools)
        request = [ModelRequest.user_text_prompt("go")]
        async with model_request_stream(model, request, model_request_parameters=parameters) as stream:
            events = [event async for event in stream]
            response = stream.get()

    assert len(events) > 10
    assert [json.loads(str(part.args))["at"] for part in response.parts if isinstance(part, ToolCallPart)] == [
        "the door",
        "the window",
    ]
    assert response.usage.input_tokens == 20
    assert server.requests[0].tools == ["look"]


async def test_tokens_come_at_the_rate_that_the_script_says(clock: VirtualClock) -> None:
    reply = says(["a"] * 100, rate=50.0, before=(0.5,))
    async with LlmServer(reply) as server, client_of(server.url) as client:
        began = clock.monotonic()
        arrived = [clock.monotonic() - began async for chunk in await asked(client, stream=True)]

    assert arrived[0] == pytest.approx(0.52, abs=0.01)
    assert arrived[100] == pytest.approx(2.52, abs=0.01)


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


async def test_a_port_where_nobody_listens_refuses() -> None:
    with nowhere() as url:
        async with client_of(url) as client:
            assert await outcome(client) == "APIConnectionError"


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


async def test_a_script_answers_in_order_and_refuses_when_it_is_over() -> None:
    async with LlmServer([says("one"), says("two")]) as server, client_of(server.url) as client:
        texts = [(await asked(client)).choices[0].message.content for _ in range(2)]
        with pytest.raises(openai.BadRequestError, match="no answer to request 3"):
            await asked(client)

    assert texts == ["one", "two"]
    assert [each.status for each in server.requests] == [200, 200, 400]


async def test_a_script_may_answer_by_what_it_is_asked_and_may_want_a_key() -> None:
    def script(asked: Asked) -> Any:
        return solves({"_tool": "look"}, output=asked.text)

    async with LlmServer(script, key="sk") as server, client_of(server.url) as client:
        answer = (await asked(client)).choices[0].message.content
        with pytest.raises(openai.AuthenticationError):
            await asked(client.with_options(api_key="another"))

    assert json.loads(answer) == {"calls": [{"_tool": "look"}], "output": "go"}


async def test_who_hangs_up_and_how_many_ask_at_once_is_on_record(clock: VirtualClock) -> None:
    async with LlmServer(says(["a"] * 100, rate=50.0)) as server, client_of(server.url) as client:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(asked(client))
        stream = await asked(client, stream=True)
        await anext(stream)
        await stream.close()
        await server.until(lambda server: server.aborted == 1)

    assert server.most_at_once == 3
    assert [each.is_aborted for each in server.requests] == [False, False, False, True]
    assert len(server.requests[3].times) < 100


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=20) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def test_a_server_on_a_thread_serves_what_is_not_async() -> None:
    with hang_guard(), served(says("hello")) as server:
        answer = post(server.url, {"model": "m", "messages": [USER]})

    assert answer["choices"][0]["message"]["content"] == "hello"
    assert server.requests[0].text == "go"


@pytest.mark.process
def test_a_server_of_its_own_reads_its_script_from_a_file(tmp_path: Path) -> None:
    script = [
        {"text": "look", "calls": [{"name": "look", "arguments": {"at": "x"}}], "rate": 1000},
        {"fault": "too long"},
    ]
    (tmp_path / "script.json").write_text(json.dumps(script))
    command = [sys.executable, "-m", "tests.servers.llm", str(tmp_path / "script.json")]
    with hang_guard(), subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            answer = post(url, {"model": "m", "messages": [USER]})
            with pytest.raises(urllib.error.HTTPError) as refused:
                post(url, {"model": "m", "messages": [USER]})
            refused.value.close()
            with urllib.request.urlopen(f"{url}/asked", timeout=20) as response:
                told = json.load(response)
        finally:
            process.terminate()

    assert json.loads(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]) == {"at": "x"}
    assert refused.value.code == 400
    assert [(each["status"], each["is_over"]) for each in told] == [(200, True), (400, True)]
