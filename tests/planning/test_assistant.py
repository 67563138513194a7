from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from planning.assistant import Assistant
from planning.llm.planner import ModelPlanner
from spar import Agent, tool
from spar.errors import ConfigError, TransientError
from spar.events import AssistantDelta
from spar.parts.registry import Registry
from spar.protocols import Context, Home
from spar.testing import Fail, ScriptedModel, VirtualClock
from spar.types import Action, ActionResult, Perception
from tests.planning.desk import Desk, context, message
from tests.servers.llm import LlmServer
from tests.servers.llm_replies import ToolCall, says

REST = {"name": "the rest", "when": {"kind": "message"}, "answer": "by rule"}
NOTES = {"name": "notes", "when": {"pattern": "^note"}, "answer": "noted"}


def made(
    clock: VirtualClock, script: list[Any], *rules: dict[str, Any], **options: Any
) -> tuple[Assistant, ScriptedModel]:
    """An assistant whose model is a script."""
    assistant = Assistant("openai:m", rules=rules, **options)
    assistant.attach(Desk(clock).host)
    model = ScriptedModel(script)
    planner = next(each for each in assistant.planners if isinstance(each, ModelPlanner))
    planner.model = model
    return assistant, model


async def action_of(assistant: Assistant, given: Context) -> Action | None:
    perceptions = [given.run.message] if given.run is not None and given.run.message is not None else []
    plan = await assistant.plan(perceptions, given)
    if plan is None or isinstance(plan, Action):
        return plan
    found = [each async for each in plan][-1]
    assert isinstance(found, Action)
    return found


def build(options: dict[str, Any], home: Home | None = None, rules: tuple[dict[str, Any], ...] = ()) -> Any:
    extra = {"rules": list(rules), "tools": ["note"]}
    return Registry().build("spar.planners", ("plan",), "planning.assistant:assistant", options, extra=extra, home=home)


# -- who decides


async def test_the_model_decides_and_a_rule_for_everything_does_not_keep_it_from_that(clock: VirtualClock) -> None:
    assistant, _ = made(clock, [{"output": "by model"}], REST)

    action = await action_of(assistant, context())

    assert (action.output, action.degraded) == ("by model", False)


async def test_a_run_that_no_rule_knows_waits_for_the_model(clock: VirtualClock) -> None:
    assistant, model = made(clock, [{"output": "by model"}], NOTES)

    assistant.degrade("budget hour.tokens is used up")
    action = await action_of(assistant, context(message("how are you?")))

    assert action.deferred == "degraded: budget hour.tokens is used up"
    assert action.next_look is not None
    assert await action_of(assistant, Context("a", "c")) is None
    assert model.requests == []


@pytest.mark.parametrize("is_down", [False, True], ids=["the budget is used up", "the provider is down"])
async def test_a_run_that_the_rules_have_taken_over_is_over_when_they_have_nothing_to_add(
    clock: VirtualClock, is_down: bool
) -> None:
    assistant, _ = made(clock, [Fail(TransientError("down", retry_after=60))], DISK)
    done = ActionResult(action=Action(degraded=True))
    if not is_down:
        assistant.degrade("budget hour.tokens is used up")

    given = context(Perception("99 %", source="host", kind="disk.full"), number=2, results=(done,))
    assert await assistant.plan([], given) is None


DISK = {"name": "disk", "when": {"kind": "disk.*"}, "answer": "cleaned"}


async def test_rules_decide_on_what_was_noticed_while_the_provider_is_down(clock: VirtualClock) -> None:
    assistant, model = made(clock, [Fail(TransientError("down", retry_after=60))] * 3, DISK)
    seen = Perception("99 %", source="host", kind="disk.full")
    mail = Perception("hello", source="mail", kind="mail.in")
    both = Perception("two things", source="host", kind="mail.in", evidence=(mail, seen))

    for noticed in (seen, both):
        action = await action_of(assistant, context(noticed))
        assert (action.output, action.degraded) == ("cleaned", True)
        assert "down" in action.reason
    unknown = await action_of(assistant, context(mail))
    assert (unknown.deferred != "", unknown.next_look) == (True, 60.0)
    assert len(model.requests) == 3


async def test_what_people_say_waits_for_the_model_and_so_does_what_it_has_begun(clock: VirtualClock) -> None:
    assistant, _ = made(clock, [Fail(TransientError("down", retry_after=60))] * 2, REST, DISK)
    begun = ActionResult(action=Action())

    seen = Perception("99 %", source="host", kind="disk.full")
    for given in (context(message("how are you?")), context(seen, number=2, results=(begun,))):
        action = await action_of(assistant, given)
        assert (action.output, action.next_look) == (None, 60.0)
        assert action.deferred


@pytest.mark.parametrize("is_degraded", [False, True])
async def test_rules_that_go_first_decide_what_they_match_and_are_never_degraded(
    clock: VirtualClock, is_degraded: bool
) -> None:
    assistant, model = made(clock, [{"output": "by model"}], NOTES, rules_are="first")
    if is_degraded:
        assistant.degrade("budget hour.tokens is used up")

    known = await action_of(assistant, context(message("note it")))
    other = await action_of(assistant, context(message("how are you?")))

    assert (known.output, known.degraded) == ("noted", False)
    assert (other.output, other.degraded) == (None if is_degraded else "by model", False)
    assert (bool(other.deferred), len(model.requests)) == (is_degraded, not is_degraded)


