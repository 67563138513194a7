"""Settings of models: what goes over the wire to each family of providers, and what is refused before that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from itertools import pairwise
from typing import Any, Final

import pytest
from msgspec.structs import replace

from planning.llm.provider import ProviderModel
from planning.llm.provider.client import model_without_key
from planning.llm.provider.settings import ModelOptions, refusals
from planning.ports import Asked, MadeCall, Piece, Request, Turn
from planning.prompt.history import conversation
from planning.prompt.request import compose
from planning.resilience.provider_errors import ProviderError
from tests.planning.prompt.conversations import TOOLS, conversations, requests
from tests.servers.llm import LlmServer
from tests.servers.llm_replies import GOOD

ASK = Request(instructions="be brief", turns=(Turn("user", "hello"),), texts=("what now?",), models=("it",))


async def pieces(model: ProviderModel, request: Request = ASK) -> list[Piece]:
    """All that a model says; of a server that does not speak its protocol nothing."""
    said: list[Piece] = []
    try:
        async with aclosing(await model(request)) as stream:  # type: ignore[type-var]
            said.extend([piece async for piece in stream])
    except ProviderError:
        pass
    await model.aclose()
    return said


async def body_of(name: str, request: Request = ASK, **options: Any) -> dict[str, Any]:
    """The body of the request that a model of this name is sent at a server of one's own."""
    async with LlmServer(GOOD) as server:
        await pieces(ProviderModel(name, base_url=server.url, **options), request)
    return server.requests[0].body


@pytest.fixture
async def anthropic(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LlmServer]:
    """A server for the models of Anthropic."""
    pytest.importorskip("anthropic")
    async with LlmServer(GOOD) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url.removesuffix("/v1"))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        yield server


# -- OpenAI's chat completions, at a server of one's own


async def test_a_table_that_says_nothing_sends_nothing_but_the_room_for_an_answer() -> None:
    body = await body_of("qwen3")

    assert body["max_completion_tokens"] == 4_096
    assert body.keys().isdisjoint(("temperature", "reasoning_effort", "top_p"))


async def test_everything_that_a_table_says_goes_over_the_wire() -> None:
    body = await body_of("qwen3", max_tokens=500, temperature=0.3,
                         settings={"top_p": 0.9, "seed": 7, "extra_body": {"min_p": 0.1}})  # fmt: skip

    told = {key: body[key] for key in ("max_completion_tokens", "temperature", "top_p", "seed", "min_p")}
    assert told == {"max_completion_tokens": 500, "temperature": 0.3, "top_p": 0.9, "seed": 7, "min_p": 0.1}


@pytest.mark.parametrize(
    ("thinking", "effort", "most"),
    [("off", "none", 500), ("low", "low", 2_548), ("medium", "medium", 10_500), ("high", "high", 16_884)],
)
async def test_how_much_it_thinks_is_told_and_thoughts_have_room_of_their_own(
    thinking: Any, effort: str, most: int
) -> None:
    body = await body_of("qwen3", max_tokens=500, thinking=thinking)

    assert (body["reasoning_effort"], body["max_completion_tokens"]) == (effort, most)


async def test_a_request_may_say_how_much_it_thinks() -> None:
    asked = Request(texts=("what now?",), thinking="high")
    assert (await body_of("qwen3", asked, thinking="low"))["reasoning_effort"] == "high"


async def test_a_model_that_is_not_known_to_think_is_not_told_to() -> None:
    async with LlmServer(GOOD) as server:
        model = ProviderModel("qwen3", base_url=server.url)
        assert await model.refusal_of("high") == "qwen3 does not think, as far as is known"
        said = await pieces(model, Request(texts=("what now?",), thinking="high", models=("qwen3",)))

    assert "reasoning_effort" not in server.requests[0].body
    assert said[-1] == Asked("qwen3", None, None, 4_096)


async def test_how_it_was_asked_is_told_once_it_has_answered() -> None:
    async with LlmServer(GOOD) as server:
        model = ProviderModel("qwen3", base_url=server.url, thinking="low", temperature=0.3, settings={"seed": 7})
        said = await pieces(model)

    assert said[-1] == Asked("qwen3", "low", 0.3, 6_144, {"seed": 7})


