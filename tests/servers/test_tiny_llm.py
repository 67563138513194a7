"""The small language model answers over the real wire. What it answers is its own affair: the protocol is judged."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from planning.llm.provider import ProviderModel
from planning.llm.response import ModelResponse
from planning.ports import Request, TextDelta
from planning.prompt.schema import compose_schema
from tests.servers.tiny_llm import tiny_llm
from tests.servers.tiny_llm_schema import CallReader, bounded, calls_schema

LOGS = {
    "type": "object",
    "properties": {"host": {"type": "string"}, "lines": {"type": "integer"}},
    "required": ["host", "lines"],
}
RESTART = {"type": "object", "properties": {"service": {"enum": ["nginx", "redis"]}}, "required": ["service"]}
ASKED = "Read the logs of web-1, then restart nginx."


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with tiny_llm() as url:
        yield url


@pytest.mark.process
async def test_calls_of_the_model_are_streamed_through_pydantic_ai_and_fit_their_schemas(url: str) -> None:
    pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.messages import ModelRequest, PartDeltaEvent, ToolCallPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(name="get_logs", description="Read the log of a host", parameters_json_schema=LOGS),
        ToolDefinition(name="restart", description="Restart a service", parameters_json_schema=RESTART),
    ]
    provider = OpenAIProvider(base_url=url, api_key="none")
    async with provider.client:
        model = OpenAIChatModel("smollm2-135m", provider=provider)
        parameters = ModelRequestParameters(function_tools=tools, allow_text_output=False)
        request = [ModelRequest.user_text_prompt(ASKED)]
        async with model_request_stream(model, request, model_request_parameters=parameters) as stream:
            events = [event async for event in stream]
            response = stream.get()

    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    assert 1 <= len(calls) == len(response.parts) <= 2
    assert len({call.tool_call_id for call in calls}) == len(calls)
    for call in calls:
        given = call.args_as_dict()
        assert set(given) == ({"host", "lines"} if call.tool_name == "get_logs" else {"service"})
    assert sum(isinstance(event, PartDeltaEvent) for event in events) > 5
    assert response.usage.output_tokens > 5
    assert response.finish_reason == "tool_call"


@pytest.mark.process
async def test_an_answer_in_json_fits_the_schema_that_was_given(url: str) -> None:
    openai = pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")
    service = {"enum": ["nginx", "redis"]}
    schema = {
        "type": "object",
        "properties": {
            "calls": {"type": "array", "items": {"$ref": "#/$defs/call"}},
            "output": {"type": ["string", "null"]},
        },
        "required": ["calls", "output"],
        "$defs": {"call": {"type": "object", "properties": {"service": service}, "required": ["service"]}},
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "solution", "schema": schema}}
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        answer = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": ASKED}], response_format=wanted
        )

    solution = json.loads(answer.choices[0].message.content)
    assert set(solution) == {"calls", "output"}
    assert all(call["service"] in service["enum"] for call in solution["calls"])


@pytest.mark.process
@pytest.mark.parametrize("mode", ["native", "structured"])
async def test_the_model_layer_reads_calls_text_and_usage_of_it(url: str, mode: Any) -> None:
    pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")
    restart = {**RESTART, "properties": {"_tool": {"const": "restart"}, **RESTART["properties"]}}  # type: ignore[dict-item]
    request = Request(schema=compose_schema([restart], activities=["restart"]), texts=(ASKED,), max_tokens=200)
    model = ProviderModel("smollm2-135m", base_url=url, mode=mode)
    try:
        async with ModelResponse(model, request) as response:
            items = [item async for item in response]
    finally:
        await model.aclose()

    calls = [item for item in items if not isinstance(item, TextDelta)]
    assert calls == response.calls
    assert all(call["_tool"] == "restart" and call["service"] in ("nginx", "redis") for call in calls)
    assert calls or response.output is not None or response.is_empty
    assert response.usage is not None
    assert response.usage.output_tokens > 0


@pytest.mark.process
async def test_the_model_goes_on_after_somebody_hung_up_and_refuses_what_is_too_long(url: str) -> None:
    openai = pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        ask: Any = client.chat.completions.create
        stream = await ask(model="m", messages=[{"role": "user", "content": "Count to 1000."}], stream=True)
        await anext(stream)
        await stream.close()
        answer = await ask(model="m", messages=[{"role": "user", "content": "Say hello."}], max_tokens=5)
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(model="m", messages=[{"role": "user", "content": "word " * 9000}])

    assert answer.choices[0].message.content
    assert refused.value.code == "context_length_exceeded"


CALLS = [
    {"name": "look", "arguments": {"at": 'a "}]{[" in it\\', "deep": [{"x": {}}]}},
    {"name": "go", "arguments": {}},
]


@pytest.mark.parametrize("seed", range(20))
def test_calls_are_read_from_growing_json_however_it_is_split(seed: int) -> None:
    text, pick = json.dumps({"calls": CALLS}, indent=seed % 3 or None), random.Random(seed)
    reader, names, arguments = CallReader(), dict[int, str](), dict[int, str]()
    while text:
        size = pick.randint(1, 9)
        for number, name, piece in reader.read(text[:size]):
            if name is not None:
                names[number] = name
            arguments[number] = arguments.get(number, "") + piece
        text = text[size:]

    assert names == {0: "look", 1: "go"}
    assert [json.loads(arguments[number]) for number in names] == [call["arguments"] for call in CALLS]


NEXT = {"$ref": "#/$defs/node"}


def test_what_the_model_is_held_to_has_no_string_list_or_number_without_end() -> None:
    schema = {
        "$defs": {"node": {"type": "object", "properties": {"next": NEXT}, "required": ["next"]}},
        "properties": {
            "text": {"type": "string", "pattern": "^a+$"},
            "list": {"type": "array"},
            "node": {"$ref": "#/$defs/node"},
            "_after": {"type": "array"},
        },
        "required": ["text", "list", "node"],
    }

    found = bounded(schema)

    text = {"type": "string", "maxLength": 60}
    assert found["properties"]["text"] == text
    assert found["properties"]["list"] == {"type": "array", "items": text, "maxItems": 2}
    assert found["required"] == ["text", "list", "node"]
    assert found["additionalProperties"] is False
    assert "$ref" not in json.dumps(found)
    assert bounded({"type": ["integer", "null"]}) == {"anyOf": [{"maximum": 9999, "type": "integer"}, {"type": "null"}]}
    assert calls_schema([{"name": "a"}], 2)["properties"]["calls"]["maxItems"] == 2