async def test_without_rules_only_the_model_is_asked(clock: VirtualClock) -> None:
    assistant, _ = made(clock, [Fail(OSError("no way there"))], REST, rules_are="off")

    with pytest.raises(OSError, match="no way there"):
        await action_of(assistant, context())


async def test_what_the_model_makes_a_run_of_is_not_planned_by_the_rules_as_well(clock: VirtualClock) -> None:
    seen = {"name": "seen", "when": {"kind": "mail"}, "answer": "by rule"}
    assistant, _ = made(clock, [{"output": "x"}], seen)

    assert await assistant.plan([Perception("hi", kind="mail")], Context("a", "c")) is None


# -- how it is configured


def test_it_is_built_from_options_as_they_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "me.md").write_text("be kind", "utf-8")
    home = Home(str(tmp_path), str(tmp_path), str(tmp_path))

    part = build(
        {
            "model": [
                "openai:gpt-5",
                {"name": "qwen3", "base_url": "http://127.0.0.1:1/v1", "prices": {"input": 1, "output": 2}},
            ],
            "key_env": "SOME_KEY",
            "instructions": "@me.md",
            "context_tokens": 8_000,
            "max_tokens": 500,
            "idle": "30s",
            "compaction_model": "openai:gpt-5-mini",
        },
        home,
        (REST,),
    )

    planner, rules = part.planners
    assert planner.instructions.endswith("\n\nbe kind")
    assert [each["model"] for each in planner.model.snapshot()["models"]] == ["openai:gpt-5", "qwen3"]
    assert planner.models.room == 7_500
    assert rules.rules[0].name == "the rest"
    assert part.snapshot()["planners"]["ModelPlanner"]["requests"] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "model"),
        ({"model": ""}, "needs a name"),
        ({"model": []}, "at least one model"),
        ({"model": "openai:m", "modle": 1}, "modle"),
        ({"model": "openai:m", "mode": "loud"}, "mode"),
        ({"model": "openai:m", "rules_are": "last"}, "rules_are"),
        ({"model": "openai:m", "idle": 0}, "idle"),
        ({"model": "openai:m", "context_tokens": 10}, "1000 or more"),
        ({"model": "openai:m", "max_tokens": 3}, "16 or more"),
        ({"model": "openai:m", "max_tokens": 900, "context_tokens": 1_000}, "too little"),
        ({"model": "openai:m", "recall": 51}, "50 or less"),
        ({"model": "openai:m", "recall": -1}, "0 or more"),
        ({"model": "openai:m", "compaction_timeout": 0}, "more than 0"),
        ({"model": "openai:m", "prices": {"in": 1}}, "prices"),
        ({"model": [{"name": "openai:m", "base": "x"}]}, "base"),
        ({"model": [{"name": "openai:m", "idle": -1}]}, "idle"),
        ({"model": "openai:m", "output": {"type": "no such type"}}, "output"),
        ({"model": "openai:m", "instructions": "@none.md"}, "none.md"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_with_its_place(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    home = Home(str(tmp_path), str(tmp_path), str(tmp_path))

    with pytest.raises(ConfigError) as caught:
        build(options, home)

    assert words in str(caught.value)
    assert "plan" in str(caught.value)


def test_a_rule_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        build({"model": "openai:m"}, rules=({"name": "x", "when": {"kinds": 1}},))


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * 300_000])
def test_instructions_that_are_no_text_or_endless_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "me.md").write_bytes(content)

    with pytest.raises(ConfigError, match=r"me\.md"):
        build({"model": "openai:m", "instructions": "@me.md"}, Home(str(tmp_path), str(tmp_path), str(tmp_path)))


def test_its_models_go_by_the_agents_clock_and_budgets(clock: VirtualClock) -> None:
    assistant = Assistant("openai:m")
    before = assistant.planners[0].model

    assistant.attach(Desk(clock).host)

    assert assistant.planners[0].model is not before


# -- over the wire


def test_without_the_library_the_configuration_is_refused_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(ConfigError, match=r"plan\.options\.model: .*pip install 'spar-agent\[llm\]'"):
        build({"model": "openai:m"})


async def test_an_agent_works_with_a_server_that_speaks_the_real_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    async def look(at: str) -> str:
        """Look at something."""
        return f"saw {at}"

    seen: list[str] = []
    monkeypatch.setenv("SOME_KEY", "secret")
    async with LlmServer([says("", ToolCall("look", {"at": "disk"})), says("It is 3")]) as server:
        part = build({"model": "openai:m", "base_url": server.url, "key_env": "SOME_KEY"}, rules=(REST,))
        agent = Agent(plan=part, act=Executor([look]))
        agent.events.subscribe(AssistantDelta, lambda event: seen.append(event.text))
        async with agent:
            status = await agent.wait((await agent.submit("how full is the disk?")).run_id)
        asked = [json.dumps(request.body) for request in server.requests]

    assert (status.status, status.output) == ("ok", "It is 3")
    assert "".join(seen) == "It is 3"
    assert "how full is the disk?" in asked[0]
    assert "saw disk" in asked[1]
    assert "secret" not in str(part.snapshot())
