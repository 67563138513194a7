"""Models of the configuration: what each is set to, what is refused at the start, which ones a message may choose."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from acting import Executor
from planning.assistant import Assistant
from planning.llm.planner import ModelPlanner
from planning.llm.provider import ModelOptions
from planning.llm.state import PlannerState
from planning.model_tables import ModelTable
from planning.ports import Request
from spar import Agent, tool
from spar.errors import ConfigError
from spar.hooks import Decision
from spar.parts.registry import Registry
from spar.records.run_options import RunOptions
from spar.testing import VirtualClock
from tests.planning.desk import Desk
from tests.servers.llm import LlmServer
from tests.servers.llm_replies import FAULTS, ToolCall, says
from tests.servers.llm_requests import Asked

HERE = "http://127.0.0.1:1/v1"
SMALL = {"name": "small", "base_url": HERE, "context_tokens": 8_000, "max_tokens": 500}
LARGE = {"name": "large", "base_url": HERE, "context_tokens": 100_000, "thinking": "low"}


def build(**options: Any) -> Any:
    extra: dict[str, Any] = {"rules": [], "tools": []}
    return Registry().build("spar.planners", ("plan",), "planning.assistant:assistant", options, extra=extra)


def planner_of(**options: Any) -> PlannerState:
    [planner] = [each for each in build(**options).planners if isinstance(each, ModelPlanner)]
    return planner


# -- what the configuration says


@pytest.mark.parametrize(
    ("option", "given"), [("model", "opnai:x"), ("compaction_model", "opnai:x"), ("allowed_models", ["opnai:x"])]
)
def test_a_model_of_a_provider_that_nobody_knows_is_refused_at_the_start(option: str, given: Any) -> None:
    with pytest.raises(ConfigError, match="'opnai:x': no such provider is known; expected PROVIDER:MODEL") as wrong:
        build(**{"model": SMALL, option: given})
    assert option in wrong.value.path
    build(model=[{**SMALL, "name": "opnai:x"}])  # on a server of one's own any name will do
    build(model="groq:llama")  # its library may be missing: it is known all the same


def test_each_model_has_a_window_of_its_own() -> None:
    planner = planner_of(model=[LARGE, SMALL, {"name": "other", "base_url": HERE}], context_tokens=20_000)

    assert planner.models.room_of("small") == 7_500
    assert planner.models.room_of("large") == 100_000 - 4_096 - 2_048
    assert planner.models.room_of("large", "high") == 100_000 - 4_096 - 16_384
    assert planner.models.room_of("other") == 20_000 - 4_096
    assert planner.models.room == planner.models.room_of("large")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": [{**SMALL, "thinking": "very"}]}, ["thinking", "off", "high"]),
        ({"model": [{**SMALL, "temperature": 3}]}, ["temperature", "2"]),
        ({"model": [{**SMALL, "temperature": float("nan")}]}, ["temperature"]),
        ({"model": [{**SMALL, "context_tokens": 10}]}, ["context_tokens", "1000"]),
        ({"model": [{**SMALL, "max_tokens": 5_000}]}, ["max_tokens", "at most half"]),
        ({"model": [{**SMALL, "thinking": "high"}]}, ["thinking", "16384 tokens", "context_tokens (8000)"]),
        ({"model": [{**SMALL, "settings": {"tempature": 1}}]}, ["settings.tempature", "no setting 'tempature'"]),
        ({"model": [{**SMALL, "settings": {"temperature": 1}}]}, ["settings.temperature", "temperature beside it"]),
        ({"model": [{**SMALL, "settings": {"top_k": 1}}]}, ["settings.top_k", "takes no top_k"]),
        ({"model": ["openai-chat:gpt-4o"], "thinking": "low"}, ["thinking", "'openai-chat:gpt-4o'", "does not think"]),
        ({"model": "openai:gpt-5", "temperature": 0.5}, ["temperature", "takes no temperature while it thinks"]),
        ({"model": "openai:gpt-5", "thinking": "off"}, ["thinking", "always thinks; the least is 'low'"]),
        ({"model": [SMALL], "allowed_models": [""]}, ["allowed_models", "needs a name"]),
        ({"model": [SMALL], "allowed_models": ["small", "small"]}, ["allowed_models", "named twice"]),
        ({"model": [SMALL], "allowed_models": [SMALL]}, ["allowed_models", "write its name here alone"]),
        ({"model": [SMALL], "allowed_models": ["other"]}, ["allowed_models", "names no provider"]),
    ],
)
def test_what_a_model_cannot_be_set_to_is_refused_at_the_start(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        build(**options)

    told = str(caught.value)
    assert not [word for word in words if word not in told], told


def test_a_bad_setting_of_a_model_is_told_with_its_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '[plan]\nuse = "llm"\n[plan.options]\nmodel = [\n  "openai:gpt-5",\n'
        '  { name = "openai-chat:gpt-4o", thinking = "high" },\n]\n'
    )
    with pytest.raises(ConfigError) as caught:
        Agent.from_config(str(path))

    assert str(caught.value).startswith(f"{path}:6: ")
    assert "gpt-4o does not think" in str(caught.value)


# -- which model a message may choose


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (None, ("small", "large")),
        (["large"], ("large",)),
        (["small", {"name": "huge", "base_url": HERE}], ("small", "huge")),
        ([], ()),
    ],
)
def test_a_message_may_choose_from_what_is_allowed(allowed: Any, names: tuple[str, ...]) -> None:
    options = {} if allowed is None else {"allowed_models": allowed}
    assert planner_of(model=[SMALL, LARGE], **options).allowed_models == names


async def test_a_message_is_told_that_no_model_may_be_chosen_where_none_is_allowed() -> None:
    planner = planner_of(model=[SMALL, LARGE], allowed_models=[])

    with pytest.raises(ValueError, match="option model is 'none', no model may be chosen"):
        await planner.check_options(RunOptions(model="none"))


async def test_a_model_that_is_only_allowed_is_asked_first_by_who_names_it_and_never_else() -> None:
    planner = planner_of(model=[SMALL, LARGE], allowed_models=["large", {"name": "huge", "base_url": HERE}])

    assert planner.models.order() == ("small", "large")
    assert planner.models.order("huge") == ("huge", "small", "large")
    assert planner.models.order("large") == ("large", "small")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (RunOptions(model="huge"), r"option model is 'huge', allowed are: small, large"),
        (RunOptions(thinking="high"), r"option thinking is 'high': small does not think"),
        (RunOptions(model="small", thinking="low"), r"option thinking is 'low': small does not think"),
    ],
)
async def test_an_option_that_its_model_cannot_go_by_is_refused(options: RunOptions, error: str) -> None:
    chain = build(model=[SMALL, LARGE])
    with pytest.raises(ValueError, match=error):
        await chain.check_options(options)
    await chain.check_options(RunOptions(model="large", thinking="high"))
    await chain.check_options(RunOptions(thinking="off"))


# -- over the wire


def by_model(replies: Mapping[str, Any]) -> Any:
    """A server of several models, each with replies of its own: one, or a list in turn."""

    def script(asked: Asked) -> Any:
        found = replies[asked.body["model"]]
        return (found.pop(0) if len(found) > 1 else found[0]) if isinstance(found, list) else found

    return script


def agent_at(url: str, *tools: Any, **options: Any) -> Agent:
    tables = [{**SMALL, "base_url": url}, {**LARGE, "base_url": url}]
    return Agent(plan=build(**{"model": tables, "rules_are": "off", **options}), act=Executor(list(tools)),
                 loop_interval="adaptive", settings={"agent": {"min_interval": 0}})  # fmt: skip


async def test_what_a_message_chose_is_what_the_model_is_asked_with() -> None:
    async with (
        LlmServer(by_model({"small": says("from small"), "large": says("from large")})) as server,
        agent_at(server.url) as agent,
    ):
        chosen = {"model": "large", "thinking": "high", "instructions": "Answer in verse."}
        first = await agent.wait((await agent.submit("hello", options=chosen)).run_id)
        second = await agent.wait((await agent.submit("hello")).run_id)
        with pytest.raises(ValueError, match="allowed are: small, large"):
            await agent.submit("hello", options={"model": "gpt-9"})

    assert (first.output, second.output) == ("from large", "from small")
    one, other = server.requests
    assert (one.body["model"], one.body["reasoning_effort"]) == ("large", "high")
    assert one.body["max_completion_tokens"] == 4_096 + 16_384
    assert (other.body["model"], other.body["max_completion_tokens"]) == ("small", 500)
    assert "reasoning_effort" not in other.body
    system = [each.messages[0]["content"] for each in (one, other)]
    assert system[0] == f"{system[1]}\n\nFor this conversation the one who is served adds:\nAnswer in verse."


async def test_a_model_that_fails_is_stood_in_for_by_those_of_the_configuration() -> None:
    async with (
        LlmServer(by_model({"small": says("from small"), "large": FAULTS["broken"]})) as server,
        agent_at(server.url) as agent,
    ):
        status = await agent.wait((await agent.submit("hello", options={"model": "large"})).run_id)

    assert (status.status, status.output) == ("ok", "from small")
    assert {each.body["model"] for each in server.requests} == {"small", "large"}


async def test_a_request_is_made_smaller_for_the_fallback_that_reads_less() -> None:
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "word " * 8_000

    called = says("", ToolCall("look", {}))
    async with (
        LlmServer(by_model({"large": [called, FAULTS["broken"]], "small": says("seen")})) as server,
        agent_at(server.url, look) as agent,
    ):
        status = await agent.wait((await agent.submit("look", options={"model": "large"})).run_id)

    assert (status.status, status.output) == ("ok", "seen")
    sizes = {each.body["model"]: len(each.raw) for each in server.requests}
    assert sizes["small"] < 4 * 7_500


async def test_a_hook_may_choose_another_model_of_those_that_are_allowed() -> None:
    shown: list[Any] = []

    async with LlmServer(by_model({"small": says("from small"), "large": says("from large")})) as server:
        agent = agent_at(server.url)

        @agent.hook("before_request")
        async def choose(ctx: Any) -> Decision:
            shown.append((ctx.value.model, ctx.value.models))
            return Decision.rewrite(replace(ctx.value, model="large"))

        async with agent:
            status = await agent.wait((await agent.submit("hello")).run_id)

    assert shown == [("", ("small", "large"))]
    assert status.output == "from large"


async def test_the_window_of_the_model_in_turn_decides_while_another_rests() -> None:
    async with LlmServer(by_model({"large": FAULTS["no such model"], "small": says("from small")})) as server:
        tables = [{**LARGE, "base_url": server.url}, {**SMALL, "base_url": server.url}]
        chain = build(model=tables, rules_are="off")
        planner: ModelPlanner = chain.planners[0]
        async with Agent(plan=chain, loop_interval="adaptive") as agent:
            rooms = []
            for _ in range(2):
                status = await agent.wait((await agent.submit("hello")).run_id)
                rooms.append(planner.record.requests[-1].room)

    assert status.output == "from small"
    assert rooms == [100_000 - 4_096 - 2_048, 7_500]


async def test_more_thoughts_for_one_message_teach_nothing_about_the_window() -> None:
    async with LlmServer(by_model({"large": says("from large")})) as server:
        chain = build(model=[{**LARGE, "base_url": server.url}], rules_are="off")
        async with Agent(plan=chain, loop_interval="adaptive") as agent:
            await agent.wait((await agent.submit("hello", options={"thinking": "high"})).run_id)

    assert chain.planners[0].models.room_of("large") == 100_000 - 4_096 - 2_048


async def test_a_request_that_is_no_cycles_is_for_its_provider_to_judge() -> None:
    async with LlmServer(by_model({"small": says("read")})) as server:
        planner = planner_of(model=[{**SMALL, "base_url": server.url}])
        planner.attach(Desk(VirtualClock()).host)
        async with planner:
            assert await planner.ask(Request(texts=("word " * 20_000,))) == "read"


def test_a_model_has_the_same_options_in_a_table_of_its_own_and_beside_all_models() -> None:
    own = set(ModelTable.model_fields) - {"name"}

    assert own <= set(ModelOptions.__struct_fields__)
    assert own <= inspect.signature(Assistant).parameters.keys()
