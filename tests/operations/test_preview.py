from __future__ import annotations

from typing import Any

import pytest

from planning.llm.planner import ModelPlanner
from spar import Agent, Decision, HookContext, PromptFile
from spar.data.learning.abilities import ability_key
from spar.errors import ConflictError
from spar.operations.sessions import prompt_of
from spar.records.run_options import RunOptions
from spar.testing import ScriptedModel, VirtualClock
from spar.types import Ability


def agent_of(clock: VirtualClock, model: Any) -> Agent:
    return Agent(plan=ModelPlanner(model, instructions="be kind"), clock=clock)


async def test_hooks_are_asked_as_for_a_request_and_told_that_none_is_sent(clock: VirtualClock) -> None:
    model, reasons = ScriptedModel([]), []
    agent = agent_of(clock, model)

    @agent.hook("before_request")
    def add(ctx: HookContext) -> Decision:
        reasons.append(ctx.reason)
        return Decision.rewrite(ctx.value.append("rhyme").add("it rains"))

    async with agent:
        found = await prompt_of(agent, "alice", "hello", with_text=True)

    assert (reasons, model.requests) == (["preview"], [])
    parts = {(each["part"], each["origin"]): each["text"] for each in found["parts"]}
    name = add.__qualname__
    assert parts["instructions", f"hooks at before_request: {name}"] == "rhyme"
    assert parts["instructions", "plan.options.instructions"] == "be kind"
    assert parts["message", "run"] == "hello"
    assert "it rains" in parts["context", "hooks at before_request"]
    assert found["hooks"][0]["instructions"] == "7 characters appended"


async def test_the_request_of_the_run_that_goes_on_is_shown(clock: VirtualClock) -> None:
    shown: list[dict[str, Any]] = []

    async def model(request: Any) -> dict[str, Any]:
        shown.append(await prompt_of(agent, "alice", "another question", with_text=True))
        return {"output": "yes"}

    agent = agent_of(clock, model)
    async with agent:
        await agent.wait((await agent.submit("the question", session="alice")).run_id)

    assert [each["text"] for each in shown[0]["parts"] if each["part"] == "message"] == ["the question"]


async def test_a_planner_without_a_model_says_so(clock: VirtualClock) -> None:
    async with Agent(plan=lambda perceptions: None, clock=clock) as agent:
        with pytest.raises(ConflictError, match="asks no model"):
            await prompt_of(agent, "alice")


async def test_the_options_of_the_session_count(clock: VirtualClock) -> None:
    async with agent_of(clock, ScriptedModel([])) as agent:
        await agent.conversations.records.change("alice", defaults=RunOptions(instructions="speak French"))
        found = await prompt_of(agent, "alice", with_text=True)

    (added,) = [each for each in found["parts"] if each["origin"] == "options of the run"]
    assert added["text"].endswith("speak French")


async def test_a_preview_is_no_first_request_for_the_hooks_of_files(clock: VirtualClock) -> None:
    agent, reasons = agent_of(clock, ScriptedModel([{"output": "yes"}])), list[str]()

    @agent.hook("agent_bootstrap")
    def add(ctx: HookContext) -> Decision:
        reasons.append(ctx.reason)
        return Decision.rewrite([PromptFile("a.md", "told", "trusted", "a plug-in")])

    async with agent:
        found = await prompt_of(agent, "alice", "hello")
        await agent.wait((await agent.submit("hello", session="alice")).run_id)

    assert ("file", "a plug-in") in [(each["part"], each["origin"]) for each in found["parts"]]
    assert reasons == ["preview", ""]


async def test_an_ability_that_has_faded_is_shown_as_the_request_would_show_it(clock: VirtualClock) -> None:
    async def fetch() -> str:
        """Fetch it."""
        return "it"

    agent = Agent(plan=ModelPlanner(ScriptedModel([])), tools=[fetch], clock=clock)
    texts: list[str] = []
    async with agent:
        for age in (0, 366):
            at = clock.now().timestamp() - age * 86_400
            known = Ability("fetch", "message", 0.05, 0.03, 40, at=at, half_life=30 * 86_400.0)
            agent.abilities[ability_key("fetch", "message")] = known
            found = await prompt_of(agent, "alice", "hello", with_text=True)
            texts.append("".join(each["text"] for each in found["parts"] if each["part"] == "ability"))

    assert "- fetch: works in about 0 of 10 cases" in texts[0]
    assert texts[1] == "", "it is known no more"
