from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from itertools import repeat
from typing import Any

import pytest
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from planning.llm.planner import ModelPlanner
from planning.llm.provider import ProviderModel
from planning.llm.provider.messages import messages_of
from planning.llm.provider.native_tools import native_functions
from planning.ports import MadeCall, Piece, Request, TextDelta, ThoughtDelta, Turn, Usage
from planning.resilience.provider_errors import ProviderError
from spar.clock import Clock
from spar.errors import ConfigError
from spar.testing import VirtualClock
from tests.servers.llm import LlmServer, nowhere
from tests.servers.llm_replies import FAULTS, GOOD, TWO_CALLS, Reply, refuses, says, solves

LOOK: dict[str, Any] = {
    "type": "object",
    "properties": {"_tool": {"const": "look.at"}, "at": {"type": "string"}},
    "required": ["_tool", "at"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"calls": {"type": "array", "items": {"anyOf": [LOOK]}}, "output": {"type": ["string", "null"]}},
}
ASK = Request(schema=SCHEMA, instructions="be brief", texts=("what now?",))

Script = Callable[[list[ModelMessage], AgentInfo], AsyncIterator[Any]]


def model(script: Script, clock: Clock | None = None, **options: Any) -> ProviderModel:
    return ProviderModel(FunctionModel(stream_function=script, model_name="it"), clock=clock, **options)


def scripted(*pieces: Any) -> Script:
    """Hands these out; a number is so many seconds of nothing."""

    async def play(messages: list[ModelMessage], told: AgentInfo) -> AsyncIterator[Any]:
        for piece in pieces:
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            else:
                yield piece

    return play


def listening(seen: list[Any], says: str = "ok") -> Script:
    """Says this, and writes down the messages and the functions that it is told."""

    async def play(messages: list[ModelMessage], told: AgentInfo) -> AsyncIterator[Any]:
        seen.append((messages, told))
        yield says

    return play


def call(number: int, name: str | None = None, arguments: str | None = None) -> dict[int, DeltaToolCall]:
    return {number: DeltaToolCall(name=name, json_args=arguments, tool_call_id=f"c{number}")}


async def said(asked: ProviderModel, request: Request = ASK) -> list[Piece]:
    """All that it says but what it took."""
    pieces: list[Piece] = [piece async for piece in await asked(request) if not isinstance(piece, Usage)]
    await asked.aclose()
    return pieces


async def fault_of(asked: ProviderModel, request: Request = ASK) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await said(asked, request)
    await asked.aclose()
    return caught.value


# -- calls and text


async def test_the_last_call_is_handed_out_before_the_stream_ends() -> None:
    going_on = asyncio.Event()

    async def play(messages: list[ModelMessage], told: AgentInfo) -> AsyncIterator[Any]:
        yield call(0, told.function_tools[0].name, '{"at": "the')
        yield call(0, None, ' door"}')
        await going_on.wait()

    async with aclosing(await model(play)(ASK)) as pieces:  # type: ignore[type-var]
        assert await anext(pieces) == {"_tool": "look.at", "at": "the door"}
        going_on.set()
        assert [type(piece) async for piece in pieces] == [Usage]


async def test_an_answer_with_a_schema_is_given_by_a_function() -> None:
    request = Request(schema=SCHEMA, answer={"type": "integer"}, texts=("how many?",))

    assert await said(model(scripted(call(0, "answer", '{"output": 3}'))), request) == [{"output": 3}]


async def test_arguments_that_were_never_finished_are_a_call_that_says_so() -> None:
    (piece,) = await said(model(scripted(call(0, "look_at", '{"at": '))))

    assert isinstance(piece, dict)
    assert piece["_tool"] == "look.at"
    assert "no JSON object" in piece["_bad"]


async def test_thoughts_are_told_apart_from_the_answer() -> None:
    thought = {0: DeltaThinkingPart(content="hm")}

    assert await said(model(scripted(thought, call(1, "look_at", "{}")))) == [ThoughtDelta("hm"), {"_tool": "look.at"}]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thoughts_of_an_openai_compatible_server_are_told_apart(field: str) -> None:
    thinking: list[Any] = [{"delta": {field: "Let me "}}, {"delta": {field: "see."}}]
    async with LlmServer(says("It is 3").broken(1, *thinking)) as server:
        pieces = await said(ProviderModel("tiny", base_url=server.url))

    assert [each.text for each in pieces if isinstance(each, ThoughtDelta)] == ["Let me ", "see."]
    assert pieces[-1] == {"output": "It is 3"}


