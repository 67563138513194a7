"""A conversation is only added to, in the form of each provider: what it was sent begins what it is sent next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import pytest

from planning.llm.provider import ProviderModel
from planning.ports import Request, Turn
from planning.prompt.history import conversation
from planning.prompt.request import compose
from planning.resilience.provider_errors import ProviderError
from tests.planning.prompt.conversations import TOOLS, conversations, requests
from tests.servers.llm import LlmServer
from tests.servers.llm_replies import GOOD

#: By the name of a model: the library of its provider, its variables, and the key of its messages on the wire.
PROVIDERS: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "openai-chat:gpt-4o": ("openai", "OPENAI_BASE_URL", "OPENAI_API_KEY", "messages"),
    "anthropic:claude-haiku-4-5": ("anthropic", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "messages"),
    "google:gemini-2.5-flash": ("google.genai", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_API_KEY", "contents"),
}


def growing(about: str) -> Iterator[Request]:
    """Yield the requests of a conversation: one before each turn of the model, and the last one."""
    entries = conversations()[about].entries
    texts = {entry.body["id"]: entry.body["text"] for entry in entries if entry.kind == "user"}
    for number, entry in enumerate(entries):
        if entry.kind != "turn":
            continue
        additions = entry.body["additions"]
        ids = {id for addition in additions for id in addition.get("messages", ())}
        past = [one for one in entries[:number] if one.body.get("id") not in ids]
        new = [Turn("context", "\n\n".join(addition["blocks"])) if "blocks" in addition
               else Turn("user", texts[addition["messages"][0]]) for addition in additions]  # fmt: skip
        yield compose([], tools=TOOLS, activities=["look", "order"], turns=[*conversation(past).turns, *new],
                      own=len(new), session="a/b")  # fmt: skip
    yield requests()[about]


def unmarked(value: Any) -> Any:
    """Return a part of a request without the marks for the cache, which move to its end."""
    if isinstance(value, dict):
        return {key: unmarked(inner) for key, inner in value.items() if key != "cache_control"}
    return [unmarked(inner) for inner in value] if isinstance(value, list) else value


def parts_of(messages: list[Any]) -> list[Any]:
    """Return the parts of messages, each with its role: a message that is the last one may get more of them."""
    return [
        (message["role"], part)
        for message in messages
        for content in [message.get("parts", message.get("content"))]
        for part in (content if isinstance(content, list) else [message])
    ]


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("about", conversations())
async def test_each_request_on_the_wire_begins_with_the_one_before(
    name: str, about: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, url, key, messages = PROVIDERS[name]
    pytest.importorskip(library, reason="the library of the provider is not installed")
    async with LlmServer(GOOD) as server:
        monkeypatch.setenv(url, server.url if library == "openai" else server.url.removesuffix("/v1"))
        monkeypatch.setenv(key, "k")
        model = ProviderModel(name)
        for request in growing(about):
            try:
                async for _ in await model(request):
                    pass
            except ProviderError:
                pass  # the server speaks one protocol alone
        await model.aclose()
        bodies = [unmarked(asked.body) for asked in server.requests]

    assert len(bodies) > 1
    for former, later in pairwise(bodies):
        assert {**former, messages: ()} == {**later, messages: ()}
        one, other = parts_of(former[messages]), parts_of(later[messages])
        assert other[: len(one)] == one
        assert len(other) > len(one)