# -- other families, by the environment variables that their libraries read


async def test_openais_own_models_are_told_by_the_responses_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LlmServer(GOOD) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        settings = {"openai_reasoning_summary": "concise"}
        await pieces(ProviderModel("openai:gpt-5", thinking="medium", max_tokens=700, settings=settings))
    [asked] = server.requests

    assert asked.path.endswith("/responses")
    assert asked.body["reasoning"] == {"effort": "medium", "summary": "concise"}
    assert asked.body["max_output_tokens"] == 10_700
    assert "temperature" not in asked.body


@pytest.mark.parametrize(
    ("thinking", "told", "most"),
    [
        (None, None, 600),
        ("off", None, 600),
        ("low", {"type": "enabled", "budget_tokens": 2_048}, 2_648),
        ("high", {"type": "enabled", "budget_tokens": 16_384}, 16_984),
    ],
)
async def test_anthropics_models_are_given_a_budget_for_thoughts_that_fits_into_their_answer(
    anthropic: LlmServer, thinking: Any, told: Any, most: int
) -> None:
    await pieces(ProviderModel("anthropic:claude-haiku-4-5", thinking=thinking, max_tokens=600))

    [asked] = anthropic.requests
    assert asked.path.endswith("/messages")
    assert (asked.body.get("thinking"), asked.body["max_tokens"]) == (told, most)


async def test_anthropics_models_take_a_temperature_and_settings_of_their_own(anthropic: LlmServer) -> None:
    await pieces(ProviderModel("anthropic:claude-haiku-4-5", temperature=0.2, settings={"top_k": 40}))

    [asked] = anthropic.requests
    assert (asked.body["temperature"], asked.body["top_k"]) == (0.2, 40)


# -- parts that a provider signed


THOUGHT = {"provider_name": "anthropic", "content": "I look first.", "id": None, "signature": "c2lnbmVk"}


@pytest.mark.parametrize(("name", "has_it"), [("anthropic:claude-haiku-4-5", True), ("openai-chat:gpt-4o", False)])
async def test_thoughts_go_back_to_the_provider_that_signed_them_and_to_no_other(
    monkeypatch: pytest.MonkeyPatch, name: str, has_it: bool
) -> None:
    pytest.importorskip("anthropic")
    tool = {"properties": {"_tool": {"const": "look"}, "n": {"type": "integer"}}}
    made = Turn("assistant", "", (MadeCall("1", "call_1", "look", {"n": 1}, "seen"),), (THOUGHT,))
    request = compose([], tools=[tool], activities=["look"], turns=[Turn("user", "go"), made], own=2)
    async with LlmServer(GOOD) as server:
        for variable in ("ANTHROPIC", "OPENAI"):
            monkeypatch.setenv(
                f"{variable}_BASE_URL", server.url.removesuffix("/v1" if variable == "ANTHROPIC" else "")
            )
            monkeypatch.setenv(f"{variable}_API_KEY", "k")
        await pieces(ProviderModel(name, thinking="low" if has_it else None), request)
    [asked] = server.requests

    assert (b"I look first." in asked.raw) == (b"c2lnbmVk" in asked.raw) == has_it
    assert b"seen" in asked.raw  # the same history in its form
    if has_it:
        answer = asked.body["messages"][1]["content"]
        assert [part["type"] for part in answer] == ["thinking", "tool_use"]


# -- caches


@pytest.mark.parametrize(("cache", "marks"), [(None, 3), (True, 3), (False, 0)])
async def test_anthropics_models_get_marks_behind_tools_instructions_and_the_last_message(
    anthropic: LlmServer, cache: bool | None, marks: int
) -> None:
    tool = {"properties": {"_tool": {"const": "look"}, "n": {"type": "integer"}}}
    request = compose([], tools=[tool], activities=["look"], turns=[Turn("user", "hi")], own=1, session="main/ada")
    for each in (request, replace(request, session="")):
        await pieces(ProviderModel("anthropic:claude-haiku-4-5", cache=cache), each)
    asked, alone = anthropic.requests

    body = asked.body
    marked = [body["tools"][-1], body["system"][-1] if isinstance(body["system"], list) else {}, body]
    assert sum("cache_control" in part for part in marked) == marks
    assert b"cache_control" not in alone.raw  # nobody goes on with it