async def test_thoughts_between_tags_in_the_text_are_told_apart() -> None:
    async with LlmServer(says(["<think>", "Let me ", "see.", "</think>", "It is", " 3"])) as server:
        pieces = await said(ProviderModel("tiny", base_url=server.url))

    assert "".join(each.text for each in pieces if isinstance(each, ThoughtDelta)) == "Let me see."
    assert pieces[-1] == {"output": "It is 3"}


async def test_text_beside_calls_of_an_earlier_step_is_sent_before_them() -> None:
    seen: list[Any] = []
    made = MadeCall("1", "", "look.at", {"at": "door"}, '{"output":"shut"}')
    history = (Turn("user", "look at it"), Turn("assistant", "I look first.", (made,)), Turn("assistant", "", (made,)))
    await said(model(listening(seen, "done")), Request(schema=ASK.schema, history=history, texts=("…",)))

    answers = [[type(part).__name__ for part in each.parts] for each in seen[0][0] if isinstance(each, ModelResponse)]
    assert answers == [["TextPart", "ToolCallPart"], ["ToolCallPart"]]


async def test_a_conversation_is_sent_as_one() -> None:
    seen: list[Any] = []
    turns = (Turn("user", "hi"), Turn("assistant", "hello"), Turn("user", "are you there?"))
    await said(model(listening(seen)), Request(turns=turns, texts=("a", "b")))

    first, second, third = seen[0][0]
    assert isinstance(first, ModelRequest)
    assert isinstance(second, ModelResponse)
    assert isinstance(third, ModelRequest)
    assert [getattr(part, "content", "") for part in third.parts] == ["are you there?\n\na\n\nb"]


async def test_without_texts_the_context_is_what_it_reads_and_without_either_it_is_told_to_go_on() -> None:
    seen: list[Any] = []
    await said(model(listening(seen)), Request(context=({"type": "state", "state": {"door": "ajar"}},)))
    await said(model(listening(seen)), Request())

    assert "ajar" in str(seen[0][0])
    assert "Go on." in str(seen[1][0])


# -- the solution as text


async def test_a_solution_may_be_asked_for_as_text() -> None:
    solution = solves({"_tool": "look.at", "at": "x"}, output="done")
    async with LlmServer(solution) as server:
        pieces = await said(ProviderModel("tiny", base_url=server.url, mode="structured"))

    assert "".join(map(str, pieces)) == '{"calls": [{"_tool": "look.at", "at": "x"}], "output": "done"}'
    asked = server.requests[0].body
    assert asked["response_format"]["json_schema"]["schema"]["properties"].keys() == {"calls", "output"}
    assert "tools" not in asked


async def test_a_model_that_takes_no_schema_finds_it_among_its_instructions() -> None:
    seen: list[Any] = []
    plain = FunctionModel(
        stream_function=listening(seen, "{}"), model_name="it", profile={"supports_json_schema_output": False}
    )
    assert await said(ProviderModel(plain, mode="structured")) == ["{}"]
    assert '"look.at"' in (seen[0][1].instructions or "")


@pytest.mark.parametrize(
    ("request_", "is_text"),
    [
        (ASK, False),
        (Request(schema={"properties": {"output": {"type": "integer"}}}, answer={"type": "integer"}), True),
        (Request(schema={"properties": {"meta": {}, **SCHEMA["properties"]}}), True),
        (Request(), False),
    ],
    ids=["calls", "an answer alone", "meta", "anything"],
)
async def test_the_mode_follows_from_what_is_asked_for(request_: Request, is_text: bool) -> None:
    first = (await said(model(scripted("x")), request_))[0]

    assert first == ("x" if is_text else TextDelta("x"))


@pytest.mark.parametrize("sees", [True, False])
async def test_a_model_that_sees_is_shown_the_images_of_results_as_parts(sees: bool) -> None:
    seen: list[Any] = []
    image = {"type": "image", "mimeType": "image/png", "data": b64encode(b"picture").decode()}
    bad = {"type": "image", "mimeType": "image/png", "data": "no base64!"}
    context = ({"type": "state", "state": {"shot": [image, bad]}},)
    asked = FunctionModel(
        stream_function=listening(seen, "{}"), model_name="it", profile={"supports_image_input": sees}
    )
    await said(ProviderModel(asked), Request(schema=SCHEMA, context=context))

    contents = [part.content for message in seen[0][0] for part in message.parts if isinstance(part, UserPromptPart)]
    pictures = [each.data for content in contents if not isinstance(content, str) for each in content
                if isinstance(each, BinaryContent)]  # fmt: skip
    assert pictures == ([b"picture"] if sees else [])
    assert "[image image/png, 7 bytes]" in str(contents[0])
    assert image["data"] not in str(contents[0])


