"""The small language model answers over the real wire. What it answers is its own affair: the protocol is judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from planning.llm.provider import ProviderModel
from planning.llm.response import ModelResponse
from planning.ports import Request, TextDelta
from planning.prompt.schema import compose_schema
from tests.servers.tiny_llm import tiny_llm

RESTART = {"type": "object", "properties": {"service": {"enum": ["nginx", "redis"]}}, "required": ["service"]}
ASKED = "Read the logs of web-1, then restart nginx."


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with tiny_llm() as url:
        yield url


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