@pytest.mark.parametrize(("cache", "has_key"), [(None, False), (True, True), (False, False)])
async def test_a_server_of_one_s_own_gets_the_key_of_a_session_if_it_is_to(cache: bool | None, has_key: bool) -> None:
    async with LlmServer(GOOD) as server:
        for session in ("main/ada", "main/ada", "main/bob"):
            model = ProviderModel("m", base_url=server.url, cache=cache)
            await pieces(model, Request(texts=("hi",), session=session))
    keys = [asked.body.get("prompt_cache_key") for asked in server.requests]

    assert [key is not None for key in keys] == [has_key] * 3
    assert not has_key or (keys[0] == keys[1] != keys[2] and "ada" not in keys[0])


# -- what a model does not take


@pytest.mark.parametrize(
    ("name", "wanted", "setting", "why"),
    [
        ("openai-chat:gpt-4o", {"thinking": "low"}, "thinking", "gpt-4o does not think, as far as is known"),
        ("openai:gpt-5", {"thinking": "off"}, "thinking", "gpt-5 always thinks; the least is 'low'"),
        ("openai:gpt-5", {"temperature": 0.1}, "temperature", "gpt-5 takes no temperature while it thinks"),
        ("openai:gpt-5", {"settings": {"top_p": 0.1}}, "settings.top_p", "gpt-5 takes no top_p while it thinks"),
        ("openai:gpt-5", {"settings": {"seed": 1}}, "settings.seed", "gpt-5 takes no seed"),
        (
            "openai-chat:gpt-5.1",
            {"thinking": "low", "temperature": 0.1},
            "temperature",
            "takes no temperature while it",
        ),
        ("openai-chat:gpt-4o", {"settings": {"sed": 1}}, "settings.sed", "has no setting 'sed'; known: seed"),
        ("openai-chat:gpt-4o", {"settings": {"top_p": "x"}}, "settings.top_p", "top_p is 'x': Input should be a valid"),
        ("openai-chat:gpt-4o", {"settings": {"max_tokens": 1}}, "settings.max_tokens", "write max_tokens beside it"),
        ("openai-chat:gpt-4o", {"settings": {"thinking": "low"}}, "settings.thinking", "write thinking beside it"),
        ("openai-chat:gpt-4o", {"settings": {"anthropic_thinking": {}}}, "settings.anthropic_thinking", "no setting"),
    ],
)
def test_what_a_model_does_not_take_is_found_before_it_is_asked(
    name: str, wanted: dict[str, Any], setting: str, why: str
) -> None:
    model = model_without_key(name, None)
    assert model is not None
    found = next(refusals(model, ModelOptions(**wanted)), None)

    assert found.setting == setting
    assert why in found.why


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("openai-chat:gpt-4o", {"thinking": "off", "temperature": 0.1, "settings": {"seed": 1, "top_p": 0.5}}),
        ("openai-chat:gpt-5.1", {"temperature": 0.1}),
        ("openai-chat:gpt-5.1", {"thinking": "off", "temperature": 0.1}),
        ("openai:gpt-5", {"thinking": "high", "settings": {"openai_reasoning_summary": "detailed"}}),
    ],
)
def test_what_a_model_takes_is_not_refused(name: str, wanted: dict[str, Any]) -> None:
    model = model_without_key(name, None)
    assert model is not None
    assert next(refusals(model, ModelOptions(**wanted)), None) is None


def test_a_model_whose_library_is_not_there_is_not_judged() -> None:
    assert model_without_key("bedrock:some-model", None) is None


# -- A conversation is only added to, in the form of each provider: what it was sent begins what it is sent next


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