# -- what may not be


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ((121.0, "late"), "silent"),
        (("", *([5.0, ""] * 100)), "silent"),
        (("a", 61.0, "b"), "idle"),
        (("a", *([5.0, ""] * 100)), "idle"),
        (("a", 50.0) * 20, "endless"),
    ],
    ids=["nothing", "nothing but keep-alives", "nothing more", "nothing more but keep-alives", "an end"],
)
async def test_a_provider_that_brings_nothing_is_left(pieces: tuple[Any, ...], kind: str) -> None:
    assert (await fault_of(model(scripted(*pieces), VirtualClock()))).kind == kind


async def test_a_slow_answer_that_goes_on_is_waited_for() -> None:
    pieces = await said(model(scripted(100.0, "a", *([50.0, "b"] * 9)), VirtualClock()))

    assert pieces[-1] == {"output": "a" + "b" * 9}


async def test_thinking_is_not_silence() -> None:
    thoughts = [part for _ in range(9) for part in ({0: DeltaThinkingPart(content="hm")}, 50.0)]
    assert (await said(model(scripted(*thoughts, "x"), VirtualClock())))[-1] == {"output": "x"}


async def test_the_time_that_its_reader_takes_is_not_the_provider_s() -> None:
    clock = VirtualClock()
    async with aclosing(await model(scripted("a", 50.0, "b", 50.0, "c"), clock)(ASK)) as pieces:  # type: ignore[type-var]
        told = []
        async for piece in pieces:
            told.append(piece)
            await clock.sleep(1_000.0)

    assert told[:3] == [TextDelta("a"), TextDelta("b"), TextDelta("c")]


async def test_an_answer_has_a_greatest_length_and_number_of_calls() -> None:
    long = model(scripted(*["x" * 100] * 100), max_chars=1_000)
    many = model(scripted(*[call(number, "look_at", "{}") for number in range(50)]), max_calls=5)

    assert (await fault_of(long)).kind == "endless"
    assert (await fault_of(many)).kind == "endless"


@pytest.mark.parametrize("status", [200, 500])
async def test_bytes_that_never_become_an_event_have_an_end(status: int) -> None:
    async with LlmServer(Reply(repeat(b"x" * 65_536), status=status)) as server:
        error = await fault_of(ProviderModel("tiny", base_url=server.url, max_chars=1_000))

    assert error.kind == "endless"
    assert "100000 bytes" in str(error)


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    with nowhere() as url:
        assert (await fault_of(ProviderModel("tiny", base_url=url))).kind == "unreachable"


async def test_what_was_used_is_told_before_an_answer_that_ended_badly() -> None:
    async with LlmServer(FAULTS["too many tokens"]) as server:
        asked = ProviderModel("tiny", base_url=server.url)
        used: list[Piece] = []
        with pytest.raises(ProviderError):  # noqa: PT012
            async for piece in await asked(ASK):
                used.append(piece)  # noqa: PERF401
        await asked.aclose()

    assert isinstance(used[-1], Usage)


# -- keys, prices, options


async def test_the_key_comes_from_the_environment_and_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPAR_TEST_KEY", "sk-very-secret")
    refusing = refuses(401, "invalid_api_key", "Incorrect API key provided: sk-very-secret")
    async with LlmServer([GOOD, refusing], key="sk-very-secret") as server:
        asked = ProviderModel("tiny", base_url=server.url, key_env="SPAR_TEST_KEY")
        assert (await said(asked))[-1] == {"output": "all is well, nothing more is to be done today"}
        error = await fault_of(asked)

    assert error.kind == "auth"
    assert "very-secret" not in f"{error}{error.__cause__}{error.__dict__}"
    assert error.__suppress_context__


async def test_what_it_took_is_told_with_its_price() -> None:
    prices = {"input": 2.0, "output": 10.0, "cached": 0.5}
    async with LlmServer(TWO_CALLS) as server:
        asked = ProviderModel("tiny", base_url=server.url, prices=prices)
        *_, used = [piece async for piece in await asked(ASK)]
        most = await asked.most(ASK)
        await asked.aclose()

    assert used == Usage("tiny", 20, 12, 0, cost=160, answered_as="tiny", finish="tool_call")
    assert most["requests"] == 1
    assert most["tokens"] is not None
    assert most["money"] == (most["tokens"] - 4_096) * 2 + 40_960


async def test_a_known_model_has_a_known_price_and_an_unknown_one_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPAR_TEST_KEY", "k")
    known = ProviderModel("openai:gpt-5", key_env="SPAR_TEST_KEY")
    unknown = ProviderModel("tiny", base_url="http://192.0.2.1:9/v1")
    own = ProviderModel("tiny", base_url="http://127.0.0.1:9/v1")

    assert ((await known.most(ASK))["money"] or 0) > 0
    assert (await unknown.most(ASK))["money"] is None
    assert (await own.most(ASK))["money"] == 0  # a server on this machine is paid for
    for model in (known, unknown, own):
        await model.aclose()


async def test_a_model_without_a_provider_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="'nonsense' names no provider: write one such as 'openai:gpt-5'"):
        ProviderModel("nonsense")
    ProviderModel("nonsense", base_url="http://127.0.0.1:1/v1")


async def test_a_key_that_is_empty_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with pytest.raises(ConfigError, match="model 'openai:gpt-5' cannot be used: Missing credentials"):
        await ProviderModel("openai:gpt-5")(ASK)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("no-such:model", {}, "cannot be used: Unknown model"),
        ("openai:gpt-5", {"key_env": "SPAR_NO_SUCH_KEY"}, "'SPAR_NO_SUCH_KEY', which is to hold the key"),
        ("openai:gpt-5", {}, "OPENAI_API_KEY"),
        ("groq:x", {"key_env": "HOME"}, r"pip install 'pydantic-ai-slim\[groq\]'"),
    ],
)
async def test_a_model_that_cannot_be_used_is_a_mistake_in_the_configuration(
    name: str, options: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(ConfigError, match=says):
        await ProviderModel(name, **options)(ASK)


@pytest.mark.parametrize(
    "options",
    [{"mode": "magic"}, {"idle": 0}, {"first_byte": float("nan")}, {"prices": {"input": 1}}, {"max_calls": -1}],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ProviderModel("openai:gpt-5", **options)


#: Notes in which threads the libraries begin to be imported.
WATCHED = """
import asyncio, gc, sys, threading
threads = {}
class Watch:
    def find_spec(self, name, path=None, target=None):
        threads.setdefault(name.partition(".")[0], threading.current_thread() is threading.main_thread())
sys.meta_path.insert(0, Watch())
"""


def test_what_the_first_message_and_the_first_call_import_is_loaded_at_the_start_in_a_thread() -> None:
    code = (
        WATCHED
        + """
from acting import Executor
from acting.tools.http import HttpTool
from planning.resilience.failover import Models
from planning.llm.provider import ProviderModel
from planning.llm.planner import ModelPlanner
from spar.clock import SystemClock

async def main():
    clock = SystemClock()
    broken = ProviderModel("nobody:nothing", clock=clock)
    made = ProviderModel("it", base_url="http://127.0.0.1:9/v1", clock=clock)
    assert "pydantic_ai" not in sys.modules
    async with ModelPlanner(Models([broken, made], clock=clock)) as planner, Executor([HttpTool()]):
        assert "httpx" in sys.modules
        await asyncio.gather(*planner._loading)
        assert made._model is not None
    assert gc.get_freeze_count() == 0
    assert (threads["pydantic_ai"], threads["httpx"]) == (False, False), threads

asyncio.run(main())
"""
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


async def test_a_planner_that_is_closed_while_its_model_loads_waits_for_nothing() -> None:
    class Slow:
        async def load(self) -> None:
            await asyncio.Event().wait()

        async def __call__(self, request: Request) -> dict[str, Any]:
            return {"output": 1}

    async with asyncio.timeout(10), ModelPlanner(Slow()) as planner:
        assert await planner.ask(Request()) == 1


def test_what_a_library_makes_is_set_apart_where_all_that_stays_is() -> None:
    """Where it is not, nothing is: see the test of what is loaded at the start."""
    code = (
        "import gc, asyncio; from planning.llm.provider import ProviderModel\n"
        "gc.freeze(); before = gc.get_freeze_count()\n"
        "asyncio.run(ProviderModel('it', base_url='http://127.0.0.1:9/v1').load())\n"
        "import pydantic_ai; assert gc.isenabled()\n"
        "assert gc.get_freeze_count() > before + 10_000, (before, gc.get_freeze_count())\n"
        "assert not any(each is vars(pydantic_ai) for each in gc.get_objects())"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(("provider", "is_sent"), [("openai", True), ("anthropic", False)])
def test_an_id_that_only_its_own_provider_takes_is_replaced_for_another(provider: str, is_sent: bool) -> None:
    calls = tuple(MadeCall(str(number), id, "look", {}, "shut") for number, id in enumerate(("call_a|fc_b", "call_c")))
    request = Request(schema=ASK.schema, turns=(Turn("user", "hi"), Turn("assistant", "", calls)))

    messages = messages_of(request, native_functions(ASK.schema, None), provider=provider)

    parts = [part for message in messages for part in message.parts if isinstance(part, ToolCallPart)]
    assert [part.tool_call_id for part in parts][1] == "call_c"
    assert (parts[0].tool_call_id == "call_a|fc_b") is is_sent
    assert re.fullmatch("[A-Za-z0-9_-]+", parts[0].tool_call_id) or is_sent
